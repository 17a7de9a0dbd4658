"""Lines of a pipe, framed by bytes and bounded.

What comes in: reads of any size. What goes out: whole lines, and for a line beyond the bound its
two ends. A line ends with LF alone: U+2028 inside JSON text is data. Pure; it never waits.
"""

from __future__ import annotations

from typing import Final

from dsh.hooks import frozen

__all__ = ["LINE_MAX", "Lines", "TooLong"]

#: The longest line that is kept, in bytes.
LINE_MAX: Final = 8 * 1024 * 1024
#: How much of each end of a longer one is kept: enough to see whose answer it is.
END: Final = 256


@frozen(slots=True)
class TooLong:
    """A line that was not kept: its first and its last bytes."""

    head: bytes
    tail: bytes


class Lines:
    """Feed it reads, take complete lines without their ends."""

    def __init__(self, limit: int = LINE_MAX) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None  # of the line that is being left out

    def feed(self, read: bytes) -> list[bytes | TooLong]:
        """Every line that is complete now."""
        *ends, rest = read.split(b"\n")
        found = [self._line(end) for end in ends]
        if rest:
            self._keep(rest)
        return found

    def last(self) -> bytes:
        """What came after the last line end."""
        return b"" if self._head is not None else b"".join(self._pending)

    def _line(self, end: bytes) -> bytes | TooLong:
        self._keep(end)
        line = b"".join(self._pending)
        head = self._head
        self._pending.clear()
        self._size, self._head = 0, None
        return line.removesuffix(b"\r") if head is None else TooLong(head, line[-END:])

    def _keep(self, piece: bytes) -> None:
        # Kept in pieces: joining them at each read would cost the square of a long line.
        self._pending.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            joined = b"".join(self._pending)
            if self._head is None:
                self._head = joined[:END]
            self._pending[:] = [joined[-END:]]
            self._size = self._limit  # from here on every piece is cut at once
