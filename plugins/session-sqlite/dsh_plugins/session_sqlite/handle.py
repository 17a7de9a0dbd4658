"""The write handle of one log in the database: a batch is one transaction, or nothing.

What comes in: committed events in seq order. What goes out: rows, synced when asked. A log whose
stored end is not where this handle left it is never written. The handle owns the id's lock and
gives it back in `aclose`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio
from typing_extensions import override

from dsh.errors import SessionBusy, SessionClosed, SessionExists
from dsh.hooks import frozen
from dsh.seams.persistence import WriteHandle
from dsh.wire import (
    BLOB_BYTES,
    encode_header,
    refuse_unreadable,
    without_large_payloads,
)
from dsh_plugins.session_sqlite.blobs import keep_blob
from dsh_plugins.session_sqlite.database import number
from dsh_plugins.session_sqlite.rows import proof_of, rows_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Sequence

    from dsh.catalog.records import SessionHeader
    from dsh.seams.ownership import SessionLock
    from dsh.wire import StoredEvent, StoredLog
    from dsh_plugins.session_sqlite.database import Database

__all__ = ["Engine", "SqliteHandle"]


@frozen(slots=True, eq=False)
class Engine:
    """What the handles of a store share: the database, its one worker thread, the clock."""

    database: Database
    run: Callable[[Callable[[], None]], Awaitable[None]]
    read: Callable[[str], Awaitable[StoredLog]]
    now_ms: Callable[[], int]


@final
class SqliteHandle(WriteHandle):
    """Made by the store: for a new log without a `key`, else for the one that has it."""

    def __init__(
        self,
        engine: Engine,
        lock: SessionLock,
        header: SessionHeader,
        *,
        key: int | None = None,
        found: StoredLog | None = None,
    ) -> None:
        self._engine: Final = engine
        self._lock: Final = lock
        self._header: Final = header
        self._key = key
        self._opened = found
        events = () if found is None else found.events
        self._next_seq = len(events)
        self._last: StoredEvent | None = events[-1] if events else None
        self._unsynced = False
        self._closed = False
        self._writing: Final = trio.Lock()

    @property
    @override
    def header(self) -> SessionHeader:
        return self._header

    @property
    @override
    def next_seq(self) -> int:
        return self._next_seq

    @override
    async def read_log(self) -> tuple[StoredEvent, ...]:
        # What `open` has read is given out once, not kept for as long as the session lives.
        found, self._opened = self._opened, None
        if self._key is None:
            return ()
        if found is None or len(found.events) != self._next_seq:
            found = await self._engine.read(self._header.id)
        refuse_unreadable(found.events, session=self._header.id)
        return found.events

    @override
    async def append(
        self, events: Sequence[StoredEvent], *, encoded: Sequence[bytes | None] | None = None
    ) -> None:
        self._refuse_if_closed()
        async with self._writing:
            if not events:
                return
            lines = self.rows(events, encoded=encoded, before=self._last)
            await self._engine.run(lambda: self._store(events, lines))

    @override
    async def flush(self) -> None:
        self._refuse_if_closed()
        async with self._writing:
            await self._sync()

    @override
    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with trio.CancelScope(shield=True):
            try:
                # Somebody else's log now, or none: then nothing of ours is left to sync.
                with suppress(SessionBusy):
                    async with self._writing:
                        await self._sync()
            finally:
                self._lock.release()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SessionClosed(f"the write handle of session {self._header.id!r} is closed")

    def _store(self, events: Sequence[StoredEvent], lines: bytes) -> None:
        with self._engine.database.writing() as db:
            key = self._made(db) if self._key is None else self._checked(db, self._key)
            if len(lines) > BLOB_BYTES:
                lines = without_large_payloads(lines, partial(keep_blob, db, key))
            rows = rows_of(self._header.id, lines, self._next_seq)
            db.executemany(
                "INSERT INTO lines (session, seq, line, proof) VALUES (?, ?, ?, ?)",
                ((key, *row) for row in rows),
            )
            db.execute(
                "UPDATE sessions SET events = ?, bytes = bytes + ?, revision = revision + 1,"
                " modified_ms = ? WHERE key = ?",
                (self._next_seq + len(events), len(lines), self._engine.now_ms(), key),
            )
        # Here, not after the await: whoever is cancelled meanwhile must find what is true.
        self._key = key
        self._next_seq += len(events)
        self._last = events[-1]
        self._unsynced = True

    def _made(self, db: sqlite3.Connection) -> int:
        header = encode_header(self._header)
        session_id = self._header.id
        taken = db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone()
        if taken is not None:
            raise SessionExists(f"a session {session_id!r} is stored already; resume it")
        made = db.execute(
            "INSERT INTO sessions (id, header, proof, events, bytes, synced, revision, modified_ms)"
            " VALUES (?, ?, ?, 0, ?, 0, 0, 0)",
            (session_id, header.decode(), proof_of(session_id, header), len(header) + 1),
        )
        return number(made.lastrowid)

    def _checked(self, db: sqlite3.Connection, key: int) -> int:
        row: tuple[object, ...] | None = db.execute(
            "SELECT events FROM sessions WHERE key = ? AND id = ?", (key, self._header.id)
        ).fetchone()
        if row is None:
            raise self._changed("was deleted")
        if row[0] != self._next_seq:
            raise self._changed(f"has {row[0]} events, not {self._next_seq}")
        return key

    def _changed(self, what: str) -> SessionBusy:
        return SessionBusy(
            f"{self._engine.database.path}: session {self._header.id!r} {what}: somebody else "
            "changed it while it was open here; nothing was written. Resume it to go on"
        )

    async def _sync(self) -> None:
        key = self._key
        if key is not None and self._unsynced:
            await self._engine.run(lambda: self._sync_now(key))

    def _sync_now(self, key: int) -> None:
        if not self._engine.database.sync(key):
            raise self._changed("was deleted")
        self._unsynced = False
