"""A database whose disk fails, hangs or loses the file: it is told, and promises are proved."""

from __future__ import annotations

import threading
from errno import EIO
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh.errors import SessionBusy, StorageFailed
from dsh.testing import LogWriting
from dsh.testing.below_sqlite import below_sqlite, out_of_reach
from dsh.testing.faulty_disk import FaultyDisk
from dsh.testing.logs import header
from dsh.wire import encode_line
from dsh_plugins.session_sqlite import SqliteStore
from dsh_plugins.session_sqlite.database import LOG_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from dsh.wire import StoredEvent

NO_SQLITE = out_of_reach()
needs_sqlite = pytest.mark.skipif(NO_SQLITE is not None, reason=str(NO_SQLITE))


def turns(*prompts: str) -> tuple[StoredEvent, ...]:
    log = LogWriting()
    for prompt in prompts:
        log.whole_turn(prompt, "a", "b", "c")
    return tuple(log.session.events)


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def made(path: Path) -> SqliteStore:
    return SqliteStore(path, now_ms=lambda: 5)


def drop(path: Path) -> None:
    """As somebody does who deletes a database."""
    for end in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{end}").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Generator[FaultyDisk]:
    """What SQLite stands on; sound, until a test says what is to fail."""
    found = FaultyDisk(0, EIO)
    found.healed = True
    with below_sqlite(tmp_path, found.asked):
        yield found


@needs_sqlite
async def test_after_a_failed_sync_the_log_is_written_again(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    store = SqliteStore(tmp_path / "sessions.db", now_ms=lambda: 5, disk=disk)
    events = turns("one", "two")
    handle = await store.create(header())
    await handle.append(events)
    disk.only, disk.healed = "sync wal", False
    with pytest.raises(StorageFailed, match=r"sessions\.db: sync failed: disk I/O error"):
        await handle.flush()
    disk.healed = True
    disk.calls.clear()
    await handle.flush()
    assert disk.calls.index("write") < disk.calls.index("sync") < disk.calls.index("sync wal")
    assert "write db" not in disk.calls, "its place would be ahead of the log"
    disk.calls.clear()
    await handle.flush()
    assert disk.calls == []
    await handle.aclose()
    assert lines((await store.read("s")).events) == lines(events)
    await store.aclose()


@needs_sqlite
async def test_a_long_log_is_written_to_its_place_at_a_barrier_and_a_failure_there_is_told(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    store = made(tmp_path / "sessions.db")
    events = turns(*("x" * LOG_BYTES for _ in range(2)))
    handle = await store.create(header())
    disk.calls.clear()
    await handle.append(events)
    await handle.append(())
    assert "write db" not in disk.calls[disk.calls.index("open wal") :], (
        "an append waits for no sync"
    )
    disk.only, disk.healed = "sync db", False
    with pytest.raises(StorageFailed, match="sync failed"):
        await handle.flush()
    disk.healed = True
    disk.calls.clear()
    await handle.flush()
    assert "sync db" in disk.calls
    disk.calls.clear()
    await handle.append(turns(*("x" * LOG_BYTES for _ in range(2)), "more")[len(events) :])
    await handle.flush()
    assert "write db" not in disk.calls, "the log is short again"
    await handle.aclose()
    await store.aclose()
    assert len((await store.read("s")).events) == handle.next_seq


@needs_sqlite
async def test_a_disk_that_hangs_holds_up_neither_the_loop_nor_readers(tmp_path: Path) -> None:
    goes_on, hangs = threading.Event(), trio.Event()
    token, loop = trio.lowlevel.current_trio_token(), threading.get_ident()
    hanging = False

    def asked(call: str) -> int:
        assert threading.get_ident() != loop
        if hanging and call == "sync wal":
            token.run_sync_soon(hangs.set)
            assert goes_on.wait(60)
        return 0

    with below_sqlite(tmp_path, asked):
        store = made(tmp_path / "sessions.db")
        events = turns("one")
        handle = await store.create(header())
        other = await store.create(header("other"))
        await handle.append(events)
        hanging = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle.flush)
            await hangs.wait()
            assert lines((await store.read("s")).events) == lines(events)
            assert [row.id for row in await store.list()] == ["s"]
            with trio.CancelScope() as given_up:
                async with trio.open_nursery() as waiting:
                    waiting.start_soon(other.append, events)
                    await wait_all_tasks_blocked()
                    given_up.cancel()
            assert other.next_seq == 0, "a write that did not begin can be given up"
            goes_on.set()
        await other.append(events)
        await other.aclose()
        await handle.aclose()
        assert len((await store.read("other")).events) == len(events)
        await store.aclose()


async def test_a_deleted_database_is_noticed_before_writing(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = made(path)
    events = turns("one", "two")
    handle = await store.create(header())
    await handle.append(events[:3])
    await handle.flush()
    await handle.append(events[3:6])
    drop(path)
    with pytest.raises(SessionBusy, match=r"sessions\.db: session 's' was deleted"):
        await handle.append(events[6:])
    with pytest.raises(SessionBusy, match="was deleted"):
        await handle.flush()
    await handle.aclose()
    await store.aclose()


async def test_another_database_under_the_name_gets_nothing(tmp_path: Path) -> None:
    path, other = tmp_path / "sessions.db", tmp_path / "other.db"
    events = turns("one", "two")
    store, theirs = made(path), made(other)
    handle = await store.create(header())
    await handle.append(events[:5])
    their_handle = await theirs.create(header("theirs"))
    await their_handle.append(events[:5])
    await their_handle.aclose()
    await theirs.aclose()
    drop(path)
    other.rename(path)
    with pytest.raises(SessionBusy, match="was deleted"):
        await handle.append(events[5:])
    await handle.aclose()
    await store.aclose()
    assert len((await store.read("theirs")).events) == 5
