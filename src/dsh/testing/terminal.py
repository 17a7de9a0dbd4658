"""The command `dsh` on a real terminal: a pseudo terminal of its own, with keys that a test types.

What comes in: a command line, keys, and texts to wait for. What goes out: everything that was shown
and the exit code. The terminal is the command's controlling one, so a typed Ctrl-C is a signal.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import TYPE_CHECKING, Final, final

import trio

from dsh.testing.command_line import COMMAND, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.testing.command_line import CommandLine

__all__ = ["AtTerminal", "at_terminal", "plainly"]

ROWS: Final = 40
#: What differs from run to run: spans of time, and the switches of paste mode.
SPANS: Final = re.compile(r"\d+\.\d s\b")
ESCAPES: Final = re.compile(r"\x1b\[[?0-9;]*[a-z]")


def plainly(shown: str) -> str:
    """What was shown, without escapes, with `N s` for every span: for a comparison."""
    lines = ESCAPES.sub("", shown.replace("\r\n", "\n")).split("\n")
    return SPANS.sub("N s", "\n".join(line.rstrip() for line in lines))


@final
class AtTerminal:
    """A command that runs on a terminal. `out` has what it wrote elsewhere than there."""

    def __init__(self, process: trio.Process, leader: int) -> None:
        self._process: Final = process
        self._leader: Final = leader
        self._shown = bytearray()
        self._seen = 0
        self.out = ""

    @property
    def shown(self) -> str:
        """Everything the terminal showed so far."""
        return self._shown.decode("utf-8", "replace")

    def settings(self) -> object:
        """The terminal's settings, to be compared."""
        return termios.tcgetattr(self._leader)

    async def until(self, text: str) -> None:
        """Read until `text` is shown, after what an earlier `until` waited for."""
        with trio.fail_after(PATIENCE):
            while (found := self._shown.find(text.encode(), self._seen)) < 0:
                assert await self._more(), f"it ended without showing {text!r}:\n{self.shown}"
        self._seen = found + len(text.encode())

    def types(self, keys: str) -> None:
        r"""Press keys. Enter is a line feed, Ctrl-C is `\x03`."""
        os.write(self._leader, keys.encode())

    async def ended(self) -> int:
        """Read the rest; the exit code."""
        with trio.fail_after(PATIENCE):
            while await self._more():
                pass
            if self._process.stdout is not None:
                self.out = b"".join([bytes(piece) async for piece in self._process.stdout]).decode()
            return await self._process.wait()

    async def _more(self) -> bool:
        await trio.lowlevel.wait_readable(self._leader)
        try:
            piece = os.read(self._leader, 65536)
        except OSError:  # EIO: the last one who had it open closed it
            return False
        self._shown += piece
        return bool(piece)


@asynccontextmanager
async def at_terminal(
    cli: CommandLine, *arguments: str, columns: int = 80, piped: bool = False
) -> AsyncGenerator[AtTerminal, None]:
    """Start it; what still runs when the block is left is killed. `piped`: its output is a pipe."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    process = await trio.lowlevel.open_process(
        ["setsid", "-c", *COMMAND, *arguments],
        stdin=follower,
        stdout=PIPE if piped else follower,
        stderr=follower,
        cwd=cli.workspace,
        env=cli.environment(),
    )
    os.close(follower)
    try:
        yield AtTerminal(process, leader)
    finally:
        if process.returncode is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        os.close(leader)
