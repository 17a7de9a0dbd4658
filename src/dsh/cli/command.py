"""One command from arguments to exit code: where every exception of a command ends.

What comes in: arguments. What goes out: an exit code, with one paragraph on standard error when
something was refused. It imports what the command needs, and nothing before the arguments are
known to be good.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from dsh.cli.grammar.arguments import (
    Command,
    DoctorOptions,
    PluginsOptions,
    RunOptions,
    read_arguments,
)
from dsh.cli.grammar.catalog import CatalogOptions
from dsh.cli.grammar.chat import ChatOptions, CompletionOptions, NewPluginOptions
from dsh.cli.grammar.view import ViewOptions
from dsh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.cli.grammar.sessions import SessionsOptions

__all__ = ["run_command"]


def run_command(arguments: Sequence[str]) -> int:
    """Run the command. Its exit code is the process's."""
    _open_descriptors()
    try:
        command = read_arguments(arguments)
    except UsageError as error:
        sys.stderr.write(f"dsh: {error}\n")
        return 2
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 2
    return _run(command)


def _run(command: Command) -> int:
    # Nothing that is imported ever becomes garbage; a command turns it on when it has started.
    gc.disable()
    if isinstance(command, RunOptions):
        from dsh.cli.run.command import run  # noqa: PLC0415

        return run(command)
    if isinstance(command, PluginsOptions):
        from dsh.cli.plugins.command import plugins  # noqa: PLC0415

        return plugins(command)
    if isinstance(command, DoctorOptions):
        from dsh.cli.doctor.command import doctor  # noqa: PLC0415

        return doctor(command)
    if isinstance(command, ChatOptions):
        from dsh.cli.chat.command import chat  # noqa: PLC0415

        return chat(command)
    if isinstance(command, NewPluginOptions):
        from dsh.cli.plugins.new import new_plugin  # noqa: PLC0415

        return new_plugin(command)
    if isinstance(command, CompletionOptions):
        from dsh.cli.completion import completion  # noqa: PLC0415

        return completion(command)
    if isinstance(command, CatalogOptions):
        from dsh.cli.catalog import catalog  # noqa: PLC0415

        return catalog(command)
    return _look(command)


def _look(command: SessionsOptions | ViewOptions) -> int:
    if isinstance(command, ViewOptions):
        from dsh.cli.sessions.view import view  # noqa: PLC0415

        return view(command)
    from dsh.cli.sessions.command import sessions  # noqa: PLC0415

    return sessions(command)


def _open_descriptors() -> None:
    """Put /dev/null where 0, 1 or 2 was closed: no file of ours may land there by chance."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if fd == 0 else os.O_WRONLY)
