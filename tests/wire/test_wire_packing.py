"""Runs of deltas in few bytes: whatever is packed comes back exactly as it was appended."""

from __future__ import annotations

import random
import zlib

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import records
from dsh.wire import (
    RowReader,
    SealBroken,
    StoredEvent,
    WireFault,
    encode_line,
    encode_rows,
    seal_row,
)


def chunk(seq: int, time: int, part: records.StreamChunk, *, step: int = 1) -> StoredEvent:
    return StoredEvent(
        "assistant/chunk", seq, time, ev.assistant.Chunk(turn=1, step=step, chunk=part)
    )


def text(piece: str, index: int = 0) -> records.StreamChunk:
    return records.TextDeltaChunk(index=index, text=piece)


def read(data: bytes) -> list[StoredEvent]:
    reader = RowReader()
    return [event for line in data.split(b"\n")[:-1] for event in reader.read(line)]


def plain(events: list[StoredEvent]) -> list[bytes]:
    """Every event as a line of its own: two events are the same if these are."""
    return [encode_line(event) for event in events]


PIECES = st.text(max_size=6).filter(lambda text: text.isascii() or text.isprintable())
PARTS = st.one_of(
    st.builds(records.TextDeltaChunk, index=st.integers(0, 1), text=PIECES),
    st.builds(records.ReasoningDeltaChunk, index=st.integers(0, 1), text=PIECES),
    st.builds(
        records.ToolCallDeltaChunk,
        index=st.integers(0, 1),
        id=st.sampled_from(("c1", "c2")),
        name=st.sampled_from((None, "bash")),
        arguments_delta=PIECES,
    ),
    st.builds(records.BlockStartChunk, index=st.integers(0, 1), block_type=st.just("text")),
)


@st.composite
def logs(draw: st.DrawFn) -> list[StoredEvent]:
    events: list[StoredEvent] = []
    time = 1_000_000
    for seq in range(draw(st.integers(0, 30))):
        time += draw(st.integers(-5000, 5000))
        if draw(st.integers(0, 9)) == 0:
            events.append(StoredEvent("turn/start", seq, time, ev.turn.Start(turn=1)))
        else:
            step = draw(st.sampled_from((1, 1, 1, 2)))
            events.append(chunk(seq, time, draw(PARTS), step=step))
    return events


@given(logs(), st.lists(st.integers(0, 30), max_size=6))
@settings(max_examples=200, deadline=None)
def test_any_log_in_any_writes_comes_back_exactly(
    events: list[StoredEvent], cuts: list[int]
) -> None:
    data, before, start = b"", None, 0
    for cut in [*sorted(cuts), len(events)]:
        part = events[start:cut]
        data += encode_rows(part, before=before)
        if part:
            before, start = part[-1], cut
    assert plain(read(data)) == plain(events)


def test_a_run_is_one_row_and_keeps_its_token_boundaries() -> None:
    events = [chunk(seq, 100 + 7 * seq, text(piece)) for seq, piece in enumerate("abcde")]
    first, row, end = encode_rows(events).split(b"\n")
    assert end == b""
    assert orjson.loads(first)["data"]["chunk"]["text"] == "a"
    assert orjson.loads(row) == [1, 7, "b", 7, "c", 7, "d", 7, "e"]


def test_another_block_begins_a_line_of_its_own() -> None:
    events = [chunk(0, 0, text("a")), chunk(1, 0, text("b")), chunk(2, 0, text("c", index=1))]
    assert [line[:1] for line in encode_rows(events).split(b"\n")] == [b"{", b"[", b"{", b""]


@pytest.mark.parametrize("per_second", [30, 60, 120, 400])
def test_an_ordinary_stream_costs_at_most_thirty_bytes_a_chunk(per_second: int) -> None:
    # Rows are written every 10 ms or later: at 60 tokens a second each has a row of its own.
    dice = random.Random(7)
    words = (" the", " of", " session", " log", ",", " 10", "\n", " is", " written", " append")
    events = [
        chunk(seq, 1_764_000_000_000 + seq * 1000 // per_second, text(dice.choice(words)))
        for seq in range(100_000, 102_000)
    ]
    data, before, window = b"", None, max(1, per_second // 100)
    for start in range(0, len(events), window):
        part = events[start : start + window]
        data += encode_rows(part, before=before)
        before = part[-1]
    assert len(data) / len(events) <= 30
    assert plain(read(data)) == plain(events)


def test_a_row_is_bounded() -> None:
    events = [chunk(seq, seq, text("x")) for seq in range(10_000)]
    data = encode_rows(events)
    assert max(len(line) for line in data.split(b"\n")) < 100_000
    assert plain(read(data)) == plain(events)


@pytest.mark.parametrize(
    "row",
    [
        b"[]",
        b"[1,0]",
        b'[1,0,"b",1]',
        b'[2,0,"b"]',
        b'[0,0,"b"]',
        b'[1.0,0,"b"]',
        b'[true,0,"b"]',
        b'[1,0.5,"b"]',
        b"[1,0,2]",
        b'[1,-500,"b"]',
        b'[1,null,"b"]',
    ],
)
def test_a_bad_row_is_refused(row: bytes) -> None:
    reader = RowReader()
    reader.read(encode_line(chunk(0, 100, text("a"))))
    with pytest.raises(WireFault, match="packed row"):
        reader.read(row)


def test_a_row_needs_a_delta_above_it() -> None:
    with pytest.raises(WireFault, match="follows no streamed delta"):
        RowReader().read(b'[0,0,"a"]')
    reader = RowReader()
    reader.read(b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}')
    with pytest.raises(WireFault, match="follows no streamed delta"):
        reader.read(b'[1,0,"a"]')


def test_a_seal_proves_what_stands_above_it() -> None:
    events = [chunk(seq, 100 + seq, text("a")) for seq in range(4)]
    head = b'{"type":"session"}'
    lines = [*encode_rows(events[:3]).split(b"\n")[:-1]]
    crc = zlib.crc32(b"\n".join((head, *lines, b"")))
    seal = seal_row(crc).rstrip(b"\n")
    reader = RowReader(head)
    assert sum(len(reader.read(line)) for line in lines) == 3
    assert (reader.crc, reader.read(seal), reader.crc) == (crc, [], 0)
    (after,) = reader.read(b'[3,1,"a"]')
    assert encode_line(after) == encode_line(events[3]), "a packed row reaches over a seal"
    with pytest.raises(SealBroken, match="lines above"):
        reader.read(seal)
    for harmed in (head[:-1] + b" }", head):
        other = RowReader(harmed)
        for line in lines:
            other.read(line.replace(b'"a"', b'"b"') if harmed == head else line)
        with pytest.raises(SealBroken):
            other.read(seal)
    with pytest.raises(WireFault, match="no number"):
        RowReader(head).read(b'["1"]')


def test_a_first_seal_proves_nothing_to_a_reader_without_the_header() -> None:
    reader = RowReader()
    reader.read(encode_line(chunk(0, 100, text("a"))))
    assert reader.read(b"[7]") == []
    reader.read(b'[1,0,"b"]')
    with pytest.raises(SealBroken):
        reader.read(b"[7]")
