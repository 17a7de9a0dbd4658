"""The seam PERSISTENCE: where session logs are kept.

What comes in: headers, ids and committed events. What goes out: write handles that own an id, logs
as read, and a list of what is there. A store never repairs a log's meaning (crash repair belongs to
the agent layer) and never changes an event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import trio

from dsh.errors import InvalidAppend
from dsh.hooks import frozen
from dsh.kernel import ServiceKey
from dsh.wire import Recovered, StoredLog, Unwritable, encode_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.catalog.records import SessionHeader
    from dsh.wire import StoredEvent

__all__ = [
    "PERSISTENCE",
    "Recovered",
    "SessionPersistence",
    "SessionSummary",
    "StoredLog",
    "WriteHandle",
    "owned",
]

K = TypeVar("K")


@frozen(kw_only=True, slots=True)
class SessionSummary:
    """One stored session, from its first line and its size alone.

    `header` is None and `problem` says why, when the first line cannot be read. `path` is the
    log's place, or None for a store without places. `bytes` is its size; `modified_ms` the time of
    its last write in epoch milliseconds; `revision` changes whenever the log does.
    """

    id: str
    header: SessionHeader | None
    path: str | None
    bytes: int
    modified_ms: int
    revision: str
    problem: str | None = None


class WriteHandle(ABC):
    """The right to append to one log, held by one writer among all processes."""

    __slots__ = ()

    @property
    @abstractmethod
    def header(self) -> SessionHeader:
        """The header given to `create`, or the stored one."""

    @property
    @abstractmethod
    def next_seq(self) -> int:
        """The seq of the first event that is not written yet; equals the number of events."""

    @abstractmethod
    async def read_log(self) -> tuple[StoredEvent, ...]:
        """All events written so far.

        Raises SessionCorrupt, and SessionUnreadable when one of them must be known and is not.
        """

    def rows(
        self,
        events: Sequence[StoredEvent],
        *,
        encoded: Sequence[bytes | None] | None,
        before: StoredEvent | None,
    ) -> bytes:
        """The lines of a batch that may be appended now; `before` is the event in front of it.

        For stores that keep lines. Raises InvalidAppend for a gap, and for what cannot be written.
        """
        for seq, event in enumerate(events, start=self.next_seq):
            if event.seq != seq:
                raise InvalidAppend(
                    f"session {self.header.id!r} got seq {event.seq} where {seq} is due"
                )
        try:
            return encode_rows(events, encoded=encoded, before=before)
        except Unwritable as error:
            raise InvalidAppend(f"session {self.header.id!r}: {error}") from error

    @abstractmethod
    async def append(
        self, events: Sequence[StoredEvent], *, encoded: Sequence[bytes | None] | None = None
    ) -> None:
        """Write all of `events`; on return they survive the death of the process.

        The first must have `next_seq`, the others follow without gap, else InvalidAppend.
        `encoded` holds the JSON of the payloads that the caller has encoded already. Raises
        StorageFailed, and then nothing of the batch is in the log; SessionClosed after `aclose`.
        If it is cancelled, `next_seq` says whether the batch was written.
        """

    @abstractmethod
    async def flush(self) -> None:
        """Return when everything appended before this call survives a loss of power.

        Raises StorageFailed; what was written stays and the next call tries again.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Sync, and release the log for other writers. Idempotent; never interrupted half-way."""


class SessionPersistence(ABC):
    """A store of session logs."""

    @abstractmethod
    async def create(self, header: SessionHeader) -> WriteHandle:
        """Reserve the id of a new session. Nothing is stored before the first append.

        Raises SessionExists when a log with this id is stored, SessionBusy when another writer
        holds the id, StorageFailed when the place cannot be written.
        """

    @abstractmethod
    async def open(self, session_id: str, mode: Literal["write"]) -> WriteHandle:
        """Own a stored log. A torn end is cut off before the first append.

        Raises SessionNotFound, SessionBusy naming the owner, SessionCorrupt naming the place,
        SessionUnreadable for a newer format, StorageFailed.
        """

    @abstractmethod
    async def read(self, session_id: str, *, from_seq: int = 0) -> StoredLog:
        """The log as it is now, from `from_seq` on; also while somebody writes it.

        Takes no ownership, repairs nothing and shows events it does not know. Raises
        SessionNotFound, SessionCorrupt, SessionUnreadable for a newer format, StorageFailed.
        """

    async def recover(self, session_id: str) -> Recovered:
        """The beginning of a log that `read` may refuse, as far as it makes sense.

        Takes no ownership and changes nothing. Raises SessionNotFound, StorageFailed. A store that
        can look behind a damage overrides this; otherwise a log is read whole or not at all.
        """
        log = await self.read(session_id)
        return Recovered(header=log.header, events=log.events, damage=log.torn)

    @abstractmethod
    async def list(self) -> Sequence[SessionSummary]:
        """All stored sessions, newest write first. Logs are not parsed; bad ones have a problem."""

    @abstractmethod
    async def remove(self, session_id: str) -> None:
        """Delete a stored log. Raises SessionNotFound, SessionBusy while somebody writes it."""


async def owned(make: Callable[[K], WriteHandle], argument: K) -> WriteHandle:
    """Run `make` in a thread. A handle that arrives after a cancellation is closed, not lost."""
    # Not abandoned on cancellation: the thread's answer always arrives here.
    handle = await trio.to_thread.run_sync(make, argument)
    try:
        await trio.lowlevel.checkpoint_if_cancelled()
    except trio.Cancelled:
        await handle.aclose()
        raise
    return handle


PERSISTENCE: Final[ServiceKey[SessionPersistence]] = ServiceKey("persistence")
