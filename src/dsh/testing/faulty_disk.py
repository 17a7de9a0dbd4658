"""A disk for session logs that fails at one call, whichever a test wants.

What comes in: the number of a call and an errno. What goes out: a real disk until that call, and
the error from there on until it is healed. A write never takes more than half of what it is given.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from dsh.seams.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["FaultyDisk"]

T = TypeVar("T")


class FaultyDisk(Disk):
    """Fails with `code` from the call number `at` on, counted from 0, until `healed` is set.

    `calls` are the names of the calls so far.
    """

    def __init__(self, at: int, code: int) -> None:
        self.at = at
        self.code = code
        self.calls: list[str] = []
        self.healed = False

    def _call(self, name: str, act: Callable[[], T]) -> T:
        self.calls.append(name)
        if not self.healed and len(self.calls) > self.at:
            raise OSError(self.code, os.strerror(self.code))
        return act()

    @override
    def open(self, path: Path, flags: int) -> int:
        return self._call("open", lambda: super(FaultyDisk, self).open(path, flags))

    @override
    def write(self, fd: int, data: memoryview, at: int) -> int:
        half = data[: max(1, len(data) // 2)]
        return self._call("write", lambda: super(FaultyDisk, self).write(fd, half, at))

    @override
    def sync(self, fd: int) -> None:
        self._call("sync", lambda: super(FaultyDisk, self).sync(fd))

    @override
    def truncate(self, fd: int, length: int) -> None:
        self._call("truncate", lambda: super(FaultyDisk, self).truncate(fd, length))

    @override
    def stat(self, fd: int) -> os.stat_result:
        return self._call("stat", lambda: super(FaultyDisk, self).stat(fd))

    @override
    def link(self, source: Path, target: Path) -> None:
        self._call("link", lambda: super(FaultyDisk, self).link(source, target))

    @override
    def rename(self, source: Path, target: Path) -> None:
        self._call("rename", lambda: super(FaultyDisk, self).rename(source, target))

    @override
    def unlink(self, path: Path) -> None:
        self._call("unlink", lambda: super(FaultyDisk, self).unlink(path))

    @override
    def make_folder(self, path: Path) -> None:
        self._call("make_folder", lambda: super(FaultyDisk, self).make_folder(path))

    @override
    def lock(self, fd: int) -> None:
        self._call("lock", lambda: super(FaultyDisk, self).lock(fd))
