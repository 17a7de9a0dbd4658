"""Both stores on odd disks: without links, without locks, late, with a clock that steps back."""

from __future__ import annotations

from errno import ENOTSUP, EPERM
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen
from typing_extensions import override

from dsh.errors import SessionBusy
from dsh.seams.disk import Disk
from dsh.session import verify
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh.wire import StoredEvent, encode_line
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dsh.seams.persistence import SessionPersistence


@frozen
class Place:
    """Where a kind of store keeps its sessions and its locks."""

    backend: str
    root: Path
    locks: Path

    def on(self, disk: Disk) -> SessionPersistence:
        if self.backend == "jsonl":
            return JsonlStore(self.root, now_ms=lambda: 5, disk=disk)
        return SqliteStore(self.root / "sessions.db", now_ms=lambda: 5, disk=disk)


@pytest.fixture(params=["jsonl", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    locks = ".locks" if request.param == "jsonl" else "sessions.db-locks"
    return Place(str(request.param), tmp_path, tmp_path / locks)


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def two_turns() -> tuple[StoredEvent, ...]:
    log = LogWriting()
    for _ in range(2):
        log.whole_turn("hi", "a", "b", "c")
    return tuple(log.session.events)


class NoLinks(Disk):
    """A file system without hard links."""

    @override
    def link(self, source: Path, target: Path) -> None:
        raise OSError(EPERM, "Operation not permitted")


async def test_without_hard_links_the_file_is_renamed_into_place(place: Place) -> None:
    store, events = place.on(NoLinks()), two_turns()
    handle = await store.create(header())
    await handle.append(events)
    await handle.aclose()
    log = await place.on(Disk()).read("s")
    assert lines(log.events) == lines(events)
    assert verify(log) == ()
    assert [path for path in place.root.rglob("*.tmp*") if path.is_file()] == []


class NoLocks(Disk):
    """A file system without locks."""

    @override
    def lock(self, fd: int) -> None:
        raise OSError(ENOTSUP, "Operation not supported")


@pytest.mark.holds("case-054")
async def test_without_locks_a_foreign_append_is_noticed_before_writing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    events = two_turns()
    one = await place.on(NoLocks()).create(header())
    await one.append(events[:5])
    assert "has no locks" in caplog.text
    two = await place.on(NoLocks()).open("s", "write")
    await two.append(events[5:9])
    with pytest.raises(SessionBusy, match="somebody else changed it"):
        await one.append(events[5:])
    assert lines((await place.on(Disk()).read("s")).events) == lines(events[:9])
    await two.append(events[9:])
    await two.aclose()
    await one.aclose()
    assert lines((await place.on(Disk()).read("s")).events) == lines(events)


class CancelsWhileLocking(Disk):
    """Cancels whoever waits for the store, while the store takes the lock in its thread."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self.scope = scope

    @override
    def lock(self, fd: int) -> None:
        super().lock(fd)
        trio.from_thread.run_sync(self.scope.cancel)


@pytest.mark.holds("A20", "A21", "M18")
async def test_a_handle_that_arrives_after_a_cancellation_is_given_back(place: Place) -> None:
    handle = await place.on(Disk()).create(header("old"))
    await handle.append(two_turns())
    await handle.aclose()
    for act in ("create", "open"):
        with trio.CancelScope() as scope:
            late = place.on(CancelsWhileLocking(scope))
            if act == "create":
                await late.create(header("new"))
            else:
                await late.open("old", "write")
            pytest.fail("the cancellation was lost")
        assert scope.cancelled_caught
    assert not list(place.locks.iterdir())
    await (await place.on(Disk()).create(header("new"))).aclose()
    await (await place.on(Disk()).open("old", "write")).aclose()


@pytest.mark.holds("case-055")
async def test_a_clock_that_steps_back_is_no_damage(place: Place) -> None:
    times = iter([1000, 2000, 500, 400, 300, 0, 0, 0])
    log = LogWriting(now_ms=lambda: next(times))
    log.turn_start()
    log.step_start()
    log.chunks("a", "b", "c")
    store = place.on(Disk())
    handle = await store.create(header())
    await handle.append(log.session.events)
    await handle.aclose()
    read = await store.read("s")
    assert [event.time for event in read.events] == [1000, 2000, 500, 400, 300]
    assert [event.seq for event in read.events] == [0, 1, 2, 3, 4]
    assert len(await store.list()) == 1
