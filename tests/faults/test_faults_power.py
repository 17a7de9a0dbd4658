"""The power fails after a promise: what was acknowledged is on the device, whatever failed before.

Both stores, and syncs that fail on the way: what a failed sync dropped, a later one does not bring.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from errno import EIO
from typing import TYPE_CHECKING, Final

import pytest

from dsh.errors import StorageFailed
from dsh.seams.disk import Disk
from dsh.testing import LogWriting
from dsh.testing.below_sqlite import below_sqlite, out_of_reach
from dsh.testing.logs import header
from dsh.testing.losing_disk import LosingDisk
from dsh.wire import StoredEvent, encode_line
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dsh.seams.persistence import SessionPersistence

NO_SQLITE: Final = out_of_reach()
NEEDS_SQLITE: Final = pytest.mark.skipif(NO_SQLITE is not None, reason=str(NO_SQLITE))


def turns(count: int) -> tuple[StoredEvent, ...]:
    log = LogWriting()
    for number in range(count):
        log.whole_turn(f"turn {number}", "a", "b", "c")
    return tuple(log.session.events)


EVENTS: Final = turns(4)


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def store_of(backend: str, root: Path, disk: Disk) -> SessionPersistence:
    if backend == "jsonl":
        return JsonlStore(root / "sessions", now_ms=lambda: 5, disk=disk)
    return SqliteStore(root / "sessions.db", now_ms=lambda: 5, disk=disk)


async def is_left(backend: str, root: Path, disk: LosingDisk, count: int) -> None:
    """If the power failed now, these events would be read, and perhaps some that followed."""
    image = root.with_name(f"{root.name}-{len(disk.calls)}")
    disk.loses_power(root, image)
    store = store_of(backend, image, Disk())
    found = (await store.read("s")).events
    assert lines(found) == lines(EVENTS)[: len(found)]
    assert len(found) >= count, f"{count} were acknowledged, {len(found)} are left"


async def a_life(backend: str, root: Path, disk: LosingDisk) -> bool:
    """Append, sync, look, with a power failure after each promise. Whether a sync was refused."""
    refused = False
    store = store_of(backend, root, disk)
    handle = await store.create(header())
    for first in range(0, len(EVENTS), 5):
        await handle.append(EVENTS[first : first + 3])
        await handle.append(EVENTS[first + 3 : first + 5])
        if first % 2:
            continue
        try:
            await handle.flush()
        except StorageFailed:
            refused = disk.healed = True
            await handle.append(())
            await handle.flush()
        await is_left(backend, root, disk, handle.next_seq)
    try:
        await handle.aclose()
    except StorageFailed:
        refused = disk.healed = True
    else:
        await is_left(backend, root, disk, handle.next_seq)
    disk.healed = True
    if isinstance(store, SqliteStore):
        await store.aclose()
    return refused


async def lived(backend: str, root: Path, disk: LosingDisk) -> bool:
    below = below_sqlite(root, disk.asked, disk.did)
    with below if backend == "sqlite" else nullcontext():
        return await a_life(backend, root, disk)


@pytest.mark.parametrize("backend", ["jsonl", pytest.param("sqlite", marks=NEEDS_SQLITE)])
async def test_what_was_acknowledged_survives_a_loss_of_power(tmp_path: Path, backend: str) -> None:
    sound = LosingDisk(10**9, EIO)
    assert not await lived(backend, tmp_path / "sound", sound)
    syncs = [at for at, name in enumerate(sound.calls) if name.startswith("sync")]
    refused = 0
    for at in syncs:
        for once in (True, False):
            disk = LosingDisk(at, EIO, once=once)
            try:
                refused += await lived(backend, tmp_path / f"{at}-{once}", disk)
            except StorageFailed:
                assert disk.failed, "refused without a fault"
            except AssertionError as error:
                raise AssertionError(f"call {at}, {sound.calls[at]}, {once=}: {error}") from error
    sys.stdout.write(f"{backend}: {len(syncs)} syncs, {refused} refused promises, 0 losses\n")
    assert refused


@NEEDS_SQLITE
async def test_names_are_synced_though_sqlite_takes_a_failure_for_done(tmp_path: Path) -> None:
    disk = LosingDisk(0, EIO)
    disk.only = "open folder of wal"
    assert not await lived("sqlite", tmp_path / "life", disk)
    assert disk.failed
