"""The write handle of one log file: every row at its own offset, or not at all.

What comes in: committed events in seq order. What goes out: lines in the file, synced when asked.
A write that fails is taken back, so the file holds whole batches; a file that somebody else changed
is never written. The handle owns the id's lock and a descriptor; `aclose` gives both back.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import trio
from typing_extensions import override

from dsh.errors import SessionBusy, SessionClosed, StorageFailed
from dsh.kernel import Exclusive
from dsh.seams.persistence import WriteHandle
from dsh.wire import BLOB_BYTES, encode_header, refuse_unreadable, seal_row
from dsh_plugins.session_jsonl.blobs import Blobs
from dsh_plugins.session_jsonl.reading import read_log
from dsh_plugins.session_jsonl.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dsh.catalog.records import SessionHeader
    from dsh.seams.disk import Disk
    from dsh.seams.ownership import SessionLock
    from dsh.wire import StoredEvent
    from dsh_plugins.session_jsonl.reading import ReadLog

__all__ = ["JsonlHandle"]

#: Larger batches are written by a worker thread; smaller ones cost less than handing them over.
INLINE_BYTES: Final = 64 * 1024
#: A write that took longer was not a copy into memory: the next ones go to a worker thread, until
#: one of them is quick again.
SLOW_SECONDS: Final = 0.005


@final
class JsonlHandle(WriteHandle):
    """Made by the store: for a new log with `found` None, else with what the file holds."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        lock: SessionLock,
        *,
        header: SessionHeader,
        found: ReadLog | None = None,
    ) -> None:
        self._disk: Final = disk
        self._path: Final = path
        self._draft: Final = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._blobs: Final = Blobs(disk, path)
        self._lock: Final = lock
        self._header: Final = header
        self._opened: ReadLog | None = found
        self._fd = -1
        self._closed = False
        events = () if found is None else found.events
        self._next_seq = len(events)
        self._last: StoredEvent | None = events[-1] if events else None
        #: Where the next row goes. What the file has beyond it is a torn end, cut off first.
        self._length = 0 if found is None else found.good
        self._size = self._length
        #: Checksum of the lines since the newest seal; the next sync seals them.
        self._crc = 0 if found is None else found.crc
        #: Rows since the last sync. A failed sync may have dropped them from the system's memory.
        self._unsynced: list[tuple[int, bytes]] = []
        self._sync_failed = False
        self._slow = False
        self._unsynced_folders: list[Path] = []
        self._writing: Final = Exclusive()
        self._syncing: Final = Exclusive()
        if found is not None:
            self._fd = disk.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._size = disk.stat(self._fd).st_size
            except BaseException:
                disk.close(self._fd)
                raise

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
        if found is None or len(found.events) != self._next_seq:
            if self._fd < 0:
                return ()
            data = await trio.to_thread.run_sync(self._disk.read, self._path)
            found = read_log(
                data, path=str(self._path), session_id=self._header.id, blobs=self._blobs
            )
        refuse_unreadable(found.events, session=self._header.id)
        return found.events

    @override
    async def append(
        self, events: Sequence[StoredEvent], *, encoded: Sequence[bytes | None] | None = None
    ) -> None:
        if self._closed:
            raise SessionClosed(f"the write handle of session {self._header.id!r} is closed")
        async with self._writing:
            if not events:
                return
            rows = self.rows(events, encoded=encoded, before=self._last)
            if len(rows) > BLOB_BYTES:
                rows = await self._without_large_payloads(rows)
            if self._fd < 0:
                await trio.to_thread.run_sync(self._publish, rows)
            elif len(rows) <= INLINE_BYTES and not self._slow:
                self._write_timed(rows)
            else:
                await trio.to_thread.run_sync(self._write_timed, rows)
            self._next_seq += len(events)
            self._last = events[-1]

    @override
    async def flush(self) -> None:
        if self._closed:
            raise SessionClosed(f"the write handle of session {self._header.id!r} is closed")
        await self._seal()
        async with self._syncing:
            await self._sync()

    @override
    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with trio.CancelScope(shield=True):
            try:
                with suppress(SessionBusy):  # somebody else's log now: nothing of ours to seal
                    await self._seal()
                async with self._syncing:
                    await self._sync()
            finally:
                fd, self._fd = self._fd, -1
                if fd >= 0:
                    with suppress(
                        OSError
                    ):  # closed by something else: nothing is left to give back
                        self._disk.close(fd)
                    self._drop_draft()
                self._lock.release()

    async def _without_large_payloads(self, rows: bytes) -> bytes:
        try:
            return await in_thread(self._blobs.spilled, rows)
        except OSError as error:
            raise self._failed("write", error) from error

    def _write_timed(self, rows: bytes) -> None:
        started = time.perf_counter()
        self._write(rows)
        self._slow = time.perf_counter() - started > SLOW_SECONDS and len(rows) <= INLINE_BYTES

    def _write(self, rows: bytes) -> None:
        """Put rows at the end, whole or not at all. Runs where it is called."""
        try:
            self._refuse_foreign()
            if self._size != self._length:
                self._disk.truncate(self._fd, self._length)
                self._size = self._length
            self._disk.write_all(self._fd, rows, self._length)
        except OSError as error:
            self._take_back()
            raise self._failed("write", error) from error
        self._unsynced.append((self._length, rows))
        self._length += len(rows)
        self._size = self._length
        self._crc = zlib.crc32(rows, self._crc)

    async def _seal(self) -> None:
        """Seal what no seal covers yet: what will be acknowledged can be proved later."""
        async with self._writing:
            if self._fd < 0 or not self._crc:
                return
            if self._slow:
                await in_thread(self._write, seal_row(self._crc))
            else:
                self._write(seal_row(self._crc))
            self._crc = 0

    def _refuse_foreign(self) -> None:
        now = self._disk.stat(self._fd)
        if (self._size >= 0 and now.st_size != self._size) or now.st_nlink == 0:
            what = (
                "was deleted" if now.st_nlink == 0 else f"has {now.st_size} bytes, not {self._size}"
            )
            raise SessionBusy(
                f"{self._path} {what}: somebody else changed it while session "
                f"{self._header.id!r} was open here; nothing was written. Resume it to go on"
            )

    def _take_back(self) -> None:
        try:
            self._size = self._disk.stat(self._fd).st_size
            if self._size > self._length:
                self._disk.truncate(self._fd, self._length)
                self._size = self._length
        except OSError:
            # What is left beyond `_length` is cut off by the next write; until then readers see an
            # unfinished line that they ignore, or whole rows of this very batch.
            self._size = -1

    def _publish(self, rows: bytes) -> None:
        """Make the file: header and first rows, complete and synced before it has its name."""
        data = encode_header(self._header) + b"\n" + rows
        folder = self._path.parent
        above = (folder.parent, folder.parent.parent)
        made = [
            one for one, inner in zip(above, (folder, above[0]), strict=True) if not inner.is_dir()
        ]
        fd = -1
        try:
            self._disk.make_folder(folder)
            fd = self._disk.open(self._draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
            self._disk.write_all(fd, data, 0)
            self._disk.sync(fd)
            self._disk.give_name(self._draft, self._path)  # under the lock of the id
        except OSError as error:
            if fd >= 0:
                self._disk.close(fd)
            self._drop_draft()
            raise self._failed("first write", error) from error
        # It has its name, so it is written. That the name survives a loss of power is proved by
        # the next sync, which includes the folders whose content changed.
        self._unsynced_folders = [folder, *made]
        self._drop_draft()
        self._fd = fd
        self._length = self._size = len(data)
        self._crc = zlib.crc32(data)

    def _drop_draft(self) -> None:
        try:
            self._disk.unlink(self._draft)
        except OSError:
            # Tried again when the handle is closed; readers do not look at it.
            return

    async def _sync(self) -> None:
        if not self._unsynced and not self._unsynced_folders:
            return
        rows = self._unsynced[:]
        try:
            await in_thread(self._sync_now, rows if self._sync_failed else [])
        except OSError as error:
            self._sync_failed = True
            raise self._failed("sync", error) from error
        self._sync_failed = False
        self._unsynced_folders = []
        del self._unsynced[: len(rows)]

    def _sync_now(self, again: Sequence[tuple[int, bytes]]) -> None:
        # After a failed sync the system may hold rows as clean that never reached the device:
        # writing the same bytes again makes the next sync prove something.
        for at, rows in again:
            self._disk.write_all(self._fd, rows, at)
        if self._unsynced:
            self._disk.sync(self._fd)
        for folder in self._unsynced_folders:
            self._disk.sync_folder(folder)

    def _failed(self, doing: str, error: OSError) -> StorageFailed:
        return StorageFailed(
            f"{self._path}: {doing} failed: {error.strerror or error}; what was acknowledged "
            "before is safe. Free space or repair the disk, then try again"
        )
