"""Payloads that are too large for a line: files beside the log, named by what they contain.

What comes in: lines to write, or lines as read. What goes out: the same lines with a reference in
place of a large payload, or with the payload back in its place. Content is written and synced
before the line that names it, and never changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

from dsh.wire import with_payload, without_large_payloads

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.seams.disk import Disk

__all__ = ["BLOB_FOLDER", "Blobs"]

BLOB_FOLDER: Final = "blobs"


@final
class Blobs:
    """The blobs of one log, in the folder `blobs` beside it, which is made with the first one."""

    def __init__(self, disk: Disk, log: Path) -> None:
        self._disk: Final = disk
        self._folder: Final = log.with_name(BLOB_FOLDER)

    def spilled(self, rows: bytes) -> bytes:
        """`rows` with the payload of every line that is too long in a blob, written and synced.

        Raises OSError; what was written by then is found again by its name.
        """
        return without_large_payloads(rows, self._keep)

    def _keep(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if path.exists():
            return
        self._disk.make_folder(self._folder)
        draft = self._folder / f".{name}.{os.getpid()}.tmp"
        fd = self._disk.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            self._disk.write_all(fd, data, 0)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._disk.rename(draft, path)
        self._disk.sync_folder(self._folder)

    def whole(self, line: bytes) -> bytes:
        """A line with its payload back in its place; most lines come back as they are.

        Raises WireFault for a blob that is missing or not what its name says.
        """
        return with_payload(line, self._find, place=lambda name: str(self._folder / name))

    def _find(self, name: str) -> bytes:
        return self._disk.read(self._folder / name)

    def remove(self) -> None:
        """Take all blobs away, and their folder. Raises OSError."""
        if self._folder.is_dir():
            for path in sorted(self._folder.iterdir()):
                self._disk.unlink(path)
            self._folder.rmdir()
