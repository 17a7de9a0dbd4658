"""The pseudo terminal of a life that is to be killed: what it showed, to its last moment.

What comes in: what to type once the editor asks for it. What goes out: every byte that was written
to the terminal, and what a person could read there. It starts and kills nothing.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, final

import trio

from dsh.testing.emulator import Emulator

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["KilledTerminal", "open_terminal"]

COLUMNS: Final = 100
ROWS: Final = 30
#: What the editor of a conversation asks for when it is there.
PASTE_ON: Final = b"\x1b[?2004h"
#: Between the words and Enter, in seconds: what comes at once is a paste.
KEY_SECONDS: Final = 0.03


@final
class KilledTerminal:
    """One terminal. `name` is what the life opens."""

    def __init__(self, leader: int, follower: int) -> None:
        self.name: Final = os.ttyname(follower)
        self._leader: Final = leader
        self._shown: Final = bytearray()

    def shown(self) -> bytes:
        """Every byte so far; of a life that is over it is all."""
        self._look()
        return bytes(self._shown)

    def lines(self) -> list[str]:
        """What can be read there, scrolled away or not."""
        emulator = Emulator(COLUMNS, ROWS)
        emulator.feed(self.shown())
        return emulator.transcript

    async def watch(self, typed: str) -> None:
        """Read, so that the life never waits; type this when its editor is there, if anything."""
        while True:
            await trio.lowlevel.wait_readable(self._leader)
            self._look()
            if typed and PASTE_ON in self._shown:
                os.write(self._leader, typed.encode())
                await trio.sleep(KEY_SECONDS)
                os.write(self._leader, b"\r")
                typed = ""

    def _look(self) -> None:
        with suppress(OSError):
            while piece := os.read(self._leader, 65536):
                self._shown.extend(piece)


@asynccontextmanager
async def open_terminal(typed: str, *, raw: bool) -> AsyncGenerator[KilledTerminal]:
    """A terminal that is read for the length of the block. `raw`: bytes come as they are written.

    What is asked of it after the block has no answer: ask inside.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    if raw:
        modes = termios.tcgetattr(follower)
        modes[1] &= ~termios.OPOST
        termios.tcsetattr(follower, termios.TCSANOW, modes)
    os.set_blocking(leader, False)
    terminal = KilledTerminal(leader, follower)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminal.watch, typed)
            yield terminal
            nursery.cancel_scope.cancel()
    finally:
        # Kept open until now: with the last one who has it open, its rest would be gone.
        os.close(follower)
        os.close(leader)
