"""One contract for every store of session logs: in memory, as JSON lines, in a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.catalog import records
from dsh.errors import (
    InvalidAppend,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    SessionUnreadable,
)
from dsh.seams.persistence import SessionPersistence
from dsh.session import ProjectionSet, Session, fork_log, interrupted_closers, verify
from dsh.session.seeds import seeded
from dsh.testing import LogWriting, MemoryStore
from dsh.testing.logs import header
from dsh.wire import BLOB_BYTES, StoredEvent, UnknownEvent, encode_line, encode_payload
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

Make = Callable[[], SessionPersistence]


@pytest.fixture(params=["memory", "jsonl", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes stores that look at the same disk: the next one is what a restart would see."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "state" / "sessions.db", now_ms=lambda: 5)
    return lambda: JsonlStore(tmp_path / "sessions", now_ms=lambda: 5)


def lines(events: tuple[StoredEvent, ...]) -> list[bytes]:
    return [encode_line(event) for event in events]


def written(*turns: str) -> tuple[StoredEvent, ...]:
    log = LogWriting()
    for prompt in turns:
        log.whole_turn(prompt, "a", "b", "c", calls=(f"c-{prompt}",))
    return tuple(log.session.events)


async def test_what_was_appended_is_read_back_by_everyone(make: Make) -> None:
    store, events = make(), written("one", "two")
    handle = await store.create(header())
    assert (handle.header, handle.next_seq, await handle.read_log()) == (header(), 0, ())
    await handle.append(events[:3])
    await handle.append(events[3:4])
    await handle.append(events[4:])
    assert handle.next_seq == len(events)
    assert lines(await handle.read_log()) == lines(events)
    log = await make().read("s")
    assert (log.header, lines(log.events), log.torn) == (header(), lines(events), None)
    assert lines((await store.read("s", from_seq=5)).events) == lines(events[5:])
    assert verify(log) == ()
    await handle.flush()
    await handle.aclose()
    again = await make().open("s", "write")
    assert again.header == header()
    assert again.next_seq == len(events)
    assert lines(await again.read_log()) == lines(events)
    await again.aclose()


async def test_given_payloads_are_written_as_they_are(make: Make) -> None:
    store, events = make(), written("one")
    handle = await store.create(header())
    encoded = [encode_payload(e.data) for e in events if not isinstance(e.data, UnknownEvent)]
    await handle.append(events, encoded=encoded)
    assert lines((await store.read("s")).events) == lines(events)
    await handle.aclose()


async def test_a_session_that_logged_nothing_leaves_nothing(make: Make) -> None:
    store = make()
    handle = await store.create(header())
    await handle.append(())
    await handle.flush()
    await handle.aclose()
    assert await store.list() == ()
    with pytest.raises(SessionNotFound, match="'s'"):
        await store.read("s")
    with pytest.raises(SessionNotFound):
        await store.open("s", "write")
    with pytest.raises(SessionNotFound):
        await store.remove("s")
    await (await store.create(header())).aclose()


@pytest.mark.holds("A20")
async def test_a_stored_id_is_not_created_again(make: Make) -> None:
    store = make()
    handle = await store.create(header())
    await handle.append(written("one"))
    await handle.aclose()
    with pytest.raises(SessionExists, match="'s'"):
        await make().create(header())
    await (await make().open("s", "write")).aclose()


@pytest.mark.holds("A20", "A22", "case-054")
async def test_one_writer_at_a_time_and_readers_always(make: Make) -> None:
    store = make()
    handle = await store.create(header())
    with pytest.raises(SessionBusy, match="'s'"):
        await make().create(header())
    await handle.append(written("one"))
    for other in (store, make()):
        with pytest.raises(SessionBusy, match="this process"):
            await other.open("s", "write")
        with pytest.raises(SessionBusy):
            await other.remove("s")
        assert len((await other.read("s")).events) == handle.next_seq
    await handle.aclose()
    second = await store.open("s", "write")
    await handle.aclose()
    with pytest.raises(SessionBusy):
        await make().open("s", "write")
    await second.aclose()
    await make().remove("s")
    assert await store.list() == ()


@pytest.mark.parametrize("start", [1, 5])
async def test_a_gap_is_refused_before_it_is_written(make: Make, start: int) -> None:
    store, events = make(), written("one")
    handle = await store.create(header())
    with pytest.raises(InvalidAppend, match=f"seq {start} where 0 is due"):
        await handle.append(events[start:])
    await handle.append(events[:2])
    for bad in ([events[1]], [events[2], events[2]], [events[2], events[4]]):
        with pytest.raises(InvalidAppend, match="is due"):
            await handle.append(bad)
    await handle.append(events[2:])
    assert lines((await store.read("s")).events) == lines(events)
    await handle.aclose()


@pytest.mark.holds("case-057")
async def test_what_cannot_be_written_changes_nothing(make: Make) -> None:
    store, events = make(), written("one")
    handle = await store.create(header())
    await handle.append(events[:2])
    bad = evolve(events[2], data=ev.turn.Start(turn="x"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidAppend, match="turn"):
        await handle.append([bad])
    await handle.append(events[2:])
    assert lines((await store.read("s")).events) == lines(events)
    await handle.aclose()


async def test_a_closed_handle_writes_nothing(make: Make) -> None:
    store = make()
    handle = await store.create(header())
    await handle.append(written("one"))
    await handle.aclose()
    await handle.aclose()
    with pytest.raises(SessionClosed):
        await handle.append(written("one", "two")[handle.next_seq :])


async def test_unknown_events_are_shown_and_stop_only_a_required_resume(make: Make) -> None:
    raw = b'{"type":"acme.x/y","seq":0,"time":1,"owner":"acme@1","ignorable":true,"data":[1, 2]}'
    for session_id, line in (("a", raw), ("b", raw.replace(b',"ignorable":true', b""))):
        store = make()
        handle = await store.create(header(session_id))
        ignorable = b"ignorable" in line
        unknown = UnknownEvent(line, "unknown type")
        await handle.append(
            [StoredEvent("acme.x/y", 0, 1, unknown, owner="acme@1", ignorable=ignorable)]
        )
        await handle.aclose()
        (shown,) = (await make().read(session_id)).events
        assert encode_line(shown) == line
        again = await make().open(session_id, "write")
        if ignorable:
            assert len(await again.read_log()) == 1
        else:
            with pytest.raises(SessionUnreadable, match="acme@1"):
                await again.read_log()
        await again.aclose()


async def test_listing_shows_headers_newest_first(make: Make) -> None:
    store = make()
    for session_id in ("a", "b", "é/..%"):
        handle = await store.create(header(session_id, cwd=f"/work/{session_id[0]}"))
        await handle.append(written("one"))
        await handle.flush()
        await handle.aclose()
    rows = {row.id: row for row in await make().list()}
    assert set(rows) == {"a", "b", "é/..%"}
    assert all(row.problem is None and row.bytes > 500 for row in rows.values())
    first = rows["a"]
    assert first.header == header("a", cwd="/work/a")
    handle = await store.open("a", "write")
    await handle.append(written("one", "two")[handle.next_seq :])
    await handle.aclose()
    (changed,) = (row for row in await store.list() if row.id == "a")
    assert changed.revision != first.revision
    assert changed.bytes > first.bytes


@pytest.mark.holds("A20", "A21", "A23", "A24", "RS17")
async def test_a_crashed_session_is_repaired_resumed_and_goes_on(make: Make) -> None:
    """The whole road of the agent layer, without an agent."""
    store = make()
    log = LogWriting()
    log.turn_start()
    handle = await store.create(log.session.header)
    async with trio.open_nursery() as nursery:
        await log.session.writer.drain_into(handle)
        log.session.writer.attach(handle)
        nursery.start_soon(log.session.writer.run)
        log.step_start()
        log.user()
        log.chunks("a", "b", "c")
        log.reply(calls=("c1",))
        log.call("c1")
        await log.session.writer.barrier()
        nursery.cancel_scope.cancel()
    await handle.aclose()

    resumed = await make().open("s", "write")
    events = await resumed.read_log()
    closers = interrupted_closers(events)
    await resumed.append(closers)
    seed = (*events, *closers)
    session = seeded(
        resumed.header,
        seed=seed,
        stored=resumed.next_seq,
        now_ms=lambda: 7,
        units=ProjectionSet(),
    )
    await session.writer.drain_into(resumed)
    session.writer.attach(resumed)
    more = LogWriting(session)
    more.turn = 1
    more.whole_turn("again", "x", "y", "z")
    await session.writer.aclose()
    stored = await make().read("s")
    assert lines(stored.events) == lines(tuple(session.events))
    assert verify(stored) == ()
    assert [m.id for m in session.derive_messages()][2].startswith("repair:outcome-unknown:c1")
    await fork_goes_on(make(), session)


async def fork_goes_on(store: SessionPersistence, parent: Session) -> None:
    """A seed from elsewhere is stored whole under the child's id."""
    child = evolve(header("child"), parent_session=parent.id, seed_length=parent.next_seq)
    session = seeded(child, seed=parent.events, stored=0, now_ms=lambda: 8, units=ProjectionSet())
    handle = await store.create(child)
    await session.writer.drain_into(handle)
    session.writer.attach(handle)
    await session.writer.aclose()
    stored = await store.read("child")
    assert stored.events[-1].data == ev.session.EndSeed(inherited=True)
    assert lines(stored.events)[:-1] == lines(tuple(parent.events))
    assert isinstance(stored.events[0].data, ev.turn.Start)
    assert isinstance(stored.header, records.SessionHeader)


async def test_large_results_come_back_exactly_and_belong_to_their_session(make: Make) -> None:
    """Of any size, from any place, copied with a fork, gone with their session."""
    log = LogWriting()
    log.whole_turn(calls=("c1", "c2"), result="é\n" * BLOB_BYTES)
    log.whole_turn("again")
    events = tuple(log.session.events)
    store = make()
    handle = await store.create(header())
    await handle.append(events[:5])
    await handle.append(events[5:])
    await handle.flush()
    assert lines(await handle.read_log()) == lines(events)
    await handle.aclose()
    fork = await fork_log(store, await make().read("s"), child_id="child", now_ms=1)
    await store.remove("s")
    kept = await make().read("child")
    assert lines(kept.events) == lines(fork.events(1))
    assert verify(kept) == ()
    for seq in (4, 6, 9):
        assert lines((await make().read("child", from_seq=seq)).events) == lines(kept.events[seq:])
    handle = await make().open("child", "write")
    assert lines(await handle.read_log()) == lines(kept.events)
    await handle.aclose()
