"""The store of session logs in one database: creates, opens, reads, lists and removes them.

What comes in: a path, headers, ids. What goes out: write handles, logs as read, summaries. One
worker thread at a time writes; reads have a connection of their own and never hold up an append.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NoReturn, final
from urllib.parse import quote

import trio
from typing_extensions import override

from dsh.errors import InvalidAppend, SessionCorrupt, SessionError, SessionExists, SessionNotFound
from dsh.seams.disk import Disk
from dsh.seams.ownership import SessionLock
from dsh.seams.persistence import (
    Recovered,
    SessionPersistence,
    SessionSummary,
    StoredLog,
    WriteHandle,
    owned,
)
from dsh.wire import WireFault, decode_header
from dsh_plugins.session_sqlite.blobs import drop_blobs, find_blob
from dsh_plugins.session_sqlite.database import Database, number
from dsh_plugins.session_sqlite.handle import Engine, SqliteHandle
from dsh_plugins.session_sqlite.rows import Reading, proof_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dsh.catalog.records import SessionHeader

__all__ = ["SqliteStore"]

#: The longest id that can name a lock file.
NAME_BYTES: Final = 240
_LINES: Final = "SELECT seq, line, proof FROM lines WHERE session = ? AND seq >= ? ORDER BY seq"


@final
class SqliteStore(SessionPersistence):
    """Session logs in the database at `path`. `now_ms` stamps locks and writes."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int], disk: Disk | None = None) -> None:
        self._disk: Final = Disk() if disk is None else disk
        self._database: Final = Database(path, self._disk)
        self._now_ms: Final = now_ms
        #: SQLite has one writer at a time anyway; one thread keeps the connection to itself.
        self._writer: Final = trio.CapacityLimiter(1)
        self._engine: Final = Engine(self._database, self._run, self.read, now_ms)

    @override
    async def create(self, header: SessionHeader) -> WriteHandle:
        return await owned(self._create, header)

    @override
    async def open(self, session_id: str, mode: Literal["write"]) -> WriteHandle:
        return await owned(self._open, session_id)

    @override
    async def read(self, session_id: str, *, from_seq: int = 0) -> StoredLog:
        return await trio.to_thread.run_sync(self._read, session_id, from_seq)

    @override
    async def recover(self, session_id: str) -> Recovered:
        return await trio.to_thread.run_sync(self._recover, session_id)

    @override
    async def list(self) -> Sequence[SessionSummary]:
        return await trio.to_thread.run_sync(self._list)

    @override
    async def remove(self, session_id: str) -> None:
        await self._run(lambda: self._remove(session_id))

    async def aclose(self) -> None:
        """Close the writing connection. Handles that are still open make the next one."""
        with trio.CancelScope(shield=True):
            await self._run(self._database.close)

    async def _run(self, act: Callable[[], None]) -> None:
        await trio.to_thread.run_sync(act, limiter=self._writer)

    def _create(self, header: SessionHeader) -> SqliteHandle:
        lock = self._lock(header.id)
        try:
            self._refuse_stored(header.id)
            return SqliteHandle(self._engine, lock, header)
        except BaseException:
            lock.release()
            raise

    def _refuse_stored(self, session_id: str) -> None:
        if self._stored(session_id):
            raise SessionExists(
                f"a session {session_id!r} is stored already in {self._database.path}; "
                "resume it, or choose another id"
            )

    def _open(self, session_id: str) -> SqliteHandle:
        # First the log, so that asking for what is not there leaves nothing behind.
        if not self._stored(session_id):
            raise self._missing(session_id)
        lock = self._lock(session_id)
        try:
            with self._database.reading() as db:
                key, _ = self._found(db, session_id)
                log = self._log(db, session_id, 0)
            return SqliteHandle(self._engine, lock, log.header, key=key, found=log)
        except BaseException:
            lock.release()
            raise

    def _stored(self, session_id: str) -> bool:
        if not self._database.exists():
            return False
        with self._database.reading() as db:
            row = db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone()
            return row is not None

    def _missing(self, session_id: str) -> SessionNotFound:
        return SessionNotFound(
            f"no session {session_id!r} is stored in {self._database.path}; "
            "`dsh sessions list` shows those that are"
        )

    def _read(self, session_id: str, from_seq: int) -> StoredLog:
        if not self._database.exists():
            raise self._missing(session_id)
        with self._database.reading() as db:
            return self._log(db, session_id, from_seq)

    def _found(self, db: sqlite3.Connection, session_id: str) -> tuple[int, int]:
        """Key and number of events of a session."""
        row: tuple[object, ...] | None = db.execute(
            "SELECT key, events FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        if row is None:
            raise self._missing(session_id)
        return number(row[0]), number(row[1])

    def _log(self, db: sqlite3.Connection, session_id: str, from_seq: int) -> StoredLog:
        key, count = self._found(db, session_id)
        header = self._header(db, session_id)
        # A packed row continues the line above, so reading begins at a line of its own.
        start: tuple[object, ...] = db.execute(
            "SELECT max(seq) FROM lines WHERE session = ? AND seq <= ? AND line LIKE '{%'",
            (key, from_seq),
        ).fetchone()
        first = start[0] if type(start[0]) is int else 0
        read = Reading(session_id, db.execute(_LINES, (key, first)), partial(find_blob, db, key))
        ends = read.events[-1].seq + 1 if read.events else first
        fault = read.fault
        if fault is None and (ends != count or (read.events and read.events[0].seq != first)):
            fault = f"events {first} to {ends - 1} are there, {count} were written"
        if fault is not None:
            self._corrupt(session_id, fault)
        events = tuple(event for event in read.events if event.seq >= from_seq)
        return StoredLog(header=header, events=events, path=str(self._database.path))

    def _header(self, db: sqlite3.Connection, session_id: str) -> SessionHeader:
        row: tuple[object, ...] | None = db.execute(
            "SELECT header, proof FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        if row is None:
            raise self._missing(session_id)
        return self._decoded(session_id, row[0], row[1])

    def _decoded(self, session_id: str, line: object, proof: object) -> SessionHeader:
        if not isinstance(line, bytes) or proof != proof_of(session_id, line):
            self._corrupt(session_id, "the header is not as it was written")
        try:
            header = decode_header(line)
        except WireFault as fault:
            self._corrupt(session_id, str(fault))
        if header.id != session_id:
            self._corrupt(session_id, f"the header names session {header.id!r}")
        return header

    def _corrupt(self, session_id: str, reason: str) -> NoReturn:
        raise SessionCorrupt(
            f"{self._database.path}: session {session_id!r}: {reason}; the log was not changed"
        )

    def _recover(self, session_id: str) -> Recovered:
        if not self._database.exists():
            raise self._missing(session_id)
        with self._database.reading() as db:
            key, count = self._found(db, session_id)
            header, damage = None, None
            try:
                header = self._header(db, session_id)
            except SessionError as error:
                damage = error.message
            read = Reading(session_id, db.execute(_LINES, (key, 0)), partial(find_blob, db, key))
            kept = len(read.events)
            if read.fault is not None or kept != count:
                damage = read.fault or f"the database ends at seq {kept - 1}"
            beyond = f"{count - kept} events after that" if count > kept else None
            return Recovered(header=header, events=tuple(read.events), damage=damage, beyond=beyond)

    def _remove(self, session_id: str) -> None:
        if not self._stored(session_id):
            raise self._missing(session_id)
        lock = self._lock(session_id)
        try:
            with self._database.writing() as db:
                key, _ = self._found(db, session_id)
                db.execute("DELETE FROM lines WHERE session = ?", (key,))
                drop_blobs(db, key)
                db.execute("DELETE FROM sessions WHERE key = ?", (key,))
        finally:
            lock.release()

    def _list(self) -> tuple[SessionSummary, ...]:
        if not self._database.exists():
            return ()
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT id, header, proof, bytes, modified_ms, key, revision FROM sessions"
                " ORDER BY modified_ms DESC, key DESC"
            ).fetchall()
        return tuple(self._summary(*row) for row in rows)

    def _summary(self, *cells: object) -> SessionSummary:
        raw_id, line, proof, size, modified, key, revision = cells
        session_id = raw_id.decode("utf-8", "replace") if isinstance(raw_id, bytes) else "?"
        header, problem = None, None
        try:
            header = self._decoded(session_id, line, proof)
        except SessionError as error:
            problem = error.message
        return SessionSummary(
            id=session_id,
            header=header,
            path=str(self._database.path),
            bytes=size if isinstance(size, int) else 0,
            modified_ms=modified if isinstance(modified, int) else 0,
            revision=f"{key}-{revision}",
            problem=problem,
        )

    def _lock(self, session_id: str) -> SessionLock:
        name = quote(session_id, safe="", errors="surrogatepass")
        name = f"%2E{name[1:]}" if name.startswith(".") else name
        if not name or len(name) > NAME_BYTES:
            raise InvalidAppend(
                f"the session id {session_id[:60]!r} cannot name a lock file: it is empty, or "
                f"longer than {NAME_BYTES} bytes when written as %XX"
            )
        folder = self._database.path.with_name(f"{self._database.path.name}-locks")
        return SessionLock(
            self._disk,
            folder / f"{name}.lock",
            session_id=session_id,
            now_ms=self._now_ms(),
            plugin="session-sqlite",
            place="path",
        )
