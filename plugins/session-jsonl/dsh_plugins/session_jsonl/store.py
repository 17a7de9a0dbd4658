"""The store of session logs as JSON lines: creates, opens, reads, lists and removes them.

What comes in: a root folder, headers, ids. What goes out: write handles, logs as read, summaries.
Every look at the disk happens in a worker thread; listing reads the first line of each file only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, final
from urllib.parse import unquote

import trio
from typing_extensions import override

from dsh.errors import SessionError, SessionExists, SessionNotFound, StorageFailed
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
from dsh_plugins.session_jsonl.blobs import Blobs
from dsh_plugins.session_jsonl.handle import JsonlHandle
from dsh_plugins.session_jsonl.places import Places, encoded_id
from dsh_plugins.session_jsonl.reading import corrupt, read_header, read_log, recover_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dsh.catalog.records import SessionHeader
    from dsh_plugins.session_jsonl.reading import ReadLog

__all__ = ["JsonlStore"]

#: How much of a file a listing reads at most: a header is a few hundred bytes.
HEADER_BYTES: Final = 64 * 1024
HEADER_GUESS: Final = 1024


@final
class JsonlStore(SessionPersistence):
    """Session logs under one root folder. `now_ms` stamps locks, for the message of SessionBusy."""

    def __init__(self, root: Path, *, now_ms: Callable[[], int], disk: Disk | None = None) -> None:
        self._places: Final = Places(root)
        self._now_ms: Final = now_ms
        self._disk: Final = Disk() if disk is None else disk

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
        await trio.to_thread.run_sync(self._remove, session_id)

    def _create(self, header: SessionHeader) -> JsonlHandle:
        path = self._places.log(header.id, header.cwd)
        lock = self._lock(header.id)
        try:
            self._refuse_stored(header.id)
            return JsonlHandle(self._disk, path, lock, header=header)
        except BaseException:
            lock.release()
            raise

    def _refuse_stored(self, session_id: str) -> None:
        stored = self._stored(session_id)
        if stored is not None:
            raise SessionExists(
                f"a session {session_id!r} is stored already at {stored}; "
                "resume it, or choose another id"
            )

    def _open(self, session_id: str) -> JsonlHandle:
        # First the log, so that asking for what is not there leaves nothing behind.
        path = self._find(session_id)
        lock = self._lock(session_id)
        try:
            path = self._find(session_id)
            found = self._read_log(path, session_id)
            return JsonlHandle(self._disk, path, lock, header=found.header, found=found)
        except OSError as error:
            lock.release()
            raise _unreachable(session_id, path, error) from error
        except BaseException:
            lock.release()
            raise

    def _read(self, session_id: str, from_seq: int) -> StoredLog:
        path = self._find(session_id)
        found = self._read_log(path, session_id)
        return StoredLog(
            header=found.header, events=found.events[from_seq:], torn=found.torn, path=str(path)
        )

    def _recover(self, session_id: str) -> Recovered:
        path = self._find(session_id)
        return recover_log(
            self._bytes(path),
            path=str(path),
            session_id=session_id,
            blobs=Blobs(self._disk, path),
        )

    def _read_log(self, path: Path, session_id: str) -> ReadLog:
        return read_log(
            self._bytes(path),
            path=str(path),
            session_id=session_id,
            blobs=Blobs(self._disk, path),
        )

    def _remove(self, session_id: str) -> None:
        path = self._find(session_id)
        lock = self._lock(session_id)
        try:
            path = self._find(session_id)
            self._disk.unlink(path)
            for draft in path.parent.glob(f".{path.name}.*.tmp"):
                self._disk.unlink(draft)  # of a process that died before its first row
            Blobs(self._disk, path).remove()
            path.parent.rmdir()
        except OSError as error:
            raise _unreachable(session_id, path, error) from error
        finally:
            lock.release()

    def _list(self) -> tuple[SessionSummary, ...]:
        try:
            found = [_summary(name, path) for name, path in self._places.logs()]
        except OSError as error:
            raise StorageFailed(
                f"{self._places.root}: {error.strerror}; make it readable, "
                "or set session-jsonl.root to another folder"
            ) from error
        rows = [row for row in found if row is not None]
        return tuple(sorted(rows, key=lambda row: row.modified_ms, reverse=True))

    def _lock(self, session_id: str) -> SessionLock:
        return SessionLock(
            self._disk,
            self._places.lock(session_id),
            session_id=session_id,
            now_ms=self._now_ms(),
            plugin="session-jsonl",
            place="root",
        )

    def _find(self, session_id: str) -> Path:
        path = self._stored(session_id)
        if path is None:
            raise SessionNotFound(
                f"no session {session_id!r} is stored under {self._places.root}; "
                "`dsh sessions list` shows those that are"
            )
        return path

    def _stored(self, session_id: str) -> Path | None:
        try:
            return self._places.find(session_id)
        except OSError as error:
            raise _unreachable(session_id, self._places.root, error) from error

    def _bytes(self, path: Path) -> bytes:
        try:
            return self._disk.read(path)
        except OSError as error:
            raise StorageFailed(f"{path}: cannot be read: {error.strerror}") from error


def _unreachable(session_id: str, path: Path, error: OSError) -> StorageFailed:
    # What fails on a descriptor names no file.
    place = path if error.filename is None else error.filename
    return StorageFailed(f"session {session_id!r}: {place}: {error.strerror}")


def _summary(folder: str, path: Path) -> SessionSummary | None:
    """One row of the list, from the first line alone; None for a folder without a log."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return _bad_row(folder, path, f"{path}: cannot be read: {error.strerror}")
    try:
        status = os.fstat(fd)
        line = _first_line(fd)
    except OSError as error:
        return _bad_row(folder, path, f"{path}: cannot be read: {error.strerror}")
    finally:
        os.close(fd)
    header, problem = None, None
    try:
        if line is None:
            corrupt(str(path), 1, "the header line is not finished")
        header = read_header(line, path=str(path), session_id=None)
        if encoded_id(header.id) != folder:
            corrupt(str(path), 1, f"the header names session {header.id!r}")
    except SessionError as error:
        header, problem = None, error.message
    return SessionSummary(
        id=unquote(folder) if header is None else header.id,
        header=header,
        path=str(path),
        bytes=status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
        revision=f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}",
        problem=problem,
    )


def _first_line(fd: int) -> bytes | None:
    for limit in (HEADER_GUESS, HEADER_BYTES):
        line, newline, _ = os.pread(fd, limit, 0).partition(b"\n")
        if newline:
            return line
    return None


def _bad_row(folder: str, path: Path, problem: str) -> SessionSummary:
    return SessionSummary(
        id=unquote(folder),
        header=None,
        path=str(path),
        bytes=0,
        modified_ms=0,
        revision="",
        problem=problem,
    )
