"""Payloads that are too large for a line: files beside the log, named by what they contain.

What comes in: lines to write, or lines as read. What goes out: the same lines with a reference in
place of a large payload, or with the payload back in its place. A payload is proved by its name
when it is read; one that is missing or changed is a fault of its line.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Final, final

import orjson

from dsh.wire import WireFault

if TYPE_CHECKING:
    from pathlib import Path

    from dsh_plugins.session_jsonl.disk import Disk

__all__ = ["BLOB_BYTES", "BLOB_FOLDER", "Blobs"]

#: A longer line keeps its payload in a blob.
BLOB_BYTES: Final = 256 * 1024
BLOB_FOLDER: Final = "blobs"
#: In an envelope `data` is the last field, and no string before it can hold this unescaped.
_DATA: Final = b',"data":'
_REFERENCE: Final = re.compile(rb'\{"\$blob":"([0-9a-f]{64})","bytes":([0-9]+)\}')
#: Longer than any reference, so that the end of a line tells whether it can be one.
_TAIL: Final = 160


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
        return b"\n".join(
            line if len(line) <= BLOB_BYTES else self._shortened(line) for line in rows.split(b"\n")
        )

    def _shortened(self, line: bytes) -> bytes:
        head, found, data = line[:-1].partition(_DATA)
        if not found or not line.endswith(b"}"):
            return line
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError:
            return line  # a line of somebody else, with its fields in another order
        name = hashlib.sha256(data).hexdigest()
        self._keep(name, data)
        return b'%b%b{"$blob":"%b","bytes":%d}}' % (head, _DATA, name.encode(), len(data))

    def _keep(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if path.exists():
            return
        self._disk.make_folder(self._folder)
        draft = self._folder / f".{name}.{os.getpid()}.tmp"
        fd = self._disk.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            view, at = memoryview(data), 0
            while view:
                taken = self._disk.write(fd, view, at)
                view, at = view[taken:], at + taken
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._disk.rename(draft, path)
        folder = self._disk.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._disk.sync(folder)
        finally:
            self._disk.close(folder)

    def whole(self, line: bytes) -> bytes:
        """A line with its payload back in its place; most lines come back as they are.

        Raises WireFault for a blob that is missing or not what its name says.
        """
        if b'{"$blob":' not in line[-_TAIL:]:
            return line
        head, found, data = line[:-1].partition(_DATA)
        reference = _REFERENCE.fullmatch(data) if found else None
        if reference is None:
            return line
        path = self._folder / reference[1].decode()
        try:
            kept = self._disk.read(path)
        except OSError as error:
            raise WireFault(f"its payload is in {path}: {error.strerror}") from None
        if hashlib.sha256(kept).hexdigest() != reference[1].decode():
            raise WireFault(f"its payload in {path} is not as it was written")
        return b"%b%b%b}" % (head, _DATA, kept)

    def remove(self) -> None:
        """Take all blobs away, and their folder. Raises OSError."""
        if self._folder.is_dir():
            for path in sorted(self._folder.iterdir()):
                self._disk.unlink(path)
            self._folder.rmdir()
