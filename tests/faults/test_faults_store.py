"""A house whose disk fails: no request and no tool body outruns the log, and it goes on after."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import asynccontextmanager, contextmanager, nullcontext
from errno import EIO, ENOSPC
from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from dsh import catalog as ev
from dsh import define_tool, plugin
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import SessionCorrupt, SessionError, StorageFailed
from dsh.hooks.live import ToolRun  # noqa: TC001  the schema of a tool reads its annotations
from dsh.seams.disk import Disk
from dsh.session import verify
from dsh.testing import LogWriting, call, calls, open_test_house, says
from dsh.testing.below_sqlite import below_sqlite, out_of_reach
from dsh.testing.faulty_disk import FaultyDisk, as_stranger, some_of_each_kind
from dsh.testing.logs import header
from dsh.wire import encode_line
from dsh_plugins.checkpoint import checkpoint
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
    from pathlib import Path

    from dsh import Context
    from dsh.hooks import StreamNext
    from dsh.kernel import Plugin
    from dsh.seams.persistence import SessionPersistence
    from dsh.session import Session
    from dsh.testing import TestHouse
    from dsh.wire import StoredEvent

NO_SQLITE = out_of_reach()
#: At every call of SQLite, in place of some of each kind.
EVERY_CALL = "DSH_FAULTS" in os.environ  # noqa: TID251
NEEDS_SQLITE = pytest.mark.skipif(NO_SQLITE is not None, reason=str(NO_SQLITE))


@frozen
class NoArgs:
    """Nothing to look for."""


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


class Watched:
    """Looks at the disk, as a stranger, whenever something leaves the house."""

    def __init__(self, reader: SessionPersistence, disk: FaultyDisk) -> None:
        self.disk = disk
        self.reader = reader
        self.left: list[str] = []

    async def leaves(self, what: str, session: Session | None) -> None:
        assert session is not None
        calls = self.disk.calls
        with as_stranger():
            log = await self.reader.read("s")
        assert lines(log.events) == lines(session.events), f"{what} outran the log"
        newest = max(i for i, name in enumerate(calls) if name in ("write", "write wal"))
        assert {"sync", "sync wal"} & set(calls[newest:]), f"{what} left before the sync"
        self.left.append(what)


def watching(watched: Watched, houses: Sequence[TestHouse]) -> Plugin:
    """A plugin that stands where requests leave, behind the checkpoint."""

    @plugin(name="watching")
    async def apply(ctx: Context) -> None:
        @ctx.on(ev.llm.STREAM)
        @asynccontextmanager
        async def look(
            _stream: ev.llm.Stream, call_next: StreamNext[records.StreamChunk]
        ) -> AsyncGenerator[AsyncIterator[records.StreamChunk], None]:
            await watched.leaves("request", houses[0].sessions.get("s"))
            async with call_next() as chunks:
                yield chunks

    return apply


def store_of(backend: str, root: Path, disk: Disk) -> SessionPersistence:
    if backend == "jsonl":
        return JsonlStore(root, now_ms=lambda: 5, disk=disk)
    return SqliteStore(root / "sessions.db", now_ms=lambda: 5, disk=disk)


async def a_turn(backend: str, root: Path, disk: FaultyDisk) -> list[str]:
    """A turn with a call, on this disk; whatever fails is asked for once more, healed.

    What left the house, in order, and "refused" where the fault was told.
    """
    watched = Watched(store_of(backend, root, Disk()), disk)
    houses: list[TestHouse] = []

    async def execute(_args: NoArgs, _run: ToolRun) -> str:
        await watched.leaves("body", houses[0].sessions.get("s"))
        return "looked"

    look = define_tool(name="look", description="", args=NoArgs, output=str, execute=execute)
    store = store_of(backend, root, disk)
    turn = [calls(call("look")), says("done")]
    async with open_test_house(
        replies=[*turn, *turn],
        tools=[look],
        store=store,
        plugins=[checkpoint, watching(watched, houses)],
    ) as house:
        houses.append(house)
        try:
            handle = await house.agent("s")
        except (StorageFailed, SessionCorrupt):
            disk.healed = True
            assert not house.model.requests
            watched.left.append("refused")
            handle = await house.agent("s")
        refused = ""
        try:
            await handle.agent.ask(user_message("go"))
        except StorageFailed as error:
            refused = error.message
        if refused:
            assert str(root) in refused
            assert backend == "sqlite" or os.strerror(disk.code) in refused
            disk.healed = True
            watched.left.append("refused")
            outcome = await handle.agent.ask(user_message("go on"))
            assert outcome.reason == records.CompletedTurnEnd()
        expected = lines(house.session(handle).events)
        try:
            await handle.aclose()
        except StorageFailed:
            disk.healed = True
    disk.healed = True
    if isinstance(store, SqliteStore):
        await store.aclose()
    log = await store_of(backend, root, Disk()).read("s")
    assert verify(log) == ()
    assert lines(log.events)[: len(expected)] == expected
    return watched.left


@pytest.mark.parametrize("backend", ["jsonl", pytest.param("sqlite", marks=NEEDS_SQLITE)])
async def test_a_fault_at_any_call_stops_the_request_and_the_body_and_heals(
    tmp_path: Path, backend: str
) -> None:
    async def turn(folder: str, disk: FaultyDisk) -> list[str]:
        root = tmp_path / folder
        with below_sqlite(root, disk.asked) if backend == "sqlite" else nullcontext():
            return await a_turn(backend, root, disk)

    sound = FaultyDisk(10**9, EIO)
    assert await turn("sound", sound) == ["request", "body", "request"]
    assert {"open", "write", "sync", "stat", "link", "unlink", "lock"} <= set(sound.calls)
    every = EVERY_CALL or backend == "jsonl"
    places = range(len(sound.calls)) if every else some_of_each_kind(sound.calls)
    stopped: set[tuple[str, ...]] = set()
    for at in places:
        left = await turn(str(at), FaultyDisk(at, (EIO, ENOSPC)[at % 2]))
        stopped.add(tuple(left))
    assert any("refused" in left for left in stopped), "no fault ever stopped anything"
    sys.stdout.write(
        f"{backend}: a turn of {len(sound.calls)} calls, {len(places)} faults, "
        f"{len(stopped)} outcomes, nothing outran the log\n"
    )


@contextmanager
def no_file_larger_than(size: int) -> Generator[None, None, None]:
    """A disk that is full there: the system takes a part of a write, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def turns(count: int) -> tuple[StoredEvent, ...]:
    log = LogWriting()
    for number in range(count):
        log.whole_turn(f"turn {number} " + "x" * 700, "a", "b", "c")
    return tuple(log.session.events)


async def one_full_disk(store: SessionPersistence, size: int) -> str:
    """Write as far as the disk goes, heal it, write the rest. How far it went, in words."""
    events, failed = turns(6), ""
    handle = await store.create(header())
    acknowledged = written = 0
    with no_file_larger_than(size):
        while written < len(events) and not failed:
            try:
                await handle.append(events[written : written + 7])
                written = handle.next_seq
                await handle.flush()
                acknowledged = written
            except StorageFailed as error:
                failed = error.message
                assert handle.next_seq == written, "a refused batch is refused as a whole"
    try:
        found = (await store.read("s")).events
    except SessionError:
        found = ()
    assert lines(found) == lines(events)[: len(found)]
    assert len(found) >= acknowledged
    await handle.append(events[handle.next_seq :])
    await handle.aclose()
    log = await store.read("s")
    assert lines(log.events) == lines(events)
    assert verify(log) == ()
    return failed


@pytest.mark.parametrize("backend", ["jsonl", "sqlite"])
async def test_a_disk_that_is_full_at_any_size_is_told_and_heals(
    tmp_path: Path, backend: str
) -> None:
    told: set[bool] = set()
    # To the size of the whole log: the database's is that of its write-ahead log.
    for size in range(0, 400_000, 9_973) if backend == "sqlite" else range(0, 12_000, 307):
        root = tmp_path / str(size)
        if backend == "jsonl":
            told.add(bool(await one_full_disk(JsonlStore(root, now_ms=lambda: 5), size)))
            continue
        store = SqliteStore(root / "sessions.db", now_ms=lambda: 5)
        told.add(bool(await one_full_disk(store, size)))
        await store.aclose()
    assert told == {True, False}
