"""A shell that runs nothing: a second provider behind the shell seam, for tests.

What comes in: what each command prints and how it ends. What goes out: those results, and a list of
what was asked. No process is ever started; a command that nobody foresaw ends with status 127.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio
from attrs import frozen
from typing_extensions import override

from dsh.kernel import Context, Plugin, plugin
from dsh.seams.shell import SHELL, Shell, ShellResult, Watch

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PlayedShell", "Ran", "played_shell"]


@frozen
class Ran:
    """One command that was asked for, where, and with how many seconds to live."""

    command: str
    cwd: str
    timeout: float


@final
class PlayedShell(Shell):
    """Answers from `outputs`: command line → what it prints, with exit status 0."""

    def __init__(self, outputs: Mapping[str, str]) -> None:
        self._outputs: Final = outputs
        self.ran: Final[list[Ran]] = []

    @override
    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout: float,
        owner: str | None = None,
        watch: Watch | None = None,
    ) -> ShellResult:
        del owner
        await trio.lowlevel.checkpoint()
        self.ran.append(Ran(command, cwd, timeout))
        output = self._outputs.get(command)
        printed = f"{command}: command not found\n" if output is None else output
        if watch is not None:
            watch(printed.encode())
        return ShellResult(
            exit_code=127 if output is None else 0,
            signal=None,
            head=printed.encode(),
            tail=b"",
            omitted=0,
            timed_out=False,
            stopped_background=False,
            detached=False,
        )


def played_shell(shell: Shell, *, name: str = "played-shell") -> Plugin:
    """A plugin that provides `shell` behind the seam, in place of the row `shell-local`."""

    @plugin(name=name, provides=(SHELL,))
    async def apply(ctx: Context) -> None:
        ctx.provide(SHELL, shell)

    return apply
