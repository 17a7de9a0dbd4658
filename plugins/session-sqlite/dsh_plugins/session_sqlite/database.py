"""The database file: how it is opened, what proves that it is ours, and how its errors are told.

What comes in: a path. What goes out: connections, transactions, and dsh's errors in place of
SQLite's. It knows the tables and not what stands in them. Everything here runs in a worker thread.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

from dsh.errors import SessionCorrupt, SessionError, SessionUnreadable, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from dsh.seams.disk import Disk

__all__ = ["Database", "number", "told"]

#: "dshs": tells our files from every other program's.
APPLICATION_ID: Final = 0x64736873
#: Version 1 had no blobs; the first write to such a file adds their table.
SCHEMA_VERSION: Final = 2
BUSY_SECONDS: Final = 10.0
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

_BLOBS: Final = """CREATE TABLE IF NOT EXISTS blobs (
        session INTEGER NOT NULL,
        name TEXT NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (session, name)
    ) WITHOUT ROWID"""
#: `lines` holds the lines that a JSON-lines log would have, `blobs` the payloads that are too large
#: for one. `events` proves that none is missing, `proof` that header and line are as written.
_TABLES: Final = (
    """CREATE TABLE sessions (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        header TEXT NOT NULL,
        proof INTEGER NOT NULL,
        events INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        synced INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        modified_ms INTEGER NOT NULL
    )""",
    """CREATE TABLE lines (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        line TEXT NOT NULL,
        proof INTEGER NOT NULL,
        PRIMARY KEY (session, seq)
    ) WITHOUT ROWID""",
    _BLOBS,
    f"PRAGMA application_id={APPLICATION_ID}",
    f"PRAGMA user_version={SCHEMA_VERSION}",
)


@final
class Database:
    """One database file. Writing happens through one connection, reading through a new one each."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path: Final = path
        self._disk: Final = disk
        self._writer: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Whether anything was ever stored. Raises StorageFailed where nobody may look."""
        try:
            return self.path.exists()
        except OSError as error:
            raise told(self.path, "read", error) from error

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection, None, None]:
        """One transaction that holds the write lock: committed, or rolled back on any exception.

        Raises StorageFailed, SessionCorrupt, SessionUnreadable.
        """
        try:
            db = self._connected()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            raise told(self.path, "write", error) from error

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection, None, None]:
        """One snapshot, on a connection of its own, so that no append waits for a reader.

        Raises StorageFailed, SessionCorrupt, SessionUnreadable.
        """
        try:
            uri = f"file:{quote(str(self.path))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as db:
                db.isolation_level = None
                self._set_up(db)
                db.execute("BEGIN")
                yield db
        except (sqlite3.Error, OSError) as error:
            raise told(self.path, "read", error) from error

    def sync(self, key: int) -> None:
        """Return when every transaction so far survives a loss of power. Raises StorageFailed."""
        try:
            # A commit with FULL syncs the whole write-ahead log, so all earlier commits too.
            self._connected().execute("PRAGMA synchronous=FULL")
            with self.writing() as db:
                db.execute("UPDATE sessions SET synced = events WHERE key = ?", (key,))
        except sqlite3.Error as error:
            raise told(self.path, "sync", error) from error
        finally:
            if self._writer is not None:
                self._writer.execute("PRAGMA synchronous=NORMAL")

    def close(self) -> None:
        """Close the writing connection; the next write opens another one. Never raises."""
        db, self._writer = self._writer, None
        if db is not None:
            try:
                db.close()
            except sqlite3.Error:
                # Nothing is lost: the last connection's clean-up is done by the next process.
                return

    def _connected(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._opened()
        return self._writer

    def _opened(self) -> sqlite3.Connection:
        if not self.path.exists():
            self._disk.make_folder(self.path.parent)
            self._make()
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            db.isolation_level = None
            self._set_up(db)
            self._upgrade(db)
            db.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            db.close()
            raise
        return db

    def _make(self) -> None:
        """Make the file under another name, whole and synced, and then give it its own.

        Whoever sees the file thus sees its tables. Another process that was first wins.
        """
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self._disk.unlink(draft)
        self._disk.close(self._disk.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
        try:
            with closing(sqlite3.connect(draft)) as db:
                db.isolation_level = None
                db.execute("PRAGMA synchronous=FULL")
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("BEGIN IMMEDIATE")
                for statement in _TABLES:
                    db.execute(statement)
                db.execute("COMMIT")
            self._give_name(draft)
        finally:
            self._disk.unlink(draft)
        self._sync_folder()

    def _give_name(self, draft: Path) -> None:
        try:
            os.link(draft, self.path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _NO_LINKS or self.path.exists():
                raise
            draft.rename(self.path)

    def _set_up(self, db: sqlite3.Connection) -> None:
        # What a flipped bit makes of text must reach the proof, not a decoder.
        db.text_factory = bytes
        db.execute("PRAGMA trusted_schema=OFF")
        if _pragma(db, "application_id") != APPLICATION_ID:
            raise SessionUnreadable(
                f"{self.path} is no database of dsh sessions; set session-sqlite.path to another"
            )
        version = _pragma(db, "user_version")
        if not 1 <= version <= SCHEMA_VERSION:
            raise SessionUnreadable(
                f"{self.path} has the tables of version {version}, this dsh reads "
                f"{SCHEMA_VERSION}; open it with the dsh that wrote it"
            )

    def _upgrade(self, db: sqlite3.Connection) -> None:
        if _pragma(db, "user_version") == SCHEMA_VERSION:
            return
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute(_BLOBS)
            db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _sync_folder(self) -> None:
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def told(path: Path, doing: str, error: sqlite3.Error | OSError) -> SessionError:
    """The error of dsh for one of SQLite's."""
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    damaged = ("malformed", "not a database", "corrupt", "disk image")
    if isinstance(error, sqlite3.DatabaseError) and any(word in text for word in damaged):
        return SessionCorrupt(f"{path}: {text}; the database was not changed")
    return StorageFailed(
        f"{path}: {doing} failed: {text}; what was acknowledged before is safe. "
        "Free space or repair the disk, then try again"
    )


def number(value: object) -> int:
    """A cell that must be a whole number. Raises DatabaseError, as for any damage."""
    if type(value) is not int:
        raise sqlite3.DatabaseError("database disk image is malformed: a number is missing")
    return value


def _pragma(db: sqlite3.Connection, name: str) -> int:
    row: tuple[object, ...] | None = db.execute(f"PRAGMA {name}").fetchone()
    return number(None if row is None else row[0])
