"""A disk that fails at any call of a store: told, healed, and nothing acknowledged is lost.

One contract for both stores. Of SQLite's calls the ordinary tests take some of each kind; with
DSH_FAULTS in the environment (`nox -s faults`) it is each call, each way.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from errno import EIO, ENOSPC
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

import pytest

from dsh.errors import SessionCorrupt, SessionError, StorageFailed
from dsh.seams.disk import Disk
from dsh.session import verify
from dsh.testing import LogWriting
from dsh.testing.below_sqlite import below_sqlite, out_of_reach
from dsh.testing.faulty_disk import FaultyDisk, as_stranger, some_of_each_kind
from dsh.testing.logs import header
from dsh.wire import StoredEvent, encode_line
from dsh_plugins.session_jsonl import JsonlStore
from dsh_plugins.session_sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from dsh.seams.persistence import SessionPersistence, WriteHandle

T = TypeVar("T")

NO_SQLITE: Final = out_of_reach()
BACKENDS: Final = (
    "jsonl",
    pytest.param("sqlite", marks=pytest.mark.skipif(NO_SQLITE is not None, reason=str(NO_SQLITE))),
)
#: An errno, and whether it stays until the disk is healed.
WAYS: Final = ((EIO, False), (EIO, True), (ENOSPC, False))
EVERY_CALL: Final = "DSH_FAULTS" in os.environ  # noqa: TID251
#: What SQLite must have asked for, so that the faults are where they should be.
EVERY_KIND: Final = {
    *(f"{call} wal" for call in ("open", "read", "write", "sync", "unlink")),
    *(f"{call} journal" for call in ("open", "write", "sync", "unlink")),
    *(f"{call} db" for call in ("open", "read", "write", "sync", "truncate")),
    *(f"{call} shm" for call in ("open", "write", "truncate", "map")),
}


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def left_open(root: Path) -> list[str]:
    """The files below `root` that this process has open, where the system says."""
    open_now = Path("/proc/self/fd")
    links = list(open_now.iterdir()) if open_now.is_dir() else []
    # The descriptor that listed them is closed by now.
    found = [link.readlink() for link in links if link.is_symlink()]
    return [str(path) for path in found if path.is_relative_to(root)]


def three_batches() -> tuple[tuple[StoredEvent, ...], ...]:
    log = LogWriting()
    for _ in range(3):
        log.whole_turn("hi", "a", "b", "c")
    events = tuple(log.session.events)
    step = len(events) // 3
    return events[:step], events[step : 2 * step], events[2 * step :]


BATCHES: Final = three_batches()
EVENTS: Final = sum(BATCHES, ())


@final
class Life:
    """Create, append, sync, close, open, append, sync, close; what fails is done again, healed."""

    def __init__(self, backend: str, root: Path, disk: FaultyDisk) -> None:
        self.disk: Final = disk
        self.refused: Final[list[str]] = []
        self._backend: Final = backend
        self._root: Final = root
        self._acknowledged = 0
        self._store: Final = self._made(disk)

    def _made(self, disk: Disk) -> SessionPersistence:
        if self._backend == "jsonl":
            return JsonlStore(self._root, now_ms=lambda: 5, disk=disk)
        return SqliteStore(self._root / "sessions.db", now_ms=lambda: 5, disk=disk)

    async def lived(self) -> None:
        below = below_sqlite(self._root, self.disk.asked)
        with below if self._backend == "sqlite" else nullcontext():
            await self._lived()
            self.disk.healed = True
            with as_stranger():
                await self._looked_at()
        assert left_open(self._root) == []
        assert [path for path in self._root.rglob("*.tmp*") if path.is_file()] == []

    async def _looked_at(self) -> None:
        """As somebody finds it who comes later."""
        stranger = self._made(Disk())
        log = await stranger.read("s")
        assert lines(log.events) == lines(EVENTS)
        assert verify(log) == ()
        assert [row.problem for row in await stranger.list()] == [None]
        await (await stranger.open("s", "write")).aclose()
        for store in (stranger, self._store):
            if isinstance(store, SqliteStore):
                await store.aclose()

    async def _lived(self) -> None:
        handle = await self._got(lambda: self._store.create(header()))
        for batch in BATCHES[:2]:
            await self._goes_on(handle, batch)
        await self._done(handle.aclose)
        handle = await self._got(lambda: self._store.open("s", "write"))
        found = await self._got(handle.read_log)
        assert lines(found) == lines(EVENTS[: handle.next_seq])
        await self._goes_on(handle, BATCHES[2])
        await self._done(handle.aclose)
        assert [row.id for row in await self._got(self._store.list)] == ["s"]
        if isinstance(self._store, SqliteStore):
            await self._store.aclose()

    async def _goes_on(self, handle: WriteHandle, batch: Sequence[StoredEvent]) -> None:
        before = handle.next_seq
        if not await self._tried(partial(handle.append, batch)):
            assert handle.next_seq == before, "a refused batch is refused as a whole"
            await self._prefix_is_there()
            await handle.append(batch)
        assert handle.next_seq == before + len(batch)
        await self._prefix_is_there()
        await self._done(handle.flush)
        self._acknowledged = handle.next_seq
        await self._prefix_is_there()

    async def _prefix_is_there(self) -> None:
        """What a stranger reads is a prefix of what was appended, with all that is acknowledged."""
        with as_stranger():
            try:
                found = (await self._made(Disk()).read("s")).events
            except SessionError:
                assert not self._acknowledged
                return
        assert len(found) >= self._acknowledged
        assert lines(found) == lines(EVENTS)[: len(found)]

    async def _done(self, act: Callable[[], Awaitable[None]]) -> None:
        if not await self._tried(act):
            await act()

    async def _tried(self, act: Callable[[], Awaitable[None]]) -> bool:
        """Do it. If the disk refuses, heal the disk and say so."""
        try:
            await act()
        except (StorageFailed, SessionCorrupt) as refused:
            error = refused
        else:
            return True
        # Of a page that cannot be read SQLite says that the database is malformed.
        read = self._backend == "sqlite" and any(
            one.startswith("read ") for one in self.disk.failed
        )
        assert isinstance(error, StorageFailed) or read, error
        assert str(self._root) in error.message
        assert len(self.refused) < len(self.disk.failed), f"refused without a fault: {error}"
        self.refused.append(error.message)
        self.disk.healed = True
        return False

    async def _got(self, ask: Callable[[], Awaitable[T]]) -> T:
        answers: list[T] = []

        async def act() -> None:
            answers.append(await ask())

        await self._done(act)
        return answers[0]


def places(names: Sequence[str], *, every: bool) -> Iterator[tuple[int, int, bool]]:
    """Where to put faults, and which: at every call, or at some of each kind of call."""
    if every:
        yield from ((at, *way) for at in range(len(names)) for way in WAYS)
    else:
        ways = cycle(WAYS)
        yield from ((at, *next(ways)) for at in some_of_each_kind(names))


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_fault_at_any_call_is_told_and_heals(tmp_path: Path, backend: str) -> None:
    sound = FaultyDisk(10**9, EIO)
    await Life(backend, tmp_path / "sound", sound).lived()
    assert {"open", "write", "sync", "link", "unlink", "lock", "stat"} <= set(sound.calls)
    if backend == "sqlite":
        assert set(sound.calls) >= EVERY_KIND
    faults = refused = 0
    for at, code, once in places(sound.calls, every=EVERY_CALL or backend == "jsonl"):
        life = Life(backend, tmp_path / f"{at}-{code}-{once}", FaultyDisk(at, code, once=once))
        try:
            await life.lived()
        except (AssertionError, SessionError) as error:
            told = f"{os.strerror(code)}{' once' if once else ''} at call {at}, {sound.calls[at]}"
            raise AssertionError(f"{told}: {error}") from error
        faults += 1
        refused += len(life.refused)
    kinds = len(set(sound.calls))
    sys.stdout.write(
        f"{backend}: faults at {faults} places ({len(sound.calls)} calls of {kinds} kinds), "
        f"{refused} refusals, 0 losses\n"
    )
    assert refused > faults // 3
