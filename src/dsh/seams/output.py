"""The two ends of an output that may be endless.

What comes in: chunks of bytes as a pipe gives them. What goes out: the first and the last bytes and
how many lay between. Memory stays within the bounds however much arrives.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Ends"]


class Ends:
    """Keeps at most `head` bytes of the start and `tail` bytes of the end."""

    def __init__(self, *, head: int, tail: int) -> None:
        self._head_room = head
        self._tail_room = tail
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._omitted = 0

    def add(self, data: bytes) -> None:
        """Take the next chunk."""
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_room:
            gone = self._tail.popleft()
            self._tail_size -= len(gone)
            self._omitted += len(gone)

    def ends(self) -> tuple[bytes, bytes, int]:
        """Head, tail, and the number of bytes that are in neither."""
        tail = b"".join(self._tail)
        extra = max(0, len(tail) - self._tail_room)
        return bytes(self._head), tail[extra:], self._omitted + extra
