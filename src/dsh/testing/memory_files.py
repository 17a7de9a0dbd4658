"""Files that are nowhere: a second provider behind the file seam, for tests.

What comes in: texts by absolute path. What goes out: what the seam promises of them, with versions
and conditions. No disk is touched; there are no links, no ignore files and no encodings but UTF-8.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final, final

import trio
from attrs import frozen
from typing_extensions import override

from dsh.kernel import Context, Plugin, plugin
from dsh.seams.fs import (
    FS,
    Condition,
    Edited,
    Entry,
    FileSystem,
    FsError,
    Matches,
    Page,
    Query,
    Stat,
    Target,
    Walk,
    Written,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MemoryFiles", "memory_files"]


@frozen
class _File:
    text: str
    version: int


@final
class MemoryFiles(FileSystem):
    """A tree in memory. `texts` shows what it holds now, by absolute path."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._changes = 0
        self._files: Final[dict[str, _File]] = {}
        for path, text in (texts or {}).items():
            self._put(path, text)

    @property
    def texts(self) -> Mapping[str, str]:
        """All files."""
        return {path: file.text for path, file in sorted(self._files.items())}

    def _put(self, path: str, text: str) -> _File:
        self._changes += 1
        self._files[path] = _File(text, self._changes)
        return self._files[path]

    def _found(self, target: Target) -> _File:
        found = self._files.get(target.path)
        if found is None:
            if self._is_folder(target.path):
                told = f"{target.display} is a directory; list its files with glob"
                raise FsError(told, code="FS_NOT_REGULAR_FILE")
            raise FsError(f"{target.display} does not exist", code="FS_NOT_FOUND")
        return found

    def _is_folder(self, path: str) -> bool:
        return any(name.startswith(path.rstrip("/") + "/") for name in self._files)

    def _check(self, target: Target, condition: Condition | None) -> None:
        found = self._files.get(target.path)
        if condition is None:
            return
        if condition.version is None and found is not None:
            told = f"{target.display} exists and was not read in this session; read it first"
            raise FsError(told, code="FS_NOT_OBSERVED")
        if condition.version is not None and (
            found is None or str(found.version) != condition.version
        ):
            told = f"{target.display} was changed since it was read; read it again"
            raise FsError(told, code="FS_STALE_VERSION")

    @override
    def place(self, path: str, cwd: str) -> Target:
        real = posixpath.normpath(posixpath.join(cwd, path))
        inside = real == cwd or real.startswith(cwd.rstrip("/") + "/")
        shown = posixpath.relpath(real, cwd) if inside else real
        return Target(path=real, key=real, display=shown, outside=not inside)

    @override
    async def locate(self, path: str, cwd: str) -> Target:
        await trio.lowlevel.checkpoint()
        return self.place(path, cwd)

    @override
    async def stat(self, target: Target) -> Stat | None:
        await trio.lowlevel.checkpoint()
        found = self._files.get(target.path)
        if found is not None:
            return Stat(kind="file", size=len(found.text.encode()), version=str(found.version))
        return Stat(kind="directory", size=0, version="") if self._is_folder(target.path) else None

    @override
    async def read(
        self, target: Target, *, start: int, count: int, line_max: int, byte_max: int
    ) -> Page:
        await trio.lowlevel.checkpoint()
        found = self._found(target)
        whole = found.text.removesuffix("\n").split("\n") if found.text else []
        lines: list[str] = []
        for line in whole[start - 1 : start - 1 + count]:
            room = byte_max - sum(len(one.encode()) for one in lines)
            if lines and len(line[:line_max].encode()) > room:
                break
            lines.append(line[:line_max])
        cut = [
            (number, len(line))
            for number, line in enumerate(whole[start - 1 : start - 1 + len(lines)], start)
            if len(line) > line_max
        ]
        return Page(
            start=start,
            lines=tuple(lines),
            cut=tuple(cut),
            total_lines=len(whole),
            total_bytes=len(found.text.encode()),
            encoding="utf-8",
            crlf=False,
            version=str(found.version),
        )

    @override
    async def write(self, target: Target, text: str, condition: Condition | None) -> Written:
        await trio.lowlevel.checkpoint()
        self._check(target, condition)
        created = target.path not in self._files
        made = self._put(target.path, text)
        size = len(text.encode())
        return Written(version=str(made.version), created=created, size=size, kept=())

    @override
    async def edit(
        self, target: Target, old: str, new: str, *, every: bool, condition: Condition | None
    ) -> Edited:
        await trio.lowlevel.checkpoint()
        text = self._found(target).text
        self._check(target, condition)
        count = text.count(old)
        if not count:
            raise FsError(f"old_string is not in {target.display}", code="FS_EDIT_NOT_FOUND")
        if not every and text.find(old) != text.rfind(old):
            told = f"old_string stands {max(count, 2)} times in {target.display}"
            raise FsError(told, code="FS_AMBIGUOUS_EDIT")
        made = self._put(target.path, text.replace(old, new))
        line = text.count("\n", 0, text.find(old)) + 1
        return Edited(version=str(made.version), replaced=count, line=line)

    @override
    async def list(self, target: Target) -> Sequence[Entry]:
        await trio.lowlevel.checkpoint()
        if target.path in self._files or not self._is_folder(target.path):
            raise FsError(f"{target.display} is not a directory", code="FS_NOT_DIRECTORY")
        names: dict[str, int] = {}
        for entry in self._below(target):
            name, slash, _ = entry.path.partition("/")
            names[name + slash] = 0 if slash else entry.size
        return [Entry(path=name, size=size) for name, size in sorted(names.items())]

    @override
    async def walk(self, target: Target, *, workspace: str, ignored: bool) -> Walk:
        del workspace, ignored
        await trio.lowlevel.checkpoint()
        return Walk(files=tuple(self._below(target)), complete=True)

    def _below(self, target: Target) -> Sequence[Entry]:
        root = target.path.rstrip("/") + "/"
        return [
            Entry(path=path.removeprefix(root), size=len(text.encode()))
            for path, text in self.texts.items()
            if path.startswith(root)
        ]

    @override
    async def search(self, root: Target, files: Sequence[Entry], query: Query) -> Matches:
        await trio.lowlevel.checkpoint()
        try:
            wanted = re.compile(query.pattern, re.IGNORECASE if query.ignore_case else 0)
        except re.error as error:
            told = f"the pattern is no regular expression: {error}"
            raise FsError(told, code="FS_ABORTED") from None
        rows: list[tuple[int, int, str, bool]] = []
        matches, where = 0, set[int]()
        for index, entry in enumerate(files):
            text = self._files[posixpath.join(root.path, entry.path)].text
            lines = text.removesuffix("\n").split("\n")
            hits = [number for number, line in enumerate(lines) if wanted.search(line)]
            shown = hits[: max(0, query.limit - matches)]
            near = {n for hit in shown for n in range(hit - query.context, hit + query.context + 1)}
            rows += [
                (index, n + 1, lines[n], n in shown) for n in sorted(near) if 0 <= n < len(lines)
            ]
            matches += len(hits)
            where |= {index} if hits else set()
        return Matches(lines=tuple(rows), matches=matches, files=len(where), skipped=0)


def memory_files(files: FileSystem, *, name: str = "memory-files") -> Plugin:
    """A plugin that provides `files` behind the seam, in place of the row `fs-local`."""

    @plugin(name=name, provides=(FS,))
    async def apply(ctx: Context) -> None:
        ctx.provide(FS, files)

    return apply
