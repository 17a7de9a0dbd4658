"""The live session: one header and one append-only list of events.

What comes in: payloads to append. What goes out: committed events, the surface, derived messages,
projections, and each event to the writer and to the observers, in that order. `append` is one
synchronous act: it never awaits, and when it raises nothing has changed.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar, final, overload

from typing_extensions import override

from dsh.catalog import assistant, codec, request, tool
from dsh.catalog.records import Append, EpochHeader, Replace, SessionHeader
from dsh.errors import InvalidAppend, ReentrantAppend, SessionClosed, SessionError
from dsh.hooks import AnyDurable, CoreLogOnly, CoreSurface, Logged, LogOnly, Scope, live
from dsh.session.messages import Derived
from dsh.session.projections import Fold, Projection, ProjectionSet
from dsh.session.retained import Retained, Snapshot
from dsh.session.rules import checked_sources, refuse_broken_rewrite, refuse_foreign
from dsh.session.surface import Surface, SurfaceFault
from dsh.session.writer import LogWriter
from dsh.wire import (
    StoredEvent,
    UnknownEvent,
    Unwritable,
    WireFault,
    decode_line,
    encode_line,
    encode_payload,
    is_plain_delta,
    owner_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from dsh.catalog.records import Message, SurfaceOp
    from dsh.hooks import History

__all__ = ["Session"]

L = TypeVar("L", bound=LogOnly)
C = TypeVar("C", bound=CoreLogOnly)
F = TypeVar("F", bound=CoreSurface)
S = TypeVar("S")

_log: Final = logging.getLogger("dsh.session")


@final
class Session(live.Session):
    """One session's log. Made by `Sessions.prepare`; private until `Sessions.enter`.

    `now_ms` gives the time of appends. `units` are the projections of the store it belongs to.
    """

    def __init__(
        self,
        header: SessionHeader,
        *,
        now_ms: Callable[[], int],
        units: ProjectionSet | None = None,
    ) -> None:
        self._header: Final = header
        self._now_ms: Final = now_ms
        self._events: Final = Retained()
        self._next_seq = 0
        self._surface: Final = Surface()
        self._derived: Final = Derived(self._events.at, self._surface)
        self._units: Final = ProjectionSet() if units is None else units
        self._fold: Final = Fold(self._units, lambda: Snapshot(self._events))
        self._request_header: EpochHeader | None = None
        self._request_context: request.RouteContext | None = None
        self.writer: Final = LogWriter(header.id)
        #: How many leading events were inherited; the first event of this life has this seq.
        self.first_live_seq = 0
        self._scope: Scope | None = None
        self._publish: Callable[[Logged[AnyDurable]], None] | None = None
        self._flush: Callable[[], Awaitable[None]] | None = None
        self._retired = False
        self._publishing = False
        self._delivering = False
        self._batches = 0
        self._queued: deque[Callable[[], None]] = deque()

    @property
    @override
    def id(self) -> str:
        return self._header.id

    @property
    @override
    def header(self) -> SessionHeader:
        return self._header

    @property
    @override
    def scope(self) -> Scope | None:
        return self._scope

    @property
    @override
    def next_seq(self) -> int:
        return self._next_seq

    @property
    @override
    def closed(self) -> bool:
        """True once the session left its store, or its write path was closed."""
        return self._retired or self.writer.closed

    @property
    def live(self) -> bool:
        """True between `Sessions.enter` and its detach: appends are published then."""
        return self._publish is not None

    @property
    def events(self) -> Sequence[StoredEvent]:
        """The events logged so far: a snapshot made in constant time, which never grows."""
        return Snapshot(self._events)

    @property
    def surface(self) -> Surface:
        """The model-visible nodes. Read only."""
        return self._surface

    @property
    def publishing(self) -> bool:
        """True while observers of an append of this session run; an append is refused then."""
        return self._publishing

    @overload
    def append(self, payload: L) -> Logged[L]: ...

    @overload
    def append(
        self, payload: F, *, surface: Append | Replace, sources: Sequence[int] | None = None
    ) -> Logged[F]: ...

    @overload
    def append(self, payload: C) -> Logged[C]: ...

    @override
    def append(
        self,
        payload: LogOnly | CoreLogOnly | CoreSurface,
        *,
        surface: Append | Replace | None = None,
        sources: Sequence[int] | None = None,
    ) -> Logged[LogOnly | CoreLogOnly | CoreSurface]:
        """Append one event: validated, frozen, committed and buffered for disk before it returns.

        `surface` is due for surface events and refused for others; `sources` are the seqs the
        event was made from. Listeners run before it returns, and deliveries they asked for.
        Raises InvalidAppend (nothing changed), ReentrantAppend, SessionClosed, and what a
        projection raises (nothing changed).
        """
        given: object = payload  # of callers who do not type-check it may be anything
        if surface is not None or not isinstance(given, AnyDurable):  # pyright: ignore[reportUnnecessaryIsInstance]
            refuse_foreign(payload, surface)
        if self._publishing or self._retired or self.writer.closed:
            self._refuse(payload)
        token, seq = payload.TOKEN, self._next_seq
        cited = None
        if surface is not None or sources is not None or isinstance(payload, CoreSurface):
            cited = self._check_surface(payload, surface, sources, seq)
        time = self._now_ms()
        event = StoredEvent(
            token.name,
            seq,
            time,
            payload,
            token.version,
            None if token.owner == "core" else owner_of(token.name),
            token.ignorable,
            surface,
            cited,
        )
        # Most deltas are packed into a row of many, and need no JSON of their own.
        plain = type(payload) is assistant.Chunk and is_plain_delta(payload)
        self._take(event, None if plain else self._encoded(payload, seq))
        logged = Logged(seq, time, payload, self)
        publish = self._publish
        if publish is not None:
            self._publishing = True
            try:
                publish(logged)
            finally:
                self._publishing = False
            if self._queued:
                self._deliver()
        return logged

    def adopt(self, event: StoredEvent, *, stored: bool) -> None:
        """Take one event of a seed as it is. Only for a private session, before its first append.

        `stored` says that the store has it already: then it is not written again, and its payload
        needs no proof that it can be. Raises InvalidAppend as `append` does.
        """
        if self.live:
            raise InvalidAppend(f"session {self.id} is live and takes no seed any more")
        if event.seq != self._next_seq:
            raise InvalidAppend(
                f"the seed of session {self.id} has seq {event.seq}, not {self._next_seq}"
            )
        payload = event.data
        if isinstance(payload, UnknownEvent) and event.surface_op is None:
            self._take(event, None, write=not stored)
            return
        refuse_foreign(payload, event.surface_op)
        if not isinstance(payload, AnyDurable) or payload.TOKEN.name != event.type:
            raise InvalidAppend(
                f"seq {event.seq} of a seed says {event.type!r} and holds {payload}"
            )
        self._check_surface(payload, event.surface_op, event.source_event_seqs, event.seq)
        if stored:
            self._take(event, None, write=False)
            return
        encoded = self._encoded(payload, event.seq)
        try:
            decode_line(encode_line(event, encoded))
        except (WireFault, TypeError) as fault:
            raise InvalidAppend(
                f"seq {event.seq} of a seed cannot be read back: {fault}"
            ) from fault
        self._take(event, encoded)

    @override
    @contextmanager
    def batch(self) -> Generator[None, None, None]:
        """Hold deliveries asked for by listeners until this block has finished publishing.

        Appends inside are committed and published one by one as always. Batches nest.
        """
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1
            self._deliver()

    def after_publication(self, deliver: Callable[[], None]) -> None:
        """Run `deliver` when the outermost append or batch has finished publishing.

        Outside of both it runs at once. Order is that of the calls. A failure is logged, because
        whoever asked is gone by then; it does not keep the others from running.
        """
        self._queued.append(deliver)
        self._deliver()

    @override
    def derive_messages(self) -> History[Message]:
        return self._derived.messages()

    def request_header(self) -> EpochHeader | None:
        """The newest logged request header, or None before the first request."""
        return self._request_header

    def request_context(self) -> request.RouteContext | None:
        """The newest logged facts of the route, or None before the first request."""
        return self._request_context

    def projection(self, unit: Projection[S]) -> S:
        """The state of a registered projection after the newest event."""
        return self._fold.state(unit)

    async def flush(self) -> None:
        """Make everything logged so far durable: written, synced, and every listener done.

        This is the `session/flush` barrier. Raises StorageFailed, SessionError when the session is
        not live, and what listeners raise. Cancellable; nothing is lost then.
        """
        flush = self._flush
        if flush is None:
            raise SessionError(
                f"session {self.id} is not live, so there is nothing to flush to; "
                "flush between `enter` and detach"
            )
        await self.writer.barrier()
        await flush()

    def go_live(
        self,
        *,
        scope: Scope | None,
        publish: Callable[[Logged[AnyDurable]], None],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        """Publish appends from now on. For the store, once."""
        self._scope = scope
        self._publish = publish
        self._flush = flush

    def retire(self) -> None:
        """Publish and accept nothing any more. For the store, when it lets go of the session."""
        self._retired = True
        self._publish = None
        self._flush = None

    def _refuse(self, payload: AnyDurable) -> None:
        if self._publishing:
            raise ReentrantAppend(
                f"{payload.TOKEN.name} was appended from inside a listener of session {self.id}; "
                "a listener may not append to the session it listens to: use steer, followup or "
                "inject, or append from a task of its own (`ctx.observe`)"
            )
        if self._retired:
            raise SessionClosed(f"session {self.id} was closed; resume it to append again")
        self.writer.refuse_if_closed()

    def _check_surface(
        self, payload: AnyDurable, op: SurfaceOp | None, sources: Sequence[int] | None, seq: int
    ) -> tuple[int, ...] | None:
        name = payload.TOKEN.name
        if not isinstance(payload, CoreSurface):
            if op is None and sources is None:
                return None
            raise InvalidAppend(f"{name} is log-only: it takes neither `surface` nor `sources`")
        match op:
            case None:
                raise InvalidAppend(
                    f"{name} is model-visible: say `surface=Append()` or `surface=Replace(…)`"
                )
            case Append():
                return checked_sources(payload, sources, seq=seq, hidden=())
            case Replace():
                try:
                    codec.encode_surface_op(op)
                    hidden = self._surface.shadowed(op)
                except (SurfaceFault, codec.CodecError) as fault:
                    raise InvalidAppend(f"{name} at seq {seq}: {fault}") from None
                if isinstance(payload, tool.Result):
                    replaced = [self._events.at(node) for node in hidden]
                    refuse_broken_rewrite(payload, replaced, seq=seq)
                return checked_sources(payload, sources, seq=seq, hidden=hidden)

    def _encoded(self, payload: AnyDurable, seq: int) -> bytes:
        try:
            return encode_payload(payload)
        except Unwritable as error:
            raise InvalidAppend(f"seq {seq} of session {self.id}: {error}") from error

    def _take(self, event: StoredEvent, encoded: bytes | None, *, write: bool = True) -> None:
        states = self._fold.candidate(event) if self._units.concerned(event.type) else ()
        # From here on nothing may raise: the event is committed.
        self._events.append(event)
        self._next_seq += 1
        if states:
            self._fold.commit(states)
        if event.surface_op is not None:
            self._surface.apply(event.seq, event.surface_op)
        data = event.data
        if type(data) is request.Header:
            self._request_header = data.header
        elif type(data) is request.RouteContext:
            self._request_context = data
        if write:
            self.writer.admit(event, encoded)

    def _deliver(self) -> None:
        if self._publishing or self._batches or self._delivering:
            return
        self._delivering = True
        try:
            while self._queued:
                deliver = self._queued.popleft()
                try:
                    deliver()
                except Exception:  # noqa: BLE001  whoever asked for it is gone; it is logged
                    _log.warning("session %s: a queued delivery failed", self.id, exc_info=True)
        finally:
            self._delivering = False
