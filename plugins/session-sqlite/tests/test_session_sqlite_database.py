"""What the database looks like, who may read it, when it syncs, and the plugin around it."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pytest
import trio

from dsh.errors import InvalidAppend, SessionBusy
from dsh.kernel import open_kernel
from dsh.seams.persistence import PERSISTENCE
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh.wire import encode_line, encode_rows
from dsh_plugins.session_sqlite import SqliteStore, session_sqlite
from dsh_plugins.session_sqlite.catalog import SessionSqliteConfig

if TYPE_CHECKING:
    from pathlib import Path


def cell(path: Path, query: str) -> object:
    with closing(sqlite3.connect(path)) as db:
        return cast("tuple[object, ...]", db.execute(query).fetchone())[0]


def logs_of(folder: Path) -> list[Path]:
    return list(folder.glob("*-wal"))


async def test_lines_stand_in_the_table_as_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "sessions.db"
    store = SqliteStore(path, now_ms=lambda: 77)
    log = LogWriting()
    log.whole_turn("hi", *(f"w{number}" for number in range(50)))
    handle = await store.create(header())
    assert not path.exists(), "a session that logged nothing leaves nothing"
    await handle.append(tuple(log.session.events))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    stored = cell(path, "SELECT group_concat(line, char(10)) FROM lines")
    assert stored == encode_rows(log.session.events).decode().rstrip("\n")
    assert cell(path, "SELECT count(*) FROM lines") == 8
    assert cell(path, "PRAGMA journal_mode") == "wal"
    for seq in range(log.session.next_seq + 1):
        part = await store.read("s", from_seq=seq)
        assert [encode_line(event) for event in part.events] == [
            encode_line(event) for event in log.session.events[seq:]
        ]
    await handle.aclose()
    await store.aclose()


async def test_a_barrier_proves_what_was_written_before(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path, now_ms=lambda: 77)
    log = LogWriting()
    log.whole_turn("hi")
    handle = await store.create(header())
    await handle.append(tuple(log.session.events))
    assert cell(path, "SELECT synced FROM sessions") == 0
    await handle.flush()
    assert cell(path, "SELECT synced FROM sessions") == log.session.next_seq
    before = cell(path, "SELECT revision FROM sessions")
    await handle.flush()
    await handle.aclose()
    assert cell(path, "SELECT revision FROM sessions") == before
    await store.aclose()


@pytest.mark.parametrize("session_id", ["", "x" * 241, "é" * 90])
async def test_an_id_that_cannot_be_owned_is_refused(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(InvalidAppend, match="session id"):
        await SqliteStore(tmp_path / "s.db", now_ms=lambda: 5).create(header(session_id))


async def test_the_plugin_provides_the_store_and_closes_its_connection(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with open_kernel() as kernel:
        await kernel.mount(session_sqlite, SessionSqliteConfig(path=str(path))).ready()
        store = kernel.root.require(PERSISTENCE)
        handle = await store.create(header())
        log = LogWriting()
        log.whole_turn("hi")
        await handle.append(tuple(log.session.events))
        await handle.aclose()
        assert [row.id for row in await store.list()] == ["s"]
    assert not logs_of(tmp_path), "the last connection folds the log into the file"


async def test_the_plugin_refuses_a_relative_path() -> None:
    async with open_kernel() as kernel:
        kernel.mount(session_sqlite, SessionSqliteConfig(path="sessions.db"))
        await kernel.settled()
        (problem,) = kernel.audit()
        assert "absolute path" in problem.reason


async def test_many_sessions_are_written_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db", now_ms=lambda: 5)
    log = LogWriting()
    log.whole_turn("hi", "a", "b", "c")
    events = tuple(log.session.events)

    async def one(session_id: str) -> None:
        handle = await store.create(header(session_id))
        for event in events:
            await handle.append([event])
        await handle.aclose()

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, f"s{number}")
    for number in range(20):
        log_read = await store.read(f"s{number}")
        assert [encode_line(e) for e in log_read.events] == [encode_line(e) for e in events]
    await store.aclose()


OWNER = """
import pathlib, sys, trio
from dsh.testing import LogWriting
from dsh.testing.logs import header
from dsh_plugins.session_sqlite import SqliteStore

async def main():
    store = SqliteStore(pathlib.Path(sys.argv[1]), now_ms=lambda: 1_700_000_000_000)
    handle = await store.create(header(sys.argv[2]))
    log = LogWriting()
    log.whole_turn("hi")
    await handle.append(tuple(log.session.events))
    print("ready", flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


def owner(path: Path, session_id: str) -> subprocess.Popen[bytes]:
    """A process that has the session open, and says when."""
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path), session_id],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


@pytest.mark.holds("case-054")
async def test_two_processes_share_the_file_and_not_a_session(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    owners = [owner(path, session_id) for session_id in ("one", "two")]
    try:
        for process in owners:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        store = SqliteStore(path, now_ms=lambda: 5)
        for process, session_id in zip(owners, ("one", "two"), strict=True):
            with pytest.raises(SessionBusy, match=f"pid {process.pid} on "):
                await store.open(session_id, "write")
            assert len((await store.read(session_id)).events) == 6
    finally:
        for process in owners:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    handle = await store.open("one", "write")
    assert handle.next_seq == 6
    await handle.aclose()
    await store.aclose()
