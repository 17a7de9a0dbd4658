"""The entry of the command `dsh`: what is answered before anything else is imported.

What comes in: the process's arguments. What goes out: an exit code. `dsh --version` ends here, so
that it costs nothing; everything else is `dsh.cli.command`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Never raises for a mistake of a person."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given in (["--version"], ["-V"]):
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            print(f"dsh {version('dsh-trio')}")
        except PackageNotFoundError:
            print("dsh (not installed: running from a source tree)")
        return 0
    try:
        from dsh.cli.command import run_command  # noqa: PLC0415

        return run_command(given)
    except KeyboardInterrupt:
        # Before a command has its own way to stop, or after it.
        sys.stderr.write("dsh: stopped\n")
        return 130
