"""New stored sessions made from stored ones: a fork, or what a damaged log still gives.

What comes in: a store, the id of a stored session, the id of the new one. What goes out: a stored
session that nobody has open, complete or not there at all; and what it holds. The source is read
and never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from attrs import evolve

from dsh.catalog.records import SessionHeader
from dsh.errors import SessionCorrupt
from dsh.hooks import frozen
from dsh.session.fork import Fork, forked
from dsh.session.verify import lawful_prefix
from dsh.wire import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.session.writer import LogSink
    from dsh.wire import Recovered, StoredEvent, StoredLog

__all__ = ["LogStore", "Salvaged", "fork_log", "salvage_log"]


class LogStore(Protocol):
    """Where new sessions go. A store behind the seam PERSISTENCE is one."""

    async def create(self, header: SessionHeader) -> LogSink:
        """Reserve the id; the log becomes visible, whole, with the first append."""
        ...


@frozen(kw_only=True, slots=True, eq=False)
class Salvaged:
    """What was saved. `kept` events are in the new session; `missing` says, in order, why no more.

    `missing` is empty when nothing is wrong with the source; then nothing was written.
    """

    header: SessionHeader
    kept: tuple[StoredEvent, ...]
    missing: tuple[str, ...]


async def fork_log(
    store: LogStore,
    log: StoredLog,
    *,
    child_id: str,
    now_ms: int,
    boundary: int | None = None,
    inside: bool = False,
) -> Fork:
    """Store a child of `log` (read from seq 0), which may be somebody's open session.

    The child appears complete and synced, or not at all; a kill in between leaves nothing that a
    reader sees. Raises what `dsh.session.forked` raises, SessionExists, SessionBusy, StorageFailed.
    """
    fork = forked(
        log.header,
        log.events,
        child_id=child_id,
        created_at=now_ms,
        boundary=boundary,
        inside=inside,
    )
    await _stored(store, fork.header, fork.events(now_ms))
    return fork


async def salvage_log(
    store: LogStore, found: Recovered, *, source_id: str, child_id: str, now_ms: int
) -> Salvaged:
    """Write the longest lawful prefix of a log into a new session, which resumes as after a crash.

    `found` is what the store's `recover` gave. Of a log in which nothing is missing no copy is
    made. Raises SessionCorrupt when not one event can be saved, and what creating raises.
    """
    count, problem = lawful_prefix(found.events)
    missing = [text for text in (found.damage, found.beyond) if text is not None]
    if problem is not None:
        left_out = len(found.events) - count
        missing.insert(0, f"seq {problem.seq}: {problem.text}; {left_out} events from there on")
    kept = found.events[:count]
    if found.header is not None:
        header = evolve(found.header, id=child_id)
    else:
        missing.insert(0, "the header: workspace, lineage and time of creation are not known")
        created = kept[0].time if kept else now_ms
        header = SessionHeader(version=FORMAT_VERSION, id=child_id, created_at=created)
    if missing:
        if not kept:
            raise SessionCorrupt(
                f"nothing of session {source_id!r} can be saved: {'; '.join(missing)}"
            )
        await _stored(store, header, kept)
    return Salvaged(header=header, kept=kept, missing=tuple(missing))


async def _stored(store: LogStore, header: SessionHeader, events: Sequence[StoredEvent]) -> None:
    """One append, because a store makes a log visible with its first one, whole."""
    handle = await store.create(header)
    try:
        await handle.append(events)
        await handle.flush()
    finally:
        await handle.aclose()
