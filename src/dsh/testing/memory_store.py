"""A store of session logs that keeps them in memory, as the lines a disk would hold.

What comes in: headers and committed events. What goes out: the same contract as any store behind
the seam PERSISTENCE, and a switch that makes it fail like a disk. It touches no disk and needs no
clock. For tests, and for programs that want sessions without files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

from typing_extensions import override

from dsh.errors import (
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StorageFailed,
)
from dsh.seams.persistence import SessionPersistence, SessionSummary, WriteHandle
from dsh.wire import (
    RowReader,
    StoredEvent,
    StoredLog,
    decode_header,
    encode_header,
    refuse_unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog.records import SessionHeader

__all__ = ["MemoryStore"]


class _Log:
    """One stored log: its lines, and how many events they hold."""

    def __init__(self, header: SessionHeader) -> None:
        self.lines: Final[list[bytes]] = [encode_header(header)]
        self.count = 0
        self.last: StoredEvent | None = None
        self.writes = 0

    def header(self) -> SessionHeader:
        return decode_header(self.lines[0])

    def events(self) -> tuple[StoredEvent, ...]:
        reader = RowReader()
        return tuple(event for line in self.lines[1:] for event in reader.read(line))


@final
class MemoryStore(SessionPersistence):
    """Logs in memory. One store is one "disk": give it to two harnesses and they share it.

    Set `failing` to an exception and every write and sync raises it as StorageFailed, until it is
    None again. `syncs` and `writes` count what a test wants to know of barriers.
    """

    def __init__(self) -> None:
        self.failing: Exception | None = None
        self.syncs = 0
        self.writes = 0
        self._logs: Final[dict[str, _Log]] = {}
        self._owned: Final[set[str]] = set()

    @override
    async def create(self, header: SessionHeader) -> WriteHandle:
        self._own(header.id)
        if header.id in self._logs:
            self._owned.discard(header.id)
            raise SessionExists(f"a session {header.id!r} is stored already; resume it")
        return _MemoryHandle(self, _Log(header), header)

    @override
    async def open(self, session_id: str, mode: Literal["write"]) -> WriteHandle:
        log = self._find(session_id)
        self._own(session_id)
        return _MemoryHandle(self, log, log.header())

    @override
    async def read(self, session_id: str, *, from_seq: int = 0) -> StoredLog:
        log = self._find(session_id)
        return StoredLog(header=log.header(), events=log.events()[from_seq:])

    @override
    async def list(self) -> Sequence[SessionSummary]:
        return tuple(
            SessionSummary(
                id=session_id,
                header=log.header(),
                path=None,
                bytes=sum(len(line) + 1 for line in log.lines),
                modified_ms=0,
                revision=str(log.writes),
            )
            for session_id, log in reversed(self._logs.items())
        )

    @override
    async def remove(self, session_id: str) -> None:
        self._find(session_id)
        self._own(session_id)
        del self._logs[session_id]
        self._owned.discard(session_id)

    def lines(self, session_id: str) -> tuple[bytes, ...]:
        """The stored lines, header first, as a file would hold them."""
        return tuple(self._find(session_id).lines)

    def check_disk(self, doing: str) -> None:
        """Raise StorageFailed while the store is told to fail. For its handles."""
        if self.failing is not None:
            raise StorageFailed(f"memory store: {doing} failed: {self.failing}") from self.failing

    def keep(self, log: _Log) -> None:
        """Make the log visible, at its first append. For its handles."""
        self._logs.setdefault(log.header().id, log)

    def release(self, session_id: str) -> None:
        """Let another writer own the id. For its handles."""
        self._owned.discard(session_id)

    def _find(self, session_id: str) -> _Log:
        log = self._logs.get(session_id)
        if log is None:
            stored = ", ".join(sorted(self._logs)) or "none"
            raise SessionNotFound(f"no session {session_id!r} is stored; stored: {stored}")
        return log

    def _own(self, session_id: str) -> None:
        if session_id in self._owned:
            raise SessionBusy(
                f"session {session_id!r} is open for writing in this process; close it first"
            )
        self._owned.add(session_id)


@final
class _MemoryHandle(WriteHandle):
    __slots__ = ("_closed", "_header", "_log", "_store")

    def __init__(self, store: MemoryStore, log: _Log, header: SessionHeader) -> None:
        self._store: Final = store
        self._log: Final = log
        self._header: Final = header
        self._closed = False

    @property
    @override
    def header(self) -> SessionHeader:
        return self._header

    @property
    @override
    def next_seq(self) -> int:
        return self._log.count

    @override
    async def read_log(self) -> tuple[StoredEvent, ...]:
        events = self._log.events()
        refuse_unreadable(events, session=self._header.id)
        return events

    @override
    async def append(
        self, events: Sequence[StoredEvent], *, encoded: Sequence[bytes | None] | None = None
    ) -> None:
        if self._closed:
            raise SessionClosed(f"the write handle of session {self._header.id!r} is closed")
        if not events:
            return
        log = self._log
        rows = self.rows(events, encoded=encoded, before=log.last)
        self._store.check_disk("write")
        log.lines.extend(rows.split(b"\n")[:-1])
        log.count += len(events)
        log.last = events[-1]
        log.writes += 1
        self._store.writes += 1
        self._store.keep(log)

    @override
    async def flush(self) -> None:
        self._store.check_disk("sync")
        self._store.syncs += 1

    @override
    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._store.release(self._header.id)
