"""Large payloads stand in a table of their own, and come back exactly, or the loss is told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from dsh.errors import SessionCorrupt, StorageFailed
from dsh.session import salvage_log
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh.wire import BLOB_BYTES, StoredEvent, UnknownEvent, encode_line
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LARGE = "é\n" * BLOB_BYTES


def store(path: Path) -> SqliteStore:
    return SqliteStore(path, now_ms=lambda: 5)


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def cells(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def with_large_results() -> tuple[StoredEvent, ...]:
    log = LogWriting()
    log.whole_turn("go", calls=("c1", "c2"), result=LARGE)
    return tuple(log.session.events)


async def saved(path: Path) -> tuple[StoredEvent, ...]:
    events = with_large_results()
    kept = store(path)
    handle = await kept.create(header())
    await handle.append(events[:6])
    await handle.append(events[6:])
    await handle.aclose()
    await kept.aclose()
    return events


async def test_no_row_is_longer_than_the_limit_and_a_payload_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    await saved(path)
    ((longest,),) = cells(path, "SELECT max(length(line)) FROM lines")
    assert isinstance(longest, int)
    assert longest < 1000
    assert cells(path, "SELECT count(*), min(length(payload)) > 2 * 262144 FROM blobs") == [(2, 1)]
    kept = store(path)
    head = b'{"type":"acme.x/y","seq":%d,"time":1,"ignorable":true,"data":{"text":"%b"}}'
    twice = [head % (seq, b"x" * BLOB_BYTES) for seq in range(2)]
    for session_id in ("other", "third"):
        handle = await kept.create(header(session_id))
        for seq, line in enumerate(twice):
            unknown = UnknownEvent(line, "unknown type")
            await handle.append([StoredEvent("acme.x/y", seq, 1, unknown, ignorable=True)])
        await handle.aclose()
        assert lines((await kept.read(session_id)).events) == twice
    assert cells(path, "SELECT session, count(*) FROM blobs GROUP BY session") == [
        (1, 2),
        (2, 1),
        (3, 1),
    ]
    await kept.remove("other")
    assert cells(path, "SELECT DISTINCT session FROM blobs ORDER BY 1") == [(1,), (3,)]
    await kept.aclose()


@pytest.mark.parametrize(
    "harm",
    ["DELETE FROM blobs", "UPDATE blobs SET payload = x'7b7d'", "UPDATE blobs SET payload = 7"],
)
async def test_a_lost_payload_is_told_with_its_place(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "sessions.db"
    events = await saved(path)
    change(path, harm)
    kept = store(path)
    for attempt in (kept.read("s"), kept.open("s", "write")):
        with pytest.raises(
            SessionCorrupt, match=r"seq 5: its payload (is )?in the blob [0-9a-f]{64}"
        ):
            await attempt
    found = await kept.recover("s")
    await salvage_log(kept, found, source_id="s", child_id="new", now_ms=1)
    assert lines((await kept.read("new")).events) == lines(events[:5])
    await kept.aclose()


async def test_a_batch_that_fails_keeps_no_payload(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    kept = store(path)
    events = with_large_results()
    handle = await kept.create(header())
    await handle.append(events[:5])
    change(path, "CREATE TRIGGER no BEFORE INSERT ON lines BEGIN SELECT RAISE(FAIL, 'no'); END")
    with pytest.raises(StorageFailed, match="write failed: no"):
        await handle.append(events[5:])
    assert cells(path, "SELECT count(*) FROM blobs") == [(0,)]
    change(path, "DROP TRIGGER no")
    await handle.append(events[5:])
    assert lines((await kept.read("s")).events) == lines(events)
    await handle.aclose()
    await kept.aclose()


async def test_a_file_without_the_table_is_read_as_it_is_and_gets_it_with_a_write(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    kept = store(path)
    handle = await kept.create(header())
    events = with_large_results()
    await handle.append(events[:5])
    await handle.aclose()
    await kept.aclose()
    change(path, "DROP TABLE blobs", "PRAGMA user_version=1")
    assert lines((await store(path).read("s")).events) == lines(events[:5])
    assert cells(path, "PRAGMA user_version") == [(1,)], "reading changes nothing"
    kept = store(path)
    handle = await kept.open("s", "write")
    await handle.append(events[5:])
    await handle.aclose()
    await kept.aclose()
    assert cells(path, "PRAGMA user_version") == [(2,)]
    assert lines((await store(path).read("s")).events) == lines(events)
