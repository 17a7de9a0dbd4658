"""The slot between a session and its disk: what was appended and is not yet stored.

What comes in: committed events, from the first append on, and later the store's handle. What goes
out: rows within 20 ms, syncs at barriers, and a failure that stays until a barrier raised it. The
writer never drops an event that the store did not take, and never blocks an append.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dsh.errors import InvariantError, SessionClosed, StorageFailed
from dsh.kernel import Exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.catalog.records import SessionHeader
    from dsh.wire import StoredEvent

__all__ = ["LogSink", "LogWriter"]

#: How long rows gather before they are written: half of the 20 ms that are promised, so that a
#: busy scheduler still keeps the promise.
GATHER_SECONDS: Final = 0.010
#: While rows are being written, how long unsynced ones may wait for a sync that no barrier asked.
SYNC_SECONDS: Final = 0.200

_seq: Final = attrgetter("seq")
_log: Final = logging.getLogger("dsh.session")


class LogSink(Protocol):
    """Where the rows of one session go. The store's write handle is one."""

    @property
    def header(self) -> SessionHeader:
        """The header of the log."""
        ...

    @property
    def next_seq(self) -> int:
        """The seq of the first event that is not written yet."""
        ...

    async def append(
        self, events: Sequence[StoredEvent], *, encoded: Sequence[bytes | None] | None = None
    ) -> None:
        """Write all of `events`, or raise and leave the log as it was."""
        ...

    async def flush(self) -> None:
        """Return when everything written before this call is synced."""
        ...

    async def aclose(self) -> None:
        """Release the log. Idempotent."""
        ...


class LogWriter:
    """The write path of one session.

    Order of use: events gather from creation on; `drain_into(handle)` stores them; `attach(handle)`
    (no checkpoint between the two) makes the handle the writer's own; `run` is spawned by whoever
    attached; `barrier` and `aclose` are called by anyone. Without a store: `without_store`.
    """

    def __init__(self, session_id: str) -> None:
        self._session_id: Final = session_id
        self._events: list[StoredEvent] = []
        self._encoded: list[bytes | None] = []
        self._sink: LogSink | None = None
        self._keeping = True
        #: True from the first `aclose` on; the session refuses appends then. Read only.
        self.closed = False
        self._failure: Exception | None = None
        #: True while the store does not take rows: from a write that failed to the next that did
        #: not. Read only.
        self.refused = False
        self._news: list[Callable[[], None]] = []
        self._wake = trio.Event()
        self._dirty = trio.Event()
        self._writing = Exclusive()
        self._syncing = Exclusive()
        # Counts of writes: a sync covers the writes that were counted when it began.
        self._written = 0
        self._synced = 0

    @property
    def attached(self) -> bool:
        """Whether a store's handle is attached."""
        return self._sink is not None

    @property
    def pending(self) -> int:
        """How many events the store has not taken yet."""
        return len(self._events)

    def has_written(self, seq: int) -> bool:
        """Whether this committed event survives the death of the process, or never will."""
        return not self._events or seq < self._events[0].seq

    def on_news(self, listener: Callable[[], None]) -> None:
        """Call this whenever the store took rows or refused them, for as long as the writer lives.

        It may not append to the session. What it raises is logged.
        """
        self._news.append(listener)

    def admit(self, event: StoredEvent, encoded: bytes | None) -> None:
        """Take one committed event. Called by the session inside `append`; never blocks."""
        if self._keeping:
            self._events.append(event)
            self._encoded.append(encoded)
            self._wake.set()

    def without_store(self) -> None:
        """There will be no store: forget what gathered, and gather no more."""
        if self._sink is not None:
            raise InvariantError(f"session {self._session_id} has a store already")
        self._keeping = False
        self._events.clear()
        self._encoded.clear()

    async def drain_into(self, sink: LogSink) -> None:
        """Store everything that gathered so far. When it returns, nothing is left over.

        Events that the store has already (a resumed log) are not written again. Raises what the
        store raises; what it did not take stays. Cancellable between batches.
        """
        if sink.header.id != self._session_id:
            raise InvariantError(f"a handle of {sink.header.id} for session {self._session_id}")
        self._forget_stored(sink)
        while self._events:
            await self._write(sink)

    def attach(self, sink: LogSink) -> None:
        """Make `sink` the place of everything appended from now on. The writer closes it."""
        if self._sink is not None or not self._keeping or self.closed:
            raise InvariantError(f"session {self._session_id} cannot take another store")
        self._sink = sink
        # What was written through the handle before it became ours may be unsynced too.
        self._count_write()

    async def run(self) -> None:
        """Write rows as they come, and sync now and then, until `aclose` or cancellation.

        Owned by whoever attached the handle. Failures are kept for the next barrier and never end
        it; cancelling it loses nothing, because `barrier` and `aclose` write for themselves.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sync_now_and_then)
            while not self.closed:
                await self._wake.wait()
                await trio.sleep(GATHER_SECONDS)
                self._wake = trio.Event()
                sink = self._sink
                if sink is not None and self._events:
                    await self._write_behind(sink)
            nursery.cancel_scope.cancel()

    async def barrier(self) -> None:
        """Return when everything appended before this call is written and synced.

        Raises StorageFailed when that is not possible, or when something failed since the last
        barrier, even if all is stored now. What was not stored stays, and the next barrier tries
        again. Cancellable; nothing is lost then.
        """
        sink = self._sink
        if sink is None:
            return
        try:
            last = self._events[-1].seq if self._events else -1
            while sink.next_seq <= last:
                await self._write(sink)
            await self._sync(sink)
        except OSError as error:
            self._failure = None
            raise self._storage_failed(error) from error
        except StorageFailed:
            self._failure = None
            raise
        failure, self._failure = self._failure, None
        if failure is not None:
            raise self._storage_failed(failure) from failure

    async def aclose(self) -> None:
        """Refuse further appends, store what is left, and close the handle. Idempotent.

        Raises StorageFailed when the rest could not be stored; the handle is closed all the same.
        Shielded: a cancelled caller gets its cancellation after the log is safe.
        """
        self.closed = True
        self._wake.set()
        sink = self._sink
        if sink is None:
            return
        with trio.CancelScope(shield=True):
            try:
                await self.barrier()
            finally:
                self._sink = None
                self._keeping = False
                await sink.aclose()

    def refuse_if_closed(self) -> None:
        """Raise SessionClosed once the write path is closed."""
        if self.closed:
            raise SessionClosed(
                f"the write path of session {self._session_id} is closed; the last place that may "
                "log is a callback given to `ctx.on_drain`"
            )

    async def _write_behind(self, sink: LogSink) -> None:
        try:
            await self._write(sink)
        except Exception as error:  # noqa: BLE001  the next barrier raises it
            if self._failure is None:
                _log.warning(
                    "session %s: %d events could not be written (%s); "
                    "they are kept and the next barrier reports it",
                    self._session_id,
                    len(self._events),
                    error,
                )
            self._failure = error

    async def _write(self, sink: LogSink) -> None:
        async with self._writing:
            events, encoded = self._events[:], self._encoded[:]
            if not events:
                return
            try:
                await sink.append(events, encoded=encoded)
                self.refused = False
            except Exception:
                self.refused = True
                raise
            finally:
                # The sink says how far it came: a cancellation may arrive after the rows were
                # written, and rows must be neither lost nor written twice.
                self._forget_stored(sink)
                self._tell()

    def _forget_stored(self, sink: LogSink) -> None:
        stored = bisect_left(self._events, sink.next_seq, key=_seq)
        if stored:
            del self._events[:stored], self._encoded[:stored]
            self._count_write()

    def _tell(self) -> None:
        for listener in self._news:
            try:
                listener()
            except Exception:  # noqa: BLE001  who looks on must not fail the write
                _log.warning("session %s: a view failed", self._session_id, exc_info=True)

    def _count_write(self) -> None:
        self._written += 1
        self._dirty.set()

    async def _sync(self, sink: LogSink) -> None:
        wanted = self._written
        if self._synced >= wanted:
            return
        async with self._syncing:
            # Whoever waited here may find that the sync before covered its writes too.
            if self._synced < wanted:
                covered = self._written
                await sink.flush()
                self._synced = covered

    async def _sync_now_and_then(self) -> None:
        while True:
            await self._dirty.wait()
            await trio.sleep(SYNC_SECONDS)
            self._dirty = trio.Event()
            if self._sink is not None:
                try:
                    await self._sync(self._sink)
                except Exception as error:  # noqa: BLE001  the next barrier raises it
                    if self._failure is None:
                        _log.warning("session %s: sync failed (%s)", self._session_id, error)
                    self._failure = error

    def _storage_failed(self, cause: Exception) -> StorageFailed:
        kept = f"{len(self._events)} events are kept in memory" if self._events else "all is stored"
        return StorageFailed(
            f"session {self._session_id}: the disk refused ({cause}); {kept} now. "
            "Free space or repair the disk, then try again"
        )
