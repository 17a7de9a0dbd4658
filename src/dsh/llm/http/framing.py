"""Server-sent events, framed by bytes: from network reads to the data of complete events.

What comes in: the body in any pieces, one byte or a megabyte at a time. What goes out: for each
complete event the bytes of its data lines, joined with LF. Decoding text is left to the JSON
parser, which gets whole events, so no character can be cut. Pure; it never waits.

Lines end with LF, CR or CRLF and with nothing else: U+2028 and U+0085 inside JSON text are data. A
byte order mark before the first line is skipped. Comments, `id`, `retry` and unknown fields are
ignored, and so are events without data.
"""

from __future__ import annotations

from typing import Final

from dsh.errors import LlmError

__all__ = ["LINE_MAX", "EventFramer"]

#: The longest line, and the longest data of one event, in bytes.
LINE_MAX: Final = 8 * 1024 * 1024

_BOM: Final = b"\xef\xbb\xbf"


class EventFramer:
    """Feed it reads, take complete events. One framer for one body."""

    __slots__ = ("_data", "_first", "_limit", "_pending", "_size", "_skip_lf")

    def __init__(self, limit: int = LINE_MAX) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0
        self._data: list[bytes] = []
        self._first = True
        self._skip_lf = False

    def feed(self, read: bytes) -> list[bytes]:
        """The data of every event that is complete now, in order.

        Raises LlmError MALFORMED_RESPONSE for a line or an event beyond the limit.
        """
        if self._skip_lf and read:
            self._skip_lf = False
            read = read.removeprefix(b"\n")
        if b"\r" in read:
            self._skip_lf = read.endswith(b"\r")
            read = read.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in read:
            # Kept in pieces: joining them at each read would cost the square of a long line.
            if read:
                self._pending.append(read)
                self._size += len(read)
                if self._size > self._limit:
                    raise self._too_long()
            return []
        if self._pending:
            self._pending.append(read)
            read = b"".join(self._pending)
            self._pending.clear()
        *lines, rest = read.split(b"\n")
        if rest:
            self._pending.append(rest)
        self._size = len(rest)
        if self._size > self._limit:
            raise self._too_long()
        if self._first:
            self._first = False
            lines[0] = lines[0].removeprefix(_BOM)
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    event = data[0] if len(data) == 1 else b"\n".join(data)
                    data.clear()
                    if event:
                        found.append(event)
            elif line.startswith(b"data:"):
                if len(line) > self._limit:
                    raise self._too_long()
                data.append(line[6:] if line[5:6] == b" " else line[5:])
                if len(data) > 1 and sum(map(len, data)) > self._limit:
                    raise self._too_long()
            elif line == b"data":
                data.append(b"")
        return found

    def tail(self) -> bytes:
        """What is left at the end of the body: an event that was never ended by an empty line.

        It counts as not received, unless the decoder knows it as the end of a reply.
        """
        line = b"".join(self._pending)
        data = list(self._data)
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        return b"\n".join(data)

    def _too_long(self) -> LlmError:
        return LlmError(
            f"the server sent a line or an event of more than {self._limit} bytes",
            code="MALFORMED_RESPONSE",
        )
