"""A database that is damaged, foreign, newer, full or read-only: told, and never read wrongly."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from errno import EACCES, ENOSPC
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from dsh.errors import (
    SessionCorrupt,
    SessionError,
    SessionNotFound,
    SessionUnreadable,
    StorageFailed,
)
from dsh.seams.disk import Disk
from dsh.session import lawful_prefix, salvage_log, verify
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh.wire import StoredEvent, encode_line
from dsh_plugins.session_sqlite import SqliteStore
from dsh_plugins.session_sqlite.database import Database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def store(path: Path, disk: Disk | None = None) -> SqliteStore:
    return SqliteStore(path, now_ms=lambda: 5, disk=disk)


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def three_turns() -> tuple[StoredEvent, ...]:
    log = LogWriting()
    for prompt in ("one", "写文件 🦀", "three"):
        log.whole_turn(prompt, "a", "b", "é", calls=(f"c-{prompt[:1]}",))
    return tuple(log.session.events)


async def saved(path: Path, session_id: str = "s") -> tuple[StoredEvent, ...]:
    events = three_turns()
    kept = store(path)
    handle = await kept.create(header(session_id))
    await handle.append(events[:5])
    await handle.append(events[5:])
    await handle.aclose()
    await kept.aclose()
    return events


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


async def outcome(path: Path, expected: list[bytes]) -> str:
    """How a reader fares: `sound`, or the name of the refusal. Anything else is a wrong read."""
    try:
        log = await store(path).read("s")
    except SessionError as error:
        return type(error).__name__
    assert lines(log.events) == expected, "a wrong read"
    assert log.header == header("s")
    return "sound"


async def test_no_flipped_bit_is_read_as_something_else(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    expected = lines(await saved(path))
    data = path.read_bytes()
    seen: set[str] = set()
    places = (*range(100), *range(100, len(data), 29))  # the file's header whole
    for place in places:
        harmed = bytearray(data)
        harmed[place] ^= 1 << (place % 8)
        copy = tmp_path / "harmed.db"
        copy.write_bytes(harmed)
        seen.add(await outcome(copy, expected))
        drop(tmp_path, "harmed.db-*")
    assert {"sound", "SessionCorrupt", "SessionUnreadable"} <= seen
    assert seen <= {
        "sound", "SessionCorrupt", "SessionUnreadable", "StorageFailed", "SessionNotFound",
    }  # fmt: skip


async def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    expected = lines(await saved(path))
    data = path.read_bytes()
    for cut in range(0, len(data), 97):
        copy = tmp_path / "cut.db"
        copy.write_bytes(data[:cut])
        assert await outcome(copy, expected) != "sound"


def drop(folder: Path, pattern: str) -> None:
    for left in folder.glob(pattern):
        left.unlink()


HARMS = [
    ("DELETE FROM lines WHERE seq = 2", "seq 3 where 2 is due"),
    ("DELETE FROM lines WHERE seq > 20", "were written"),
    ("UPDATE lines SET line = replace(line, 'one', 'two')", "not as it was written"),
    ("UPDATE lines SET seq = seq + 100 WHERE seq = 2", "where 2 is due"),
    ("UPDATE sessions SET header = replace(header, '/work', '/')", "header is not as it was"),
    ("DELETE FROM lines WHERE seq = 0", "were written"),
]


@pytest.mark.holds("case-050")
@pytest.mark.parametrize(("statement", "reason"), HARMS)
async def test_rows_that_were_changed_are_refused(
    tmp_path: Path, statement: str, reason: str
) -> None:
    path = tmp_path / "sessions.db"
    await saved(path)
    await saved(path, "other")
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"{statement} AND session = 1" if "lines" in statement and "WHERE" in statement
                   else f"{statement} WHERE key = 1" if "sessions" in statement
                   else f"{statement} WHERE session = 1")  # fmt: skip
        db.commit()
    with pytest.raises(SessionCorrupt, match=reason):
        await store(path).read("s")
    with pytest.raises(SessionCorrupt, match=reason):
        await store(path).open("s", "write")
    assert verify(await store(path).read("other")) == ()
    assert len(await store(path).list()) == 2


async def test_the_beginning_of_a_damaged_log_is_salvaged(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    events = await saved(path)
    change(path, "UPDATE lines SET line = 'x' || line WHERE seq = 14")
    kept = store(path)
    found = await kept.recover("s")
    assert found.damage == "seq 14: the line is not as it was written"
    assert found.beyond == f"{len(events) - 14} events after that"
    saved_log = await salvage_log(kept, found, source_id="s", child_id="new", now_ms=1)
    copy = await kept.read("new")
    assert lines(copy.events) == lines(events[:14]) == lines(saved_log.kept)
    assert lawful_prefix(copy.events) == (14, None)
    change(path, "UPDATE sessions SET header = 'x' WHERE id = 's'")
    found = await kept.recover("s")
    assert found.header is None
    again = await salvage_log(kept, found, source_id="s", child_id="newer", now_ms=1)
    assert again.missing[0].startswith("the header: ")
    await kept.aclose()


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    change(path, "CREATE TABLE t (x)")
    before = path.read_bytes()
    for attempt in (store(path).list(), store(path).read("s"), store(path).create(header())):
        with pytest.raises(SessionUnreadable, match="no database of dsh sessions"):
            await attempt
    assert path.read_bytes() == before
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to be looked at" * 30, encoding="utf-8")
    with pytest.raises(SessionCorrupt, match="not a database"):
        await store(text).list()


async def test_newer_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    await saved(path)
    change(path, "PRAGMA user_version=7")
    with pytest.raises(SessionUnreadable, match="version 7"):
        await store(path).read("s")


async def test_a_full_disk_changes_nothing_and_heals(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    events = three_turns()
    kept = store(path)
    handle = await kept.create(header())
    await handle.append(events[:5])

    def limit(pages: int) -> None:
        database = kept._database  # pyright: ignore[reportPrivateUsage]
        with database.writing() as db:
            db.execute(f"PRAGMA max_page_count={pages}")

    limit(1)
    big = LogWriting()
    big.whole_turn("x" * 200_000)
    with pytest.raises(StorageFailed, match="full"):
        await handle.append([*events[5:], *big.session.events][: len(events) - 5] + [
            StoredEvent(event.type, len(events) + place, 1, event.data,
                        surface_op=event.surface_op)
            for place, event in enumerate(big.session.events)
        ])  # fmt: skip
    assert handle.next_seq == 5
    assert lines((await store(path).read("s")).events) == lines(events[:5])
    limit(1_000_000)
    await handle.append(events[5:])
    await handle.aclose()
    assert lines((await store(path).read("s")).events) == lines(events)
    await kept.aclose()


async def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    class ReadOnly(Disk):
        @override
        def open(self, path: Path, flags: int) -> int:
            if flags & os.O_CREAT:
                raise OSError(EACCES, os.strerror(EACCES), str(path))
            return super().open(path, flags)

    path = tmp_path / "sessions.db"
    events = await saved(path)
    locked = store(path, ReadOnly())
    for attempt in (locked.create(header("new")), locked.open("s", "write"), locked.remove("s")):
        with pytest.raises(StorageFailed, match=r"session-sqlite\.path"):
            await attempt
    assert lines((await locked.read("s")).events) == lines(events)
    with pytest.raises(SessionNotFound):
        await locked.read("new")


def test_errors_of_the_system_keep_their_cause(tmp_path: Path) -> None:
    class Full(Disk):
        @override
        def make_folder(self, path: Path) -> None:
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(path))

    with (
        pytest.raises(StorageFailed, match="No space left"),
        Database(tmp_path / "x" / "s.db", Full()).writing(),
    ):
        pass
