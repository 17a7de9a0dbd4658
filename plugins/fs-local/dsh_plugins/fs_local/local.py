"""The local disk behind the file seam: blocking work in threads, one writer per file at a time.

What comes in: the seam's operations. What goes out: their results. Writes and edits of one file
queue in the order in which they came; once one has begun it is finished, also under cancellation,
so that it is never unclear whether a file was changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

import trio
from attrs import field, mutable
from typing_extensions import override

from dsh.seams.fs import (
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
from dsh_plugins.fs_local.disk import edit_file, stat_of, write_file
from dsh_plugins.fs_local.names import locate
from dsh_plugins.fs_local.pages import read_page
from dsh_plugins.fs_local.walking import list_folder, walk_files

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

__all__ = ["LocalFiles"]

T = TypeVar("T")

SEARCHER: Final = str(Path(__file__).with_name("searcher.py"))
SEARCH_SECONDS: Final = 30.0


@mutable(slots=True, eq=False)
class _Turnstile:
    lock: trio.Lock = field(factory=trio.Lock)
    users: int = 0


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work, abandon_on_cancel=False)


class LocalFiles(FileSystem):
    """Files of this machine."""

    def __init__(self, *, search_seconds: float = SEARCH_SECONDS) -> None:
        self._turnstiles: dict[str, _Turnstile] = {}
        self._search_seconds = search_seconds

    @asynccontextmanager
    async def _alone(self, target: Target) -> AsyncGenerator[None, None]:
        """One writer per resolved path; waiting is first come, first served, and cancellable."""
        turnstile = self._turnstiles.setdefault(target.path, _Turnstile())
        turnstile.users += 1
        try:
            async with turnstile.lock:
                with trio.CancelScope(shield=True):
                    yield
        finally:
            turnstile.users -= 1
            if not turnstile.users:
                self._turnstiles.pop(target.path, None)

    @override
    def place(self, path: str, cwd: str) -> Target:
        return locate(path, cwd)

    @override
    async def locate(self, path: str, cwd: str) -> Target:
        return await _in_thread(partial(locate, path, cwd))

    @override
    async def stat(self, target: Target) -> Stat | None:
        return await _in_thread(partial(stat_of, target))

    @override
    async def read(
        self, target: Target, *, start: int, count: int, line_max: int, byte_max: int
    ) -> Page:
        page = partial(read_page, target, start=start, count=count)
        return await _in_thread(partial(page, line_max=line_max, byte_max=byte_max))

    @override
    async def write(self, target: Target, text: str, condition: Condition | None) -> Written:
        async with self._alone(target):
            return await _in_thread(partial(write_file, target, text, condition))

    @override
    async def edit(
        self, target: Target, old: str, new: str, *, every: bool, condition: Condition | None
    ) -> Edited:
        work = partial(edit_file, target, old, new, every=every, condition=condition)
        async with self._alone(target):
            return await _in_thread(work)

    @override
    async def list(self, target: Target) -> Sequence[Entry]:
        return await _in_thread(partial(list_folder, target))

    @override
    async def walk(self, target: Target, *, workspace: str, ignored: bool) -> Walk:
        return await _in_thread(partial(walk_files, target, workspace, ignored=ignored))

    @override
    async def search(self, root: Target, files: Sequence[Entry], query: Query) -> Matches:
        if not files:
            return Matches(lines=(), matches=0, files=0, skipped=0)
        order = {
            "root": root.path,
            "pattern": query.pattern,
            "ignore_case": query.ignore_case,
            "context": query.context,
            "limit": query.limit,
        }
        names = b"\x00".join(os.fsencode(entry.path) for entry in files)
        with trio.move_on_after(self._search_seconds):
            done = await trio.run_process(
                [sys.executable, "-I", "-S", SEARCHER],
                stdin=json.dumps(order).encode() + b"\n" + names,
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                check=False,
                env={},
                deliver_cancel=_kill,
            )
            return _matches(done.stdout, done.returncode)
        raise FsError(
            f"the search took longer than {self._search_seconds:g} s; use a simpler pattern, "
            "or fewer files with `path` and `glob`",
            code="FS_ABORTED",
        )


async def _kill(process: trio.Process) -> None:
    process.kill()


def _matches(output: bytes, status: int) -> Matches:
    rows: list[object] = [json.loads(line) for line in output.splitlines()]
    last = rows.pop() if rows else None
    if status != 0 or not isinstance(last, dict):
        raise FsError(f"the search process failed (exit status {status})", code="FS_IO_ERROR")
    totals = cast("dict[str, object]", last)
    if "refused" in totals:
        told = f"the pattern is no regular expression: {totals['refused']}"
        raise FsError(told, code="FS_ABORTED")
    lines = cast(
        "list[tuple[int, int, str, bool]]", [tuple(cast("list[object]", row)) for row in rows]
    )
    counts = cast("dict[str, int]", totals)
    return Matches(
        lines=tuple(lines),
        matches=counts["matches"],
        files=counts["files"],
        skipped=counts["skipped"],
    )
