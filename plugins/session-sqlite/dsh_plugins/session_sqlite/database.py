"""The database file: how it is opened, what proves that it is ours, and how its errors are told.

What comes in: a path. What goes out: connections, transactions, and dsh's errors in place of
SQLite's. It knows the tables and not what stands in them. Everything here runs in a worker thread.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast, final
from urllib.parse import quote

from dsh.errors import SessionCorrupt, SessionError, SessionUnreadable, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from dsh.seams.disk import Disk

__all__ = ["Database", "number", "told"]

#: "dshs": tells our files from every other program's.
APPLICATION_ID: Final = 0x64736873
#: Version 1 had no blobs; the first write to such a file adds their table.
SCHEMA_VERSION: Final = 2
BUSY_SECONDS: Final = 10.0
#: Of the write-ahead log, above which a barrier writes it to its place.
LOG_BYTES: Final = 4 * 1024 * 1024

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
        self._log: Final = path.with_name(f"{path.name}-wal")
        self._draft: Final = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._writer: sqlite3.Connection | None = None
        #: Which file the writing connection has open.
        self._identity = (0, 0)
        #: Folders whose names no sync has proved yet.
        self._unsynced_folders: list[Path] = []
        self._drafted = False
        #: After a failed sync the system may hold as clean what never reached the device.
        self._doubtful = False

    def exists(self) -> bool:
        """Whether anything was ever stored. Raises StorageFailed where nobody may look."""
        try:
            return self.path.exists()
        except OSError as error:
            raise told(self.path, "read", error) from error

    @contextmanager
    def writing(self, doing: str = "write") -> Generator[sqlite3.Connection, None, None]:
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
            self._failed(error)
            raise told(self.path, doing, error) from error

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

    def sync(self, key: int) -> bool:
        """Return when every transaction so far survives a loss of power. Raises StorageFailed.

        False: no session has this key any more.
        """
        try:
            # A commit with FULL syncs the whole write-ahead log, so all earlier commits too.
            self._connected().execute("PRAGMA synchronous=FULL")
            with self.writing("sync") as db:
                if self._doubtful:
                    self._write_log_again()
                done = db.execute("UPDATE sessions SET synced = events WHERE key = ?", (key,))
            self._doubtful = False
            db.execute("PRAGMA synchronous=NORMAL")
            while self._unsynced_folders:
                self._disk.sync_folder(self._unsynced_folders[-1])
                self._unsynced_folders.pop()
            # Here, and never by SQLite in some append: this syncs the log, and who would hear of it
            # there if that failed?
            if self._log.stat().st_size > LOG_BYTES:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            raise told(self.path, "sync", error) from error
        return done.rowcount == 1

    def close(self) -> None:
        """Close the writing connection; the next write opens another one. Never raises."""
        db, self._writer = self._writer, None
        if db is not None:
            with suppress(sqlite3.Error, OSError):
                if self._doubtful and self._identity == self._found():
                    db.execute("BEGIN IMMEDIATE")
                    self._write_log_again()
                    db.execute("ROLLBACK")
            try:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except sqlite3.Error:
                # Nothing is lost, but a sync may have failed that nobody would hear of.
                self._doubtful = True
            with suppress(sqlite3.Error):  # the last one's clean-up is done by the next process
                db.close()
        self._drop_draft()

    def _failed(self, error: sqlite3.Error | OSError) -> None:
        name = cast("str | None", getattr(error, "sqlite_errorname", None))
        if isinstance(error, OSError) or name == "SQLITE_IOERR_FSYNC":
            # The system may hold as clean what never reached the device. The connection stays: to
            # close it would write the log to its place first, and the log would be behind it.
            self._doubtful = True
        else:
            # What a connection is after a failure (read-only, say) the next one need not be.
            self.close()

    def _write_log_again(self) -> None:
        """Write the same bytes over the write-ahead log, so that the next sync proves something.

        Only under the write lock, so that nobody else writes there meanwhile.
        """
        data = self._disk.read(self._log)
        fd = self._disk.open(self._log, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._disk.write_all(fd, data, 0)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def _connected(self) -> sqlite3.Connection:
        if self._writer is not None and self._identity != self._found():
            # It would take everything and lose it: the file has lost its name.
            self.close()
        if self._writer is None:
            self._writer = self._opened()
            # The file or the log beside it may be new, whoever made it. SQLite tries this for the
            # log, and does not tell when it failed.
            self._unsynced_folders.append(self.path.parent)
            self._identity = self._found()
        return self._writer

    def _found(self) -> tuple[int, int]:
        """Which file has the name; zeros for none."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_dev, found.st_ino

    def _opened(self) -> sqlite3.Connection:
        if not self.path.exists():
            self._make_folder()
            self._make()
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            db.isolation_level = None
            self._set_up(db)
            self._upgrade(db)
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA wal_autocheckpoint=0")
            db.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
        except BaseException:
            db.close()
            raise
        return db

    def _make_folder(self) -> None:
        for folder, above in pairwise((self.path.parent, *self.path.parent.parents)):
            if folder.is_dir():
                break
            self._unsynced_folders.append(above)
        self._disk.make_folder(self.path.parent)

    def _make(self) -> None:
        """Make the file under another name, whole and synced, and then give it its own.

        Whoever sees the file thus sees its tables. Another process that was first wins.
        """
        self._drafted = True
        for path in self._drafts():
            self._disk.unlink(path)
        self._disk.close(self._disk.open(self._draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
        try:
            with closing(sqlite3.connect(self._draft)) as db:
                db.isolation_level = None
                db.execute("PRAGMA synchronous=FULL")
                db.execute("BEGIN IMMEDIATE")
                for statement in _TABLES:
                    db.execute(statement)
                db.execute("COMMIT")
                # Last, so that the file has everything: a log beside it would not get its name.
                if db.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                    raise sqlite3.OperationalError("no write-ahead log can be kept there")
            with suppress(FileExistsError):
                self._disk.give_name(self._draft, self.path)
        finally:
            self._drop_draft()

    def _drafts(self) -> Iterator[Path]:
        for end in ("", "-journal", "-wal", "-shm"):
            yield self._draft.with_name(f"{self._draft.name}{end}")

    def _drop_draft(self) -> None:
        try:
            for path in self._drafts() if self._drafted else ():
                self._disk.unlink(path)
            self._drafted = False
        except OSError:
            # Tried again when the connection is closed; nobody looks at it.
            return

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


def told(path: Path, doing: str, error: sqlite3.Error | OSError) -> SessionError:
    """The error of dsh for one of SQLite's."""
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    damaged = ("malformed", "not a database", "corrupt", "disk image")
    if isinstance(error, sqlite3.DatabaseError) and any(word in text for word in damaged):
        # SQLite says the same of a disk that cannot read.
        if doing == "read":
            return SessionCorrupt(f"{path}: {text}, or unreadable; the database was not changed")
        return StorageFailed(
            f"{path}: {doing} failed: {text}, or unreadable; nothing was written. Repair the disk, "
            "then try again"
        )
    remedy = "Free space or repair the disk"
    if "readonly" in text:
        remedy = "Make the file and its folder writable"
    return StorageFailed(
        f"{path}: {doing} failed: {text}; what was acknowledged before is safe. "
        f"{remedy}, then try again"
    )


def number(value: object) -> int:
    """A cell that must be a whole number. Raises DatabaseError, as for any damage."""
    if type(value) is not int:
        raise sqlite3.DatabaseError("database disk image is malformed: a number is missing")
    return value


def _pragma(db: sqlite3.Connection, name: str) -> int:
    row: tuple[object, ...] | None = db.execute(f"PRAGMA {name}").fetchone()
    return number(None if row is None else row[0])
