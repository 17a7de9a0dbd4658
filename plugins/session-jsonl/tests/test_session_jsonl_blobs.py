"""Large payloads stand beside the log, and come back exactly, or the loss is told."""

from __future__ import annotations

from errno import ENOSPC
from os import strerror
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from dsh import catalog as ev
from dsh.errors import SessionCorrupt, StorageFailed
from dsh.seams.disk import Disk
from dsh.session import fork_log, salvage_log, verify
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh.wire import BLOB_BYTES, StoredEvent, UnknownEvent, encode_line
from dsh_plugins.session_jsonl import JsonlStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LARGE = "é\n" * BLOB_BYTES


def store(root: Path, disk: Disk | None = None) -> JsonlStore:
    return JsonlStore(root, now_ms=lambda: 5, disk=disk)


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def with_large_results() -> tuple[StoredEvent, ...]:
    """Two turns; the first has a result of half a megabyte, twice."""
    log = LogWriting()
    log.whole_turn("go", calls=("c1", "c2"), result=LARGE)
    log.whole_turn("again")
    return tuple(log.session.events)


async def saved(root: Path) -> tuple[StoredEvent, ...]:
    events = with_large_results()
    handle = await store(root).create(header())
    await handle.append(events[:6])
    await handle.append(events[6:])
    await handle.flush()
    assert lines(await handle.read_log()) == lines(events)
    await handle.aclose()
    return events


def log_of(root: Path, session_id: str = "s") -> Path:
    (path,) = root.rglob(f"{session_id}/session.jsonl")
    return path


def blobs_of(root: Path, session_id: str = "s") -> list[Path]:
    return sorted((log_of(root, session_id).parent / "blobs").iterdir())


async def test_no_line_is_longer_than_the_limit_and_nothing_is_lost(tmp_path: Path) -> None:
    events = await saved(tmp_path)
    assert max(map(len, log_of(tmp_path).read_bytes().split(b"\n"))) < 1000
    assert len(blobs_of(tmp_path)) == 2, "one a result: ids differ"
    log = await store(tmp_path).read("s")
    assert lines(log.events) == lines(events)
    assert verify(log) == ()
    handle = await store(tmp_path).open("s", "write")
    assert lines(await handle.read_log()) == lines(events)
    await handle.aclose()


async def test_a_payload_is_kept_once_and_copied_with_a_fork(tmp_path: Path) -> None:
    events = await saved(tmp_path)
    kept = store(tmp_path)
    await fork_log(kept, await kept.read("s"), child_id="child", now_ms=1)
    child = await kept.read("child")
    assert lines(child.events[:-1]) == lines(events)
    assert [path.name for path in blobs_of(tmp_path, "child")] == [
        path.name for path in blobs_of(tmp_path)
    ]
    folder = log_of(tmp_path).parent
    await kept.remove("s")
    assert not folder.exists()
    assert lines((await kept.read("child")).events[:-1]) == lines(events)


@pytest.mark.parametrize("harm", ["missing", "changed"])
async def test_a_lost_payload_is_told_with_its_place(tmp_path: Path, harm: str) -> None:
    events = await saved(tmp_path)
    second = blobs_of(tmp_path)[0]
    if harm == "missing":
        second.unlink()
    else:
        second.write_bytes(second.read_bytes().replace(b"\\n", b"\\t", 1))
    for attempt in (store(tmp_path).read("s"), store(tmp_path).open("s", "write")):
        with pytest.raises(SessionCorrupt, match=r"session\.jsonl:\d+: its payload") as told:
            await attempt
        assert str(second) in told.value.message
    kept = store(tmp_path)
    found = await kept.recover("s")
    await salvage_log(kept, found, source_id="s", child_id="new", now_ms=1)
    rescued = (await kept.read("new")).events
    assert lines(rescued) == lines(events[: len(rescued)])
    assert len(rescued) in (5, 7)


async def test_an_event_that_nobody_knows_keeps_its_bytes(tmp_path: Path) -> None:
    head = '{"type":"acme.x/y","seq":0,"time":1,"owner":"acme@1","ignorable":true'
    line = f'{head},"data":{{"text": "{"x" * BLOB_BYTES}"}}}}'.encode()
    unknown = UnknownEvent(line, "unknown type")
    event = StoredEvent("acme.x/y", 0, 1, unknown, owner="acme@1", ignorable=True)
    handle = await store(tmp_path).create(header())
    await handle.append([event])
    await handle.aclose()
    assert len(log_of(tmp_path).read_bytes()) < 1000
    (found,) = (await store(tmp_path).read("s")).events
    assert encode_line(found) == line


class NoRoomForBlobs(Disk):
    """A disk that has no room for blobs, until it is healed."""

    healed = False

    @override
    def rename(self, source: Path, target: Path) -> None:
        if not self.healed:
            raise OSError(ENOSPC, strerror(ENOSPC))
        super().rename(source, target)


async def test_a_payload_that_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    disk = NoRoomForBlobs()
    events = with_large_results()
    handle = await store(tmp_path, disk).create(header())
    await handle.append(events[:5])
    with pytest.raises(StorageFailed, match="No space left"):
        await handle.append(events[5:])
    assert handle.next_seq == 5
    assert lines((await store(tmp_path).read("s")).events) == lines(events[:5])
    disk.healed = True
    await handle.append(events[5:])
    await handle.aclose()
    assert lines((await store(tmp_path).read("s")).events) == lines(events)


async def test_a_payload_that_looks_like_a_reference_is_none(tmp_path: Path) -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.user('{"$blob":"' + "0" * 64 + '","bytes":3}')
    events = tuple(log.session.events)
    assert isinstance(events[-1].data, ev.user.Message)
    handle = await store(tmp_path).create(header())
    await handle.append(events)
    await handle.aclose()
    assert lines((await store(tmp_path).read("s")).events) == lines(events)
