"""Faults at every call to the disk: told, healed, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import threading
import time
from errno import EACCES, EIO, ENOSPC
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from dsh.errors import SessionBusy, StorageFailed
from dsh.seams.disk import Disk
from dsh.testing import LogWriting
from dsh.testing.faulty_disk import FaultyDisk
from dsh.testing.logs import header
from dsh.wire import StoredEvent, encode_line
from dsh_plugins.session_jsonl import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path


def three_batches() -> tuple[tuple[StoredEvent, ...], list[tuple[int, int]]]:
    log = LogWriting()
    for _ in range(3):
        log.whole_turn("hi", "a", "b", "c")
    events = tuple(log.session.events)
    step = len(events) // 3
    return events, [(0, step), (step, 2 * step), (2 * step, len(events))]


def log_of(root: Path) -> Path:
    return next(root.rglob("session.jsonl"))


def drafts_of(root: Path) -> list[Path]:
    return list(root.rglob("*.tmp"))


def lines(events: tuple[StoredEvent, ...]) -> list[bytes]:
    return [encode_line(event) for event in events]


async def test_a_disk_that_stays_full_keeps_the_log_as_it_was(tmp_path: Path) -> None:
    disk = FaultyDisk(10**9, ENOSPC)
    store = JsonlStore(tmp_path, now_ms=lambda: 5, disk=disk)
    events, batches = three_batches()
    handle = await store.create(header())
    await handle.append(events[: batches[0][1]])
    path = log_of(tmp_path)
    before = path.read_bytes()
    disk.at = len(disk.calls) + 2  # its stat and half of the rows still succeed
    with pytest.raises(StorageFailed, match="No space left on device") as refused:
        await handle.append(events[batches[1][0] :])
    assert str(path) in refused.value.message
    log = await JsonlStore(tmp_path, now_ms=lambda: 5).read("s")
    assert lines(log.events)[: batches[0][1]] == lines(events)[: batches[0][1]]
    disk.healed = True
    await handle.append(events[batches[1][0] :])
    await handle.aclose()
    assert path.read_bytes().startswith(before)
    assert lines((await store.read("s")).events) == lines(events)


class FailingSync(FaultyDisk):
    """A disk that writes, and cannot sync until it is healed."""

    @override
    def sync(self, fd: int) -> None:
        if self.healed:
            return super().sync(fd)
        raise OSError(EIO, os.strerror(EIO))


async def test_after_a_failed_sync_the_rows_are_written_again(tmp_path: Path) -> None:
    disk = FailingSync(10**9, EIO)
    disk.healed = True
    store = JsonlStore(tmp_path, now_ms=lambda: 5, disk=disk)
    events, batches = three_batches()
    handle = await store.create(header())
    await handle.append(events[: batches[0][1]])
    await handle.append(events[batches[1][0] :])
    disk.healed = False
    with pytest.raises(StorageFailed, match="sync failed"):
        await handle.flush()
    disk.healed, disk.calls = True, []
    await handle.flush()
    assert "write" in disk.calls
    assert disk.calls[-1] == "sync"
    disk.calls = []
    await handle.flush()
    assert disk.calls == []
    await handle.aclose()
    assert lines((await store.read("s")).events) == lines(events)


async def test_a_deleted_log_is_noticed_before_writing(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, now_ms=lambda: 5)
    events, batches = three_batches()
    handle = await store.create(header())
    await handle.append(events[: batches[0][1]])
    log_of(tmp_path).unlink()
    with pytest.raises(SessionBusy, match="was deleted"):
        await handle.append(events[batches[1][0] :])
    await handle.aclose()


async def saved_file(root: Path) -> Path:
    handle = await JsonlStore(root, now_ms=lambda: 5).create(header())
    await handle.append(three_batches()[0])
    await handle.aclose()
    return log_of(root)


async def test_a_root_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    log = await saved_file(tmp_path)
    store = JsonlStore(log / "sessions", now_ms=lambda: 5)
    with pytest.raises(StorageFailed, match=r"session-jsonl\.root"):
        await store.create(header())


class Slow(Disk):
    """A disk on the other side of a network; notes in which thread each write happened."""

    def __init__(self) -> None:
        self.seconds = 0.02
        self.threads: list[str] = []

    @override
    def write(self, fd: int, data: memoryview, at: int) -> int:
        self.threads.append(threading.current_thread().name)
        time.sleep(self.seconds)  # the disk is slow, the test waits for nothing
        return super().write(fd, data, at)


async def test_a_slow_disk_holds_up_a_worker_and_not_the_loop(tmp_path: Path) -> None:
    disk = Slow()
    store = JsonlStore(tmp_path, now_ms=lambda: 5, disk=disk)
    events, batches = three_batches()
    handle = await store.create(header())
    await handle.append(events[:1])
    disk.threads = []
    for seq in range(1, 5):
        if seq == 4:
            disk.seconds = 0.0
        await handle.append(events[seq : seq + 1])
    loop = threading.current_thread().name
    assert [name == loop for name in disk.threads] == [True, False, False, False]
    disk.threads = []
    await handle.append(events[5 : batches[2][1]])
    assert disk.threads == [loop], "a disk that is quick again is written to at once"
    await handle.aclose()
    assert lines((await store.read("s")).events) == lines(events)


class Forbidden(Disk):
    """A root that may be read and not written, as a mounted archive or another user's folder."""

    @override
    def open(self, path: Path, flags: int) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise OSError(EACCES, os.strerror(EACCES), str(path))
        return super().open(path, flags)


async def test_what_may_only_be_read_is_read_and_the_rest_is_told(tmp_path: Path) -> None:
    path = await saved_file(tmp_path)
    before = path.read_bytes()
    store = JsonlStore(tmp_path, now_ms=lambda: 5, disk=Forbidden())
    for attempt in (store.open("s", "write"), store.create(header("new")), store.remove("s")):
        with pytest.raises(StorageFailed, match="Permission denied") as refused:
            await attempt
        assert "session-jsonl.root" in refused.value.message
    assert lines((await store.read("s")).events) == lines(three_batches()[0])
    assert [row.id for row in await store.list()] == ["s"]
    assert path.read_bytes() == before
