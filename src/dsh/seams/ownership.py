"""Ownership of a session id among all processes of a machine: the lock file that stores share.

What comes in: the path of a lock file. What goes out: a held lock, or SessionBusy that names the
owner. The system releases the lock when its process ends, however it ends, so a lock file that a
dead process left behind blocks nobody; process ids are shown and never trusted. What the lock
guards is the store's affair.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

import orjson

from dsh.errors import SessionBusy, StorageFailed

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.seams.disk import Disk

__all__ = ["SessionLock", "busy"]

_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class SessionLock:
    """A lock that is held from the moment it exists until `release`."""

    def __init__(
        self, disk: Disk, path: Path, *, session_id: str, now_ms: int, plugin: str, place: str
    ) -> None:
        """Take the lock. Raises SessionBusy, or StorageFailed when the file cannot be made.

        `plugin` is the store's name and `place` its setting that says where sessions are.
        """
        self._disk: Final = disk
        self._log: Final = logging.getLogger(f"dsh.plugin.{plugin}")
        self._path: Final = path
        self._fd = -1
        try:
            disk.make_folder(path.parent)
            self._fd = self._take(session_id)
            self._sign(now_ms)
        except OSError as error:
            self.release()
            raise StorageFailed(
                f"session {session_id!r} cannot be owned: {path}: {error.strerror}; "
                f"make the folder writable, or set {plugin}.{place} to another"
            ) from error

    def release(self) -> None:
        """Let others own the id. Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                # While the lock is held: whoever opened the old file finds that its name is gone.
                self._disk.unlink(self._path)
            except OSError:
                # A lock file that stays blocks nobody: the lock goes with the descriptor.
                self._log.info("%s: could not be removed", self._path)
            finally:
                try:
                    self._disk.close(fd)
                except OSError:
                    # Something else has closed it; then the lock is gone already.
                    self._log.warning("%s: its descriptor was closed by something else", self._path)

    def _take(self, session_id: str) -> int:
        while True:
            fd = self._disk.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                self._lock(fd, session_id)
                if self._is_named(fd):
                    return fd
            except BaseException:
                self._disk.close(fd)
                raise
            # Its owner let go and unlinked it between our open and our lock.
            self._disk.close(fd)

    def _lock(self, fd: int, session_id: str) -> None:
        try:
            self._disk.lock(fd)
        except BlockingIOError:
            raise busy(session_id, os.pread(fd, 4096, 0)) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            self._log.warning(
                "%s: this file system has no locks; two writers are noticed only when one of "
                "them finds the log changed",
                self._path,
            )

    def _is_named(self, fd: int) -> bool:
        held = self._disk.stat(fd)
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)

    def _sign(self, now_ms: int) -> None:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": now_ms}
        self._disk.truncate(self._fd, 0)
        self._disk.write(self._fd, memoryview(orjson.dumps(owner)), 0)


def busy(session_id: str, signature: bytes) -> SessionBusy:
    """The refusal that names the owner, as far as the lock file tells."""
    try:
        read: object = orjson.loads(signature)
    except orjson.JSONDecodeError:
        read = None
    owner = cast("dict[str, object]", read) if isinstance(read, dict) else {}
    pid, host, started = owner.get("pid"), owner.get("host"), owner.get("started")
    if not isinstance(pid, int) or not isinstance(host, str) or not isinstance(started, int):
        who = "another process"
    else:
        since = datetime.fromtimestamp(started / 1000, UTC).isoformat(timespec="seconds")
        here = "this process, " if pid == os.getpid() and host == socket.gethostname() else ""
        who = f"{here}pid {pid} on {host}, since {since}"
    return SessionBusy(
        f"session {session_id!r} is open for writing elsewhere: {who}; "
        "close it there, or only look at it here (reading works)"
    )
