"""A disk that loses, with the power, whatever no sync has proved.

What comes in: the calls of a store and what SQLite does below it. What goes out: the files as they
would be after a loss of power now, at the worst: nothing that was not synced, and what a failed
sync dropped is not written by a later one. A name is there once its folder was synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from attrs import define, field
from typing_extensions import override

from dsh.testing.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LosingDisk"]


@define
class _File:
    """What the device has of a file, and what it has not been forced to take."""

    proved: bytearray = field(factory=bytearray)
    #: Writes at an offset; a truncation has no data.
    pending: list[tuple[int, bytes | None]] = field(factory=list[tuple[int, "bytes | None"]])

    def did(self, call: str, at: int = 0, data: bytes = b"") -> None:
        """Take note of a change."""
        match call:
            case "write":
                self.pending.append((at, data))
            case "truncate":
                self.pending.append((at, None))
            case "sync":
                self._prove()
            case _:
                self.pending.clear()

    def _prove(self) -> None:
        for at, data in self.pending:
            if data is None:
                del self.proved[at:]
            else:
                self.proved.extend(bytes(max(0, at - len(self.proved))))
                self.proved[at : at + len(data)] = data
        self.pending.clear()


@final
class LosingDisk(FaultyDisk):
    """Also fails like any other. Hand `did` to `below_sqlite`."""

    def __init__(self, at: int, code: int, *, once: bool = False) -> None:
        super().__init__(at, code, once=once)
        self._names: Final[dict[Path, _File]] = {}
        self._proved_names: Final[dict[Path, _File]] = {}
        #: What is open: a file, or the folder of this path.
        self._open: Final[dict[int, _File | Path]] = {}

    def did(self, call: str, path: Path, at: int, data: bytes) -> None:
        """Take note of a change of a file."""
        if call == "unlink":
            self._names.pop(path, None)
        elif call == "sync folder of":
            self._sync_folder(path.parent)
        else:
            self._names.setdefault(path, _File()).did(call, at, data)

    def loses_power(self, folder: Path, into: Path) -> None:
        """Put what would be left of `folder` into another one."""
        for path, file in self._proved_names.items():
            if path.is_relative_to(folder) and not path.name.endswith("-shm"):
                copy = into / path.relative_to(folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(file.proved)

    def _sync_folder(self, folder: Path) -> None:
        for path in [path for path in self._proved_names if path.parent == folder]:
            del self._proved_names[path]
        new = {path: file for path, file in self._names.items() if path.parent == folder}
        self._proved_names.update(new)

    @override
    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        self._open[fd] = path if path.is_dir() else self._names.setdefault(path, _File())
        return fd

    @override
    def write(self, fd: int, data: memoryview, at: int) -> int:
        taken = super().write(fd, data, at)
        self._file(fd).did("write", at, bytes(data[:taken]))
        return taken

    @override
    def sync(self, fd: int) -> None:
        synced = self._open[fd]
        try:
            super().sync(fd)
        except OSError:
            if isinstance(synced, _File):
                synced.did("lose")
            raise
        if isinstance(synced, _File):
            synced.did("sync")
        else:
            self._sync_folder(synced)

    @override
    def truncate(self, fd: int, length: int) -> None:
        super().truncate(fd, length)
        self._file(fd).did("truncate", length)

    def _file(self, fd: int) -> _File:
        found = self._open[fd]
        assert isinstance(found, _File)
        return found

    @override
    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self._names[target] = self._names[source]

    @override
    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._names[target] = self._names.pop(source)

    @override
    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._names.pop(path, None)
