"""Old events are kept packed: the same content at every place, and little for the collector."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import orjson
import pytest

from dsh import catalog as ev
from dsh.catalog import records, registry
from dsh.hooks import CoreSurface
from dsh.session.retained import BATCH, NEWEST, Retained, Snapshot
from dsh.testing import LogWriting
from dsh.wire import StoredEvent, UnknownEvent, decode_payload, encode_line

GOLDEN = Path(__file__).parents[2] / "schema" / "golden"


def any_events(seed: int, count: int) -> list[StoredEvent]:
    """Events of every type in disorder, runs of deltas, strangers, and a clock that jumps."""
    chance = random.Random(seed)
    samples = {
        name: (GOLDEN / f"{name}.v{token.version}.jsonl").read_bytes().splitlines()
        for name, token in registry.DURABLES.items()
    }
    found: list[StoredEvent] = []
    while len(found) < count:
        time = chance.randrange(2_000_000_000_000)
        if chance.random() < 0.4:
            for word in chance.choices(["word ", "é", "🦀", "", '"\n'], k=chance.randrange(1, 40)):
                chunk = records.TextDeltaChunk(index=0, text=word)
                data = ev.assistant.Chunk(turn=1, step=2, chunk=chunk)
                time = max(time + chance.randrange(-3, 30), 0)
                found.append(StoredEvent(ev.assistant.CHUNK.name, len(found), time, data))
            continue
        if chance.random() < 0.1:
            raw = b'{"type":"other/thing","seq":%d,"time":1,"ignorable":true,"data":{ }}'
            unknown = UnknownEvent(raw % len(found), "unknown type")
            found.append(StoredEvent("other/thing", len(found), 1, unknown, ignorable=True))
            continue
        name = chance.choice(sorted(samples))
        token = registry.DURABLES[name]
        sample = chance.choice(samples[name])
        payload = decode_payload(name, orjson.loads(sample), version=token.version, raw=sample)
        op = records.Append() if issubclass(token.payload, CoreSurface) else None
        found.append(
            StoredEvent(
                name, len(found), time, payload, token.version, None, token.ignorable, op, None
            )
        )
    return found


def filled(events: list[StoredEvent]) -> Retained:
    kept = Retained()
    for event in events:
        kept.append(event)
    return kept


@pytest.mark.parametrize("seed", range(4))
def test_every_event_reads_as_it_was_appended(seed: int) -> None:
    events = any_events(seed, 3 * (NEWEST + BATCH) + 7 * seed)
    snapshot = Snapshot(filled(events))
    expected = [encode_line(event) for event in events]
    assert [encode_line(event) for event in snapshot] == expected
    assert [encode_line(event) for event in reversed(snapshot)] == expected[::-1]
    chance = random.Random(seed)
    for _ in range(40):
        place = chance.randrange(-len(events), len(events))
        assert encode_line(snapshot[place]) == expected[place]
        start, stop = sorted(chance.choices(range(len(events)), k=2))
        step = chance.choice([1, 1, 3])
        part = snapshot[start:stop:step]
        assert [encode_line(event) for event in part] == expected[start:stop:step]
    with pytest.raises(IndexError, match=f"no event {len(events)} in a log of {len(events)}"):
        snapshot[len(events)]


@pytest.mark.holds("D12")
def test_nodes_of_the_surface_strangers_and_the_newest_keep_their_object() -> None:
    events = any_events(1, 4 * (NEWEST + BATCH))
    snapshot = Snapshot(filled(events))
    packed = 0
    for place, event in enumerate(events):
        same = snapshot[place] is event
        packed += not same
        if event.surface_op is not None or isinstance(event.data, UnknownEvent):
            assert same, event.type
        if place >= len(events) - NEWEST:
            assert same, "one of the newest"
    assert packed > 1000


def test_a_snapshot_does_not_grow_and_is_read_on_while_events_are_packed() -> None:
    events = any_events(2, 4 * (NEWEST + BATCH))
    kept = filled(events[:NEWEST])
    snapshot = Snapshot(kept)
    reading = iter(snapshot)
    seen = [next(reading) for _ in range(NEWEST // 2)]
    for event in events[NEWEST:]:
        kept.append(event)
    seen += reading
    assert len(snapshot) == NEWEST
    assert [encode_line(event) for event in seen] == [encode_line(one) for one in events[:NEWEST]]


def test_a_long_stream_leaves_next_to_nothing_for_the_collector() -> None:
    log = LogWriting()
    log.session.writer.without_store()
    log.turn_start()
    log.step_start()
    log.chunks(*("word " for _ in range(2 * (NEWEST + BATCH))))
    gc.collect()
    before = len(gc.get_objects())
    log.chunks(*("word " for _ in range(40 * BATCH)))
    gc.collect()
    assert len(gc.get_objects()) - before < BATCH
