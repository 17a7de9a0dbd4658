"""`dsh sessions fork`, `salvage` and `rm`: the actions that make a session or take one away.

What comes in: typed options, a store, the sessions that are meant. What goes out: the id of a new
session on standard output, what was done on standard error. A session that somebody has open may
be forked and salvaged, never removed; the source of a copy is never changed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import uuid4

from dsh import catalog as ev
from dsh.boot import learned, read_known
from dsh.cli.screen.figures import size_in_words
from dsh.cli.screen.inert import one_line
from dsh.cli.sessions.positions import end_of
from dsh.session import fork_log, salvage_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.cli.grammar.sessions import SessionsOptions
    from dsh.cli.screen.outputs import Screen
    from dsh.seams.persistence import SessionPersistence, SessionSummary
    from dsh.wire import StoredEvent

__all__ = ["copying"]


async def copying(
    options: SessionsOptions,
    store: SessionPersistence,
    summaries: Sequence[SessionSummary],
    screen: Screen,
) -> int:
    """Run `fork`, `salvage` or `rm`. Returns the exit code; raises UsageError and SessionError."""
    match options.action:
        case "fork":
            return await _fork(options, store, summaries[0], screen)
        case "salvage":
            return await _salvage(options, store, summaries[0], screen)
        case _:
            return await _remove(store, summaries, screen)


def _turns(events: Sequence[StoredEvent]) -> str:
    count = sum(isinstance(event.data, ev.turn.End) for event in events)
    return f"{count} turn{'' if count == 1 else 's'}, {len(events)} events"


async def _fork(
    options: SessionsOptions, store: SessionPersistence, summary: SessionSummary, screen: Screen
) -> int:
    log = await read_known(store, summary.id)
    boundary = options.at
    if options.until is not None:
        boundary = end_of(log.events, options.until)
    child = options.new_id if options.new_id is not None else f"s{uuid4().hex[:10]}"
    inside = options.until is not None
    fork = await fork_log(
        store, log, child_id=child, now_ms=_now_ms(), boundary=boundary, inside=inside
    )
    screen.out.text(f"{child}\n")
    cut = f", up to step {options.until}" if fork.cut is not None else ""
    screen.say(
        f"forked {summary.id} after {_turns(fork.seed)}{cut}; go on with: "
        f'dsh run --resume {child} "..."\n'
    )
    return 0


async def _salvage(
    options: SessionsOptions, store: SessionPersistence, summary: SessionSummary, screen: Screen
) -> int:
    found = await store.recover(summary.id)
    if learned(found.events):
        found = await store.recover(summary.id)
    child = options.new_id if options.new_id is not None else f"s{uuid4().hex[:10]}"
    saved = await salvage_log(store, found, source_id=summary.id, child_id=child, now_ms=_now_ms())
    if not saved.missing:
        screen.say(f"{summary.id} is sound: {_turns(saved.kept)}; nothing was copied\n")
        return 0
    screen.out.text(f"{child}\n")
    screen.say(f"saved {_turns(saved.kept)} of {summary.id}, which stays as it is\n")
    for text in saved.missing:
        screen.say(f"missing: {one_line(text)}\n")
    return 0


async def _remove(
    store: SessionPersistence, summaries: Sequence[SessionSummary], screen: Screen
) -> int:
    for summary in dict.fromkeys(summaries):
        await store.remove(summary.id)
        screen.say(f"removed {summary.id} ({size_in_words(summary.bytes)})\n")
    return 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
