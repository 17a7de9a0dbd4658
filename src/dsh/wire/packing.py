"""Runs of streamed deltas in few bytes, decoded to exactly what was appended.

What comes in: consecutive events, or the lines of a log in order. What goes out: lines, or the
same events. A delta that continues the block of the event before it needs no envelope of its own:
the row `[seq, ms, piece, ms, piece, …]` says where it starts, and for each delta how many
milliseconds later it came and what it said. Everything else of it equals the event before. A row
of one number is a seal: the CRC-32 of every byte since the seal before it, or since the start.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, cast

import orjson

from dsh.catalog import assistant
from dsh.catalog.records import ReasoningDeltaChunk, TextDeltaChunk, ToolCallDeltaChunk
from dsh.wire.envelope import StoredEvent
from dsh.wire.lines import encode_line, event_of
from dsh.wire.payloads import NotJson, WireFault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    Delta: TypeAlias = "TextDeltaChunk | ReasoningDeltaChunk | ToolCallDeltaChunk"

__all__ = ["RowReader", "SealBroken", "encode_rows", "seal_row"]

#: Pieces in one row at most, so that no row grows without bound.
ROW_PIECES: Final = 4096
_DELTAS: Final = (TextDeltaChunk, ReasoningDeltaChunk, ToolCallDeltaChunk)


def _delta_of(event: StoredEvent | None) -> Delta | None:
    if event is None or type(event.data) is not assistant.Chunk:
        return None
    chunk = event.data.chunk
    return chunk if isinstance(chunk, _DELTAS) else None


def _gather(
    row: list[int | str], before: StoredEvent, events: Sequence[StoredEvent], start: int
) -> int:
    """Put into `row` what continues `before`, from the place `start` on. Returns where that ends.

    An event continues another if all of it but time and text follows from that.
    """
    delta = _delta_of(before)
    if delta is None:
        return start
    head = cast("assistant.Chunk", before.data)
    turn, step, index, kind = head.turn, head.step, delta.index, type(delta)
    call = (delta.id, delta.name) if type(delta) is ToolCallDeltaChunk else None
    seq, time = before.seq, before.time
    v, owner, ignorable = before.v, before.owner, before.ignorable
    stop = min(len(events), start + ROW_PIECES)
    for place in range(start, stop):
        event = events[place]
        data = event.data
        seq += 1
        if (
            type(data) is not assistant.Chunk
            or event.seq != seq
            or data.step != step
            or data.turn != turn
            or event.v != v
            or event.owner != owner
            or event.ignorable != ignorable
        ):
            return place
        chunk = data.chunk
        if type(chunk) is not kind:
            return place
        if type(chunk) is TextDeltaChunk or type(chunk) is ReasoningDeltaChunk:
            piece = chunk.text
        elif type(chunk) is ToolCallDeltaChunk and (chunk.id, chunk.name) == call:
            piece = chunk.arguments_delta
        else:
            return place
        if chunk.index != index:
            return place
        row.append(event.time - time)
        row.append(piece)
        time = event.time
    return stop


def encode_rows(
    events: Sequence[StoredEvent],
    *,
    encoded: Sequence[bytes | None] | None = None,
    before: StoredEvent | None = None,
) -> bytes:
    """All of `events` as lines, each with its newline.

    `before` is the event of the line above, or None at the start of a file or when it is not
    known. `encoded` holds the payload's JSON of each event where the caller already has it.
    """
    lines: list[bytes] = []
    place = 0
    while place < len(events):
        row: list[int | str] = [events[place].seq]
        end = place if before is None else _gather(row, before, events, place)
        if end > place:
            lines.append(orjson.dumps(row))
        else:
            lines.append(encode_line(events[place], None if encoded is None else encoded[place]))
            end = place + 1
        before = events[end - 1]
        place = end
    lines.append(b"")
    return b"\n".join(lines)


class SealBroken(WireFault):
    """Lines above a seal are not as they were written, though each of them can be read."""


def seal_row(crc: int) -> bytes:
    """The line, with its newline, that seals everything since the seal before."""
    return b"[%d]\n" % crc


class RowReader:
    """Reads the event lines of one log in order. It remembers the newest event, and a checksum.

    `header` is the log's first line, which the first seal covers; without it, a first seal proves
    nothing. `crc` is that of the lines since the newest seal.
    """

    __slots__ = ("_before", "_whole", "crc")

    def __init__(self, header: bytes | None = None) -> None:
        self._before: StoredEvent | None = None
        self._whole = header is not None
        self.crc = 0 if header is None else zlib.crc32(b"\n", zlib.crc32(header))

    def read(self, line: bytes, *, stored: bytes | None = None) -> list[StoredEvent]:
        """The events of the next line, without its newline: one, those of a packed row, or none.

        `stored` is what stands in the log, where that is another text than `line`.

        Raises SealBroken for a seal that does not fit, WireFault for everything else, also when a
        packed row does not follow a delta it could continue.
        """
        try:
            row: object = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise NotJson(f"not JSON: {error}") from None
        if isinstance(row, list):
            cells = cast("list[object]", row)
            if len(cells) == 1:
                self._check(cells[0])
                return []
            events = self._unpack(cells)
        else:
            events = [event_of(row, line)]
        self._before = events[-1]
        self.crc = zlib.crc32(b"\n", zlib.crc32(line if stored is None else stored, self.crc))
        return events

    def _check(self, seal: object) -> None:
        if type(seal) is not int:
            raise WireFault("a seal that is no number")
        if self._whole and seal != self.crc:
            raise SealBroken("the lines above, back to the seal before, are not as written")
        self._whole, self.crc = True, 0

    def _unpack(self, row: list[object]) -> list[StoredEvent]:
        before = self._before
        delta = _delta_of(before)
        if before is None or delta is None:
            raise WireFault("a packed row that follows no streamed delta")
        if len(row) < 3 or len(row) % 2 == 0 or type(row[0]) is not int or row[0] != before.seq + 1:  # noqa: PLR2004
            raise WireFault(f"a packed row that does not go on at seq {before.seq + 1}")
        chunk = cast("assistant.Chunk", before.data)
        turn, step, time, seq = chunk.turn, chunk.step, before.time, before.seq
        events: list[StoredEvent] = []
        for place in range(1, len(row), 2):
            later, piece = row[place], row[place + 1]
            if type(later) is not int or type(piece) is not str or time + later < 0:
                raise WireFault("a packed row that is not [seq, ms, piece, ms, piece, …]")
            seq += 1
            time += later
            data = assistant.Chunk(turn=turn, step=step, chunk=_another(delta, piece))
            events.append(
                StoredEvent(before.type, seq, time, data, before.v, before.owner, before.ignorable)
            )
        return events


def _another(delta: Delta, piece: str) -> Delta:
    match delta:
        case TextDeltaChunk(index=index):
            return TextDeltaChunk(index=index, text=piece)
        case ReasoningDeltaChunk(index=index):
            return ReasoningDeltaChunk(index=index, text=piece)
        case ToolCallDeltaChunk(index=index, id=call_id, name=name):
            return ToolCallDeltaChunk(index=index, id=call_id, name=name, arguments_delta=piece)
