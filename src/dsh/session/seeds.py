"""A private session from a header and the events it begins with.

What comes in: a header and, for a resumed or forked session, a seed. What goes out: a session that
nobody else knows yet, or a refusal; a refused seed leaves nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.catalog import session as session_events
from dsh.errors import InvalidAppend
from dsh.session.fork import needs_mark
from dsh.session.log import Session
from dsh.wire import FORMAT_VERSION, WireFault, encode_header, refuse_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.catalog.records import SessionHeader
    from dsh.session.projections import ProjectionSet
    from dsh.wire import StoredEvent

__all__ = ["seeded"]


def seeded(
    header: SessionHeader,
    *,
    seed: Sequence[StoredEvent] | None,
    stored: int,
    now_ms: Callable[[], int],
    units: ProjectionSet,
) -> Session:
    """Make the session that `Sessions.prepare` describes."""
    refuse_header(header)
    session = Session(header, now_ms=now_ms, units=units)
    if seed is None:
        return session
    seed = tuple(seed)  # read once: whoever gave it may go on with it
    refuse_unreadable(seed, session=header.id)
    for place, event in enumerate(seed):
        session.adopt(event, stored=place < stored)
    session.first_live_seq = len(seed)
    # A resumed fork has marked its parent's part before; what follows that is its own.
    fresh = stored < len(seed) or header.seed_length == len(seed)
    inherited = header.parent_session is not None and fresh
    if needs_mark(seed, inherited=inherited):
        session.append(session_events.EndSeed(inherited=inherited))
    return session


def refuse_header(header: SessionHeader) -> None:
    """Raise InvalidAppend for a header that could not be stored and read back."""
    problem = None
    if header.version != FORMAT_VERSION:
        problem = f"version {header.version}, where this dsh writes {FORMAT_VERSION}"
    elif not header.id:
        problem = "an empty id"
    elif header.cwd is not None and not header.cwd.startswith("/"):
        problem = f"the cwd {header.cwd!r}, which is not absolute"
    elif header.created_at < 0 or header.delegation_depth < 0 or (header.seed_length or 0) < 0:
        problem = "a negative number"
    if problem is None:
        try:
            encode_header(header)
        except WireFault as fault:
            problem = str(fault)
    if problem is not None:
        raise InvalidAppend(f"the header of session {header.id!r} has {problem}")
