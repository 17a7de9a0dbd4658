"""Forks: a new session that begins with the leading events of another one.

What comes in: the header and the events of a live or stored session, and where to cut. What goes
out: the child's header and the events it begins with, or a refusal while no child exists. Nothing
here touches the parent, a registry or a disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.catalog import session as session_events
from dsh.catalog import step, turn
from dsh.catalog.records import AbortedTurnEnd, SessionHeader, UserCause
from dsh.errors import SessionError
from dsh.hooks import frozen
from dsh.session.surface import Surface, SurfaceFault
from dsh.wire import FORMAT_VERSION, StoredEvent, refuse_unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Fork", "closed_boundary", "forked", "needs_mark"]


@frozen(kw_only=True, slots=True, eq=False)
class Fork:
    """A child that does not exist yet: its header, and the events it takes over from its parent.

    `cut` is the number of the turn that is open after the last of them, None if none is.
    """

    header: SessionHeader
    seed: tuple[StoredEvent, ...]
    cut: int | None = None

    @property
    def boundary(self) -> int:
        """The last seq that the child shares with its parent."""
        return len(self.seed) - 1

    def events(self, time: int) -> tuple[StoredEvent, ...]:
        """The child's whole log at its birth: the seed, the mark that ends it, the turn's end."""
        events = self.seed
        if self.cut is not None:
            time = events[-1].time  # the turn took no longer than its seed
        if needs_mark(self.seed, inherited=True):
            events = (*events, _born(session_events.EndSeed(inherited=True), len(events), time))
        if self.cut is not None:
            end = turn.End(turn=self.cut, reason=AbortedTurnEnd(reason=UserCause()))
            events = (*events, _born(end, len(events), time))
        return events


def _born(payload: session_events.EndSeed | turn.End, seq: int, time: int) -> StoredEvent:
    """An event that the child has of its own."""
    token = payload.TOKEN
    return StoredEvent(token.name, seq, time, payload, v=token.version, ignorable=token.ignorable)


def needs_mark(seed: Sequence[StoredEvent], *, inherited: bool) -> bool:
    """Whether `session/end-seed` is due after this seed.

    A seed that ends with one needs no second one, unless the child must lose what was pending for
    its parent and that mark was made by a resumption.
    """
    last = seed[-1].data if seed else None
    if not isinstance(last, session_events.EndSeed):
        return True
    return inherited and not last.inherited


def closed_boundary(events: Sequence[StoredEvent]) -> int:
    """The newest seq at which no turn is open; -1 when that is before the first event."""
    for place in range(len(events) - 1, -1, -1):
        match events[place].data:
            case turn.End():
                return len(events) - 1
            case turn.Start():
                return place - 1
            case _:
                pass
    return len(events) - 1


def forked(
    parent: SessionHeader,
    events: Sequence[StoredEvent],
    *,
    child_id: str,
    created_at: int,
    boundary: int | None = None,
    inside: bool = False,
) -> Fork:
    """The child that begins with `events` up to `boundary`, included.

    `boundary` is the seq of an event after which no turn is open; None takes the newest such one.
    `inside`: it may also be the end of a step; the child then ends that turn as stopped by the
    user. The child has its parent's workspace and preset, and names it. Raises SessionError, code
    INVALID_BOUNDARY for a seq that the log has not, OPEN_TURN inside a turn, SOURCE_DAMAGED for a
    log whose seqs or surface do not hold together; SessionUnreadable for an event that must be
    known and is not. Nothing exists then.
    """
    if boundary is None:
        last = closed_boundary(events)
    else:
        last = _checked(parent.id, events, boundary, inside=inside)
    seed = tuple(events[: last + 1])
    refuse_unreadable(seed, session=parent.id)
    _refuse_damaged(parent.id, seed)
    header = SessionHeader(
        version=FORMAT_VERSION,
        id=child_id,
        created_at=created_at,
        cwd=parent.cwd,
        parent_session=parent.id,
        seed_length=len(seed),
        agent_preset=parent.agent_preset,
    )
    end = seed[-1].data if inside and seed else None
    return Fork(header=header, seed=seed, cut=end.turn if isinstance(end, step.End) else None)


def _checked(
    parent_id: str, events: Sequence[StoredEvent], boundary: object, *, inside: bool
) -> int:
    if type(boundary) is not int or not 0 <= boundary < len(events):
        has = f"seq 0 to {len(events) - 1}" if events else "no event"
        raise SessionError(
            f"session {parent_id!r} cannot be forked at {boundary!r}: it has {has}",
            code="INVALID_BOUNDARY",
        )
    if inside and isinstance(events[boundary].data, step.End):
        return boundary
    last = closed_boundary(events[: boundary + 1])
    if last != boundary:
        hint = f"; the newest boundary before it is {last}" if last >= 0 else ""
        raise SessionError(
            f"session {parent_id!r} cannot be forked at seq {boundary}: a turn is open there{hint}",
            code="OPEN_TURN",
        )
    return boundary


def _refuse_damaged(parent_id: str, seed: Sequence[StoredEvent]) -> None:
    surface = Surface()
    for place, event in enumerate(seed):
        problem = None
        if event.seq != place:
            problem = f"seq {event.seq} stands where {place} is due"
        elif event.surface_op is not None:
            try:
                surface.apply(event.seq, event.surface_op)
            except SurfaceFault as fault:
                problem = f"seq {event.seq}: {fault}"
        if problem is not None:
            raise SessionError(
                f"session {parent_id!r} cannot be forked: {problem}; see `dsh sessions verify`",
                code="SOURCE_DAMAGED",
            )
