"""The watcher: edited files of plugins, of the composition and of the settings.

What comes in: a running house. What goes out: one reload for each package whose source changed, one
look at the composition when a file of it did, a tenth of a second after the last change. It waits
in a thread of its own and is imported only by whoever wants it.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from watchfiles import PythonFilter
from watchfiles._rust_notify import RustNotify
from watchfiles.main import Change

from dsh.boot.modules import source_folders
from dsh.boot.news import News
from dsh.boot.places import PROJECT_FILE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from dsh.boot.harness import Harness
    from dsh.boot.live import Live

__all__ = ["watching"]

#: Milliseconds without a further change before a change counts as whole.
QUIET_MS: Final = 100
#: Milliseconds after which it counts as whole although changes go on.
PATIENCE_MS: Final = 1000
POLL_MS: Final = 300


@asynccontextmanager
async def watching(harness: Harness) -> AsyncGenerator[None]:
    """Follow edited files for the length of the block. `harness.live.tell` hears what happens.

    When the block is entered, the files are watched already. A machine that cannot watch files is
    reported once, and the block runs all the same.
    """
    live = harness.live
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(_follow, live, _sources, _reload)
        await nursery.start(_follow, live, _composition, _recompose)
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - raised again below, not as a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _sources(live: Live) -> frozenset[Path]:
    folders = (folder for package in live.packages() for folder in source_folders(package))
    return frozenset(folder.resolve() for folder in folders if folder.is_dir())


def _composition(live: Live) -> frozenset[Path]:
    """The folders of the files, for an editor replaces a file by another one."""
    return frozenset(file.parent.resolve() for file in _files(live) if file.parent.is_dir())


def _files(live: Live) -> tuple[Path, ...]:
    plan = live.plan
    return (plan.file if plan.file is not None else plan.cwd / PROJECT_FILE, plan.places.settings)


async def _reload(live: Live, changed: frozenset[Path]) -> None:
    source = PythonFilter()
    edited = {path for path in changed if source(Change.modified, str(path))}
    for package in live.packages():
        folders = [folder.resolve() for folder in source_folders(package)]
        if any(path.is_relative_to(folder) for path in edited for folder in folders):
            await live.reload(package)


async def _recompose(live: Live, changed: frozenset[Path]) -> None:
    if changed & {file.parent.resolve() / file.name for file in _files(live)}:
        await live.recompose()


async def _follow(
    live: Live,
    folders: Callable[[Live], frozenset[Path]],
    act: Callable[[Live, frozenset[Path]], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Watch the folders, which may become others after each change."""
    started = False
    while True:
        watched = folders(live)
        try:
            notify = RustNotify(
                watch_paths=[str(folder) for folder in watched],
                debug=False,
                force_polling=False,
                poll_delay_ms=POLL_MS,
                recursive=folders is _sources,
                ignore_permission_denied=True,
            )
        except OSError as error:
            live.tell(
                News("kept", f"files are not watched: {error}; edits take effect at the next start")
            )
            if not started:
                task_status.started()
            return
        if not started:
            task_status.started()
            started = True
        with notify:
            while folders(live) == watched:
                await act(live, await _next(notify))


async def _next(notify: RustNotify) -> frozenset[Path]:
    """The next whole change. Cancelled: the thread is told to stop, and waited for."""
    stop = threading.Event()
    found: list[Iterable[tuple[int, str]] | str] = []

    def wait() -> None:
        found.append(notify.watch(PATIENCE_MS, QUIET_MS, 0, stop))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_when_cancelled, stop)
        await trio.to_thread.run_sync(wait)
        nursery.cancel_scope.cancel()
    changes = found[0] if found else ""
    if isinstance(changes, str):
        return frozenset()
    return frozenset(Path(path) for _, path in changes)


async def _stop_when_cancelled(stop: threading.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        stop.set()
