"""The service `sessions`: which sessions are live, and how one becomes live and ceases to be.

What comes in: headers and seeds, sessions to enter, projections to fold. What goes out: private
sessions, the registry of live ones, `session/created` and `session/disposed` in pairs, and the feed
of committed events. It never touches a disk: the write handle belongs to the agent layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

from dsh.catalog import session as session_events
from dsh.errors import SessionError, SessionExists, SessionNotFound
from dsh.kernel import Context, CoreContext, ServiceKey, core_of, plugin
from dsh.session.fork import Fork, forked
from dsh.session.projections import Projection, ProjectionSet
from dsh.session.seeds import seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from dsh.catalog.records import SessionHeader
    from dsh.hooks import EffectHandle, Scope
    from dsh.hooks.live import Session as AnySession
    from dsh.session.log import Session
    from dsh.wire import StoredEvent

    S = TypeVar("S")

__all__ = ["SESSIONS", "Sessions", "sessions_plugin"]


class _Entry:
    """One entered session, and how far its life came."""

    __slots__ = ("announced", "announcing", "leaving", "session")

    def __init__(self, session: Session) -> None:
        self.session: Final = session
        self.announced = False
        self.announcing = False
        self.leaving = False


@final
class Sessions:
    """The live sessions of one harness, by id. Made by the plugin `sessions`."""

    def __init__(self, core: CoreContext) -> None:
        self._core: Final = core
        self._units: Final = ProjectionSet()
        self._entries: Final[dict[str, _Entry]] = {}

    def get(self, session_id: str) -> Session | None:
        """The live session with this id, or None."""
        entry = self._entries.get(session_id)
        return None if entry is None else entry.session

    def live(self) -> tuple[Session, ...]:
        """All live sessions, oldest first."""
        return tuple(entry.session for entry in self._entries.values())

    def project(self, ctx: Context, unit: Projection[S]) -> EffectHandle:
        """Fold `unit` over every session, for as long as `ctx`'s plugin is loaded.

        Raises PluginError when another unit with the same key is registered.
        """
        return ctx.effect(lambda: self._units.add(unit), label=f"projection {unit.key}")

    def prepare(
        self,
        header: SessionHeader,
        *,
        seed: Sequence[StoredEvent] | None = None,
        stored: int = 0,
    ) -> Session:
        """Make a private session: unknown to the registry, publishing nothing.

        `seed` is validated like appends, from seq 0 on; then `session/end-seed` is appended, unless
        the seed ends with one. The first `stored` events of it came from the store: they are
        neither written again nor proved writable. Raises InvalidAppend for a bad seed or header,
        SessionUnreadable when the seed needs an event that this installation does not know.
        """
        return seeded(
            header, seed=seed, stored=stored, now_ms=self._core.clock.now_ms, units=self._units
        )

    def fork(
        self,
        source: AnySession | str,
        *,
        child_id: str | None = None,
        boundary: int | None = None,
    ) -> Session:
        """Make a private session that begins as `source`, a live session or its id, does.

        `boundary` is the last seq to take over; None: the newest at which no turn is open. What
        waits in the parent's inbox stays there. The parent is not touched; a stored session is
        forked through its store (`dsh.session.fork_log`). Raises SessionExists when the child's id
        is live, SessionNotFound for an unknown id, SessionError SESSION_NOT_LIVE for an object
        that was detached, and what `dsh.session.forked` raises.
        """
        fork = self.plan_fork(source, child_id=child_id, boundary=boundary)
        return self.prepare(fork.header, seed=fork.seed)

    def plan_fork(
        self,
        source: AnySession | str,
        *,
        child_id: str | None = None,
        boundary: int | None = None,
    ) -> Fork:
        """What `fork` would make, while no child exists yet. Raises what `fork` raises."""
        child = f"session-{uuid4().hex}" if child_id is None else child_id
        if child in self._entries:
            raise SessionExists(f"a session {child!r} is live already; choose another id")
        parent = self._live_source(source)
        return forked(
            parent.header,
            parent.events,
            child_id=child,
            created_at=self._core.clock.now_ms(),
            boundary=boundary,
        )

    def _live_source(self, source: AnySession | str) -> Session:
        session_id = source if isinstance(source, str) else source.id
        found = self.get(session_id)
        if found is None and isinstance(source, str):
            live = ", ".join(self._entries) or "none"
            raise SessionNotFound(f"no session {source!r} is live; live are: {live}")
        if found is None or not (isinstance(source, str) or found is source):
            raise SessionError(
                f"this session {session_id!r} is not live any more; fork the stored one",
                code="SESSION_NOT_LIVE",
            )
        return found

    def enter(self, session: Session, scope: Scope | None) -> Callable[[], None]:
        """Make a private session live. Its appends are published from now on.

        What comes back detaches exactly this session, once; calling it again, or after another
        session took the id, does nothing. If no store is attached to its writer by now, the
        session stays in memory. Raises SessionExists when the id is live or the session was
        entered before.
        """
        if session.id in self._entries or session.live or session.closed:
            raise SessionExists(
                f"a session {session.id!r} is live already, or this one was used before; "
                "detach it first, or choose another id"
            )
        entry = _Entry(session)
        self._entries[session.id] = entry
        if not session.writer.attached:
            session.writer.without_store()

        async def flush() -> None:
            await self._core.parallel(session_events.Flush(session=session))

        session.go_live(scope=scope, publish=self._core.publish, flush=flush)
        return lambda: self._detach(entry)

    def announce(self, session: Session) -> None:
        """Emit `session/created`, once. A listener that raises vetoes: detach the session then.

        A detach that a listener asks for waits until every listener has seen the session.
        """
        entry = self._entries.get(session.id)
        if entry is None or entry.session is not session or entry.announced:
            return
        entry.announced = entry.announcing = True
        try:
            self._core.emit(session_events.Created(session=session))
        finally:
            entry.announcing = False
            if entry.leaving:
                self._leave(entry)

    def detach_all(self) -> None:
        """Detach every session, newest first."""
        for entry in reversed(tuple(self._entries.values())):
            self._detach(entry)

    def _detach(self, entry: _Entry) -> None:
        if entry.leaving:
            return
        entry.leaving = True
        if entry.announcing:
            return
        # A listener of an append must not see its session go while others still hear the event.
        entry.session.after_publication(lambda: self._leave(entry))

    def _leave(self, entry: _Entry) -> None:
        session = entry.session
        if self._entries.get(session.id) is not entry:
            return
        del self._entries[session.id]
        session.retire()
        if entry.announced:
            self._core.emit(session_events.Disposed(session=session))


SESSIONS: Final[ServiceKey[Sessions]] = ServiceKey("sessions")


@plugin(name="sessions", provides=(SESSIONS,))
async def sessions_plugin(ctx: Context) -> None:
    """Provide the registry of live sessions; unloading detaches them all."""
    sessions = Sessions(core_of(ctx))
    ctx.effect(lambda: sessions.detach_all, label="live sessions")
    ctx.provide(SESSIONS, sessions)
