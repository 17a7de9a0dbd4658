"""The frame of every command that looks at stored sessions: screen, store, failures in a sentence.

What comes in: options, and what is to be done with the mounted store. What goes out: the exit code.
Only the store is mounted: a broken row elsewhere does not keep anybody from reading what was done.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from dsh.boot import learned, mounted, planned, process_environ, read_known
from dsh.cli.failures import ContainedFailures, explained
from dsh.cli.screen.outlet import OutletClosed
from dsh.cli.screen.outputs import Screen, open_screen
from dsh.errors import SessionCorrupt, SessionUnreadable
from dsh.hooks import frozen
from dsh.seams.persistence import PERSISTENCE, SessionPersistence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from dsh.catalog.records import SessionHeader
    from dsh.cli.grammar.shared import Shared
    from dsh.seams.persistence import SessionSummary
    from dsh.wire import StoredEvent, StoredLog

__all__ = ["Found", "Looking", "as_far_as_readable", "found_in", "look"]

#: The rows that reading needs.
STORE: Final = frozenset({"sessions", "session-jsonl", "session-sqlite"})

Options = TypeVar("Options", bound="Shared")


@frozen(kw_only=True, slots=True)
class Looking:
    """What a command has to look with."""

    store: SessionPersistence
    cwd: Path
    screen: Screen


@frozen(kw_only=True, slots=True, eq=False)
class Found:
    """What of a log can be read. `damage` says where that ends and why, `torn` that a line is cut.

    `header` is None when the first line is lost.
    """

    id: str
    header: SessionHeader | None
    events: tuple[StoredEvent, ...]
    damage: str | None = None
    torn: str | None = None


def look(options: Options, act: Callable[[Options, Looking], Awaitable[int]]) -> int:
    """Run `act` with the store. Returns the exit code; a refusal is said on standard error."""
    screen = open_screen(options.color, process_environ())
    logger = logging.getLogger("dsh")
    logger.handlers[:] = [ContainedFailures(screen.say, debug=options.debug)]
    logger.propagate = False
    gc.freeze()
    gc.enable()
    try:
        code = trio.run(_mounted, options, act, screen)
    except OutletClosed as error:
        code = 141 if error.broken else 1
        if not error.broken:
            screen.say(f"dsh: {error}\n")
    except BaseException as error:  # noqa: BLE001 - the last frame: a person gets a sentence
        text, code = explained(error, debug=options.debug, before_session=True)
        screen.say(text)
    screen.finish()
    return code


async def _mounted(
    options: Options, act: Callable[[Options, Looking], Awaitable[int]], screen: Screen
) -> int:
    plan = planned(
        options.config, profile=options.profile, sets=options.sets, cwd=options.cwd, only=STORE
    )
    async with mounted(plan, strict=True) as harness:
        store = harness.service(PERSISTENCE)
        code = await act(options, Looking(store=store, cwd=plan.cwd, screen=screen))
        await screen.flushed()
        return code


async def as_far_as_readable(store: SessionPersistence, summary: SessionSummary) -> Found:
    """The log, or of a damaged one its beginning and what is wrong. Raises what `read` raises else.

    Cancellable; changes nothing.
    """
    try:
        log = await read_known(store, summary.id)
    except (SessionCorrupt, SessionUnreadable) as error:
        recovered = await store.recover(summary.id)
        if learned(recovered.events):
            recovered = await store.recover(summary.id)
        beyond = f"; {recovered.beyond} cannot be placed" if recovered.beyond is not None else ""
        return Found(
            id=summary.id,
            header=recovered.header,
            events=recovered.events,
            damage=f"{recovered.damage or error.message}{beyond}",
        )
    return found_in(log)


def found_in(log: StoredLog) -> Found:
    """A log that could be read, as what was found."""
    return Found(id=log.header.id, header=log.header, events=log.events, torn=log.torn)
