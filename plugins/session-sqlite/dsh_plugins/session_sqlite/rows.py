"""Between events and the rows of the table `lines`: one row a line, each with its proof.

What comes in: events to store, or rows in seq order. What goes out: the other one, or the seq at
which a row is not as it was written. Nothing here touches a database.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import orjson

from dsh.wire import RowReader, WireFault, with_payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh.wire import StoredEvent

__all__ = ["LineRow", "Reading", "proof_of", "rows_of"]

#: seq of the first event, line, proof.
LineRow: TypeAlias = tuple[int, str, int]


def proof_of(place: str, text: bytes) -> int:
    """A checksum of a text and of the place where it belongs."""
    return zlib.crc32(text, zlib.crc32(place.encode()))


def rows_of(session_id: str, lines: bytes, first_seq: int) -> list[LineRow]:
    """The rows for the output of `encode_rows` that begins at `first_seq`."""
    rows: list[LineRow] = []
    seq = first_seq
    for line in lines.split(b"\n")[:-1]:
        rows.append((seq, line.decode(), proof_of(f"{session_id}:{seq}", line)))
        # A packed row is a seq and then two entries for each event; all else is one event.
        seq += len(cast("list[object]", orjson.loads(line))) // 2 if line[:1] == b"[" else 1
    return rows


def _place_of(name: str) -> str:
    return f"the blob {name}"


@final
class Reading:
    """Reads rows up to their end or the first damage. `fault` then says where and what.

    `blob` finds a payload that is too large for a row by its name, or raises OSError.
    """

    def __init__(
        self,
        session_id: str,
        rows: Iterable[tuple[object, object, object]],
        blob: Callable[[str], bytes],
    ) -> None:
        self.events: Final[list[StoredEvent]] = []
        self.fault: str | None = None
        self._session_id: Final = session_id
        self._blob: Final = blob
        reader = RowReader()
        expected: int | None = None
        for seq, line, proof in rows:
            self.fault = self._read(reader, expected, seq, line, proof)
            if self.fault is not None:
                return
            expected = self.events[-1].seq + 1

    def _read(
        self, reader: RowReader, expected: int | None, seq: object, line: object, proof: object
    ) -> str | None:
        if type(seq) is not int or (expected is not None and seq != expected):
            return f"seq {seq!r} where {expected} is due"
        if not isinstance(line, bytes) or proof != proof_of(f"{self._session_id}:{seq}", line):
            return f"seq {seq}: the line is not as it was written"
        try:
            new = reader.read(with_payload(line, self._blob, place=_place_of))
        except WireFault as fault:
            return f"seq {seq}: {fault}"
        if not new or new[0].seq != seq:
            return f"seq {seq}: the line does not begin there"
        self.events.extend(new)
        return None
