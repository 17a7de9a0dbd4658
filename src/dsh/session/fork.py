"""Forks: a new session that begins with the leading events of another one.

What comes in: the header and the events of a live or stored session, and where to cut. What goes
out: the child's header and the events it begins with, or a refusal while no child exists. Nothing
here touches the parent, a registry or a disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.catalog import session as session_events
from dsh.catalog import turn
from dsh.catalog.records import SessionHeader
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

    `boundary` is the seq of the last of them, -1 for none.
    """

    header: SessionHeader
    seed: tuple[StoredEvent, ...]

    @property
    def boundary(self) -> int:
        """The last seq that the child shares with its parent."""
        return len(self.seed) - 1

    def events(self, time: int) -> tuple[StoredEvent, ...]:
        """The child's whole log at its birth: the seed, and the mark that ends it."""
        if not needs_mark(self.seed, inherited=True):
            return self.seed
        token = session_events.END_SEED
        mark = StoredEvent(
            token.name,
            len(self.seed),
            time,
            session_events.EndSeed(inherited=True),
            v=token.version,
            ignorable=token.ignorable,
        )
        return (*self.seed, mark)


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
) -> Fork:
    """The child that begins with `events` up to `boundary`, included.

    `boundary` is the seq of an event after which no turn is open; None takes the newest such one.
    The child has its parent's workspace and preset, and names it. Raises SessionError, code
    INVALID_BOUNDARY for a seq that the log has not, OPEN_TURN inside a turn, SOURCE_DAMAGED for a
    log whose seqs or surface do not hold together; SessionUnreadable for an event that must be
    known and is not. Nothing exists then.
    """
    cut = closed_boundary(events) if boundary is None else _checked(parent.id, events, boundary)
    seed = tuple(events[: cut + 1])
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
    return Fork(header=header, seed=seed)


def _checked(parent_id: str, events: Sequence[StoredEvent], boundary: object) -> int:
    if type(boundary) is not int or not 0 <= boundary < len(events):
        has = f"seq 0 to {len(events) - 1}" if events else "no event"
        raise SessionError(
            f"session {parent_id!r} cannot be forked at {boundary!r}: it has {has}",
            code="INVALID_BOUNDARY",
        )
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
