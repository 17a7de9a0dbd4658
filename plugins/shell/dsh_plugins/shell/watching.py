"""What a person sees of a command while it runs: the end of its output, now and then.

What comes in: output, piece by piece, as fast as it comes. What goes out: its last lines as text,
at most ten times a second and never more than a screen of it, whatever the command prints. Of a
command that is over half a second after its first output nothing is shown, nor after its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from dsh.tools import visible_bytes, whole_tail

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EVERY", "FIRST", "TAIL_MAX", "Shown"]

#: Seconds from the first output to the first look, and from one look to the next.
FIRST: Final = 0.5
EVERY: Final = 0.1
#: Bytes of output that one look shows.
TAIL_MAX: Final = 2_000


@final
class Shown:
    """Keeps the end of an output. `show` gets it as text; each replaces the one before."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show: Final = show
        self._tail = bytearray()
        self._cut = False
        self._news = trio.Event()

    def add(self, data: bytes) -> None:
        """Take the next piece of output."""
        self._tail += data[-TAIL_MAX:]
        if len(self._tail) > TAIL_MAX or len(data) > TAIL_MAX:
            self._cut = True
            del self._tail[:-TAIL_MAX]
        self._news.set()

    async def run(self) -> None:
        """Show what is new, until cancelled."""
        pause = FIRST
        while True:
            await self._news.wait()
            await trio.sleep(pause)
            pause, self._news = EVERY, trio.Event()
            self._show(visible_bytes(self._lines()))

    def _lines(self) -> bytes:
        """The tail without the line that its start cuts, unless that is all there is."""
        tail = bytes(self._tail)
        if not self._cut:
            return tail
        _, newline, rest = tail.partition(b"\n")
        return rest if newline and rest else whole_tail(tail)
