"""A disk for session logs that fails at one call, whichever a test wants.

What comes in: the number of a call and an errno. What goes out: a real disk until that call, and
the error from there on until it is healed, or that once. What SQLite itself asks of the system
comes through `dsh.testing.below_sqlite`, and is counted here too.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from dsh.seams.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

__all__ = ["FaultyDisk", "as_stranger", "some_of_each_kind"]

T = TypeVar("T")

_STRANGER: Final[ContextVar[bool]] = ContextVar("stranger", default=False)


@contextmanager
def as_stranger() -> Generator[None, None, None]:
    """What is done in this block, and in threads that it waits for, meets no fault."""
    token = _STRANGER.set(True)
    try:
        yield
    finally:
        _STRANGER.reset(token)


def some_of_each_kind(calls: Sequence[str]) -> list[int]:
    """The places of the first, the middle and the last call of each name."""
    found: set[int] = set()
    for name in set(calls):
        places = [place for place, one in enumerate(calls) if one == name]
        found |= {places[0], places[len(places) // 2], places[-1]}
    return sorted(found)


class FaultyDisk(Disk):
    """Fails with `code` from the call number `at` on, counted from 0, until `healed` is set.

    With `once` it is that call alone, with `only` set calls of that name alone. `calls` are the
    names of the calls so far, `failed` of those that failed. A write never takes more than half of
    what it is given.
    """

    def __init__(self, at: int, code: int, *, once: bool = False) -> None:
        self.at = at
        self.code = code
        self.once = once
        self.only: str | None = None
        self.calls: list[str] = []
        self.failed: list[str] = []
        self.healed = False

    def fails(self, name: str) -> bool:
        """Count a call with this name, and say whether it is to fail."""
        if _STRANGER.get():
            return False
        self.calls.append(name)
        if self.healed or len(self.calls) <= self.at or self.only not in (None, name):
            return False
        self.healed = self.once
        self.failed.append(name)
        return True

    def _call(self, name: str, act: Callable[[], T]) -> T:
        if self.fails(name):
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
    def read(self, path: Path) -> bytes:
        return self._call("read", lambda: super(FaultyDisk, self).read(path))

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

    def asked(self, name: str) -> int:
        """The errno for a call that SQLite makes, or 0."""
        return self.code if self.fails(name) else 0
