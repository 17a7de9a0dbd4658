"""How a process is confined: through `bwrap`, or not at all.

What comes in: arguments and a workspace. What goes out: the arguments that start it. The whole
system is visible read-only, with fresh /dev, /proc and /tmp; the workspace alone can be written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from attrs import frozen
from typing_extensions import override

from dsh.errors import ToolError
from dsh.seams.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bubblewrap", "Unconfined"]


@frozen
class Bubblewrap(Sandbox):
    """Confinement by `bwrap`. `network`: whether it reaches the network."""

    program: str
    network: bool

    @override
    def confined(self, argv: Sequence[str], cwd: str) -> tuple[str, ...]:
        workspace = os.path.realpath(cwd)
        return (
            self.program,
            *("--ro-bind", "/", "/"),
            *("--dev", "/dev"),
            *("--proc", "/proc"),
            *("--tmpfs", "/tmp"),
            *("--bind", workspace, workspace),
            *("--chdir", workspace),
            *(() if self.network else ("--unshare-net",)),
            "--unshare-pid",
            "--die-with-parent",
            "--",
            *argv,
        )


@frozen
class Unconfined(Sandbox):
    """No confinement. `refuse`: then nothing runs."""

    refuse: bool

    @override
    def confined(self, argv: Sequence[str], cwd: str) -> tuple[str, ...]:
        if self.refuse:
            raise ToolError(
                "sandbox: processes have to be confined, and bwrap was not found; "
                "install bubblewrap, or set sandbox.required to false"
            )
        return tuple(argv)
