"""The few system calls that a store of session logs needs, as one object that a test may replace.

What comes in: paths, descriptors, bytes and offsets. What goes out: what the system says; errors
are OSError as raised. Nothing is retried, buffered or interpreted here.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Disk"]

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Disk:
    """The real disk. But for the last three, a method is one call: a fault can be put at each."""

    def open(self, path: Path, flags: int) -> int:
        """Open, private to its owner; a new file gets 0600."""
        return os.open(path, flags, 0o600)

    def close(self, fd: int) -> None:
        """Close; a lock held through `fd` is released."""
        os.close(fd)

    def read(self, path: Path) -> bytes:
        """The whole content of a file."""
        return path.read_bytes()

    def write(self, fd: int, data: memoryview, at: int) -> int:
        """Write at an offset; returns how many bytes were taken, perhaps fewer than given."""
        return os.pwrite(fd, data, at)

    def sync(self, fd: int) -> None:
        """Force what was written through to the device."""
        os.fsync(fd)

    def truncate(self, fd: int, length: int) -> None:
        """Cut the file off at `length`."""
        os.ftruncate(fd, length)

    def stat(self, fd: int) -> os.stat_result:
        """Size, link count and identity of an open file."""
        return os.fstat(fd)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if the name is taken."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        """Take a name away; a missing one is no error."""
        path.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, 0700; existing ones stay as they are."""
        if not path.is_dir():
            if path.parent != path:
                self.make_folder(path.parent)
            path.mkdir(mode=0o700, exist_ok=True)

    def lock(self, fd: int) -> None:
        """Take the exclusive lock of an open file, or raise BlockingIOError at once."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write_all(self, fd: int, data: bytes, at: int) -> None:
        """Write at an offset until all is taken."""
        view = memoryview(data)
        while view:
            taken = self.write(fd, view, at)
            view = view[taken:]
            at += taken

    def sync_folder(self, folder: Path) -> None:
        """Force the names in a folder through to the device."""
        fd = self.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync(fd)
        finally:
            self.close(fd)

    def give_name(self, draft: Path, path: Path) -> None:
        """Make the file `draft` appear as `path`, whole; its first name may stay.

        FileExistsError if the name is taken. Without hard links the draft is renamed, which cannot
        tell whether somebody took the name in between: then the caller must hold a lock.
        """
        try:
            self.link(draft, path)
        except OSError as error:
            if error.errno not in _NO_LINKS or path.exists():
                raise
            self.rename(draft, path)
