"""`dsh sessions`: the actions on stored sessions; here those that only look.

What comes in: typed options. What goes out: rows, a story, messages as JSON lines, or a verdict, on
standard output. Only the store is mounted: a broken row elsewhere does not keep anybody from
reading what was done. Copying and removing are in `dsh.cli.copying`, replaying in
`dsh.cli.replaying`.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Final

import orjson
import trio

from dsh.boot import mounted, planned, process_environ, read_known
from dsh.catalog.codec import encode_record
from dsh.cli.choosing import chosen, is_here
from dsh.cli.failures import ContainedFailures, explained
from dsh.cli.inert import clipped, one_line
from dsh.cli.outlet import OutletClosed
from dsh.cli.requests import request_at
from dsh.cli.screen import Screen, open_screen
from dsh.cli.story import moment, size_in_words, story
from dsh.errors import SessionError, UsageError
from dsh.seams.persistence import PERSISTENCE, SessionPersistence, SessionSummary
from dsh.session import Problem, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dsh.cli.arguments import SessionsOptions

__all__ = ["sessions"]

#: The rows that reading needs.
STORE: Final = frozenset({"sessions", "session-jsonl", "session-sqlite"})
PIPE_WIDTH: Final = 100


def sessions(options: SessionsOptions) -> int:
    """Run one of the actions. Returns the exit code; a refusal is said on standard error."""
    screen = open_screen(options.color, process_environ())
    logger = logging.getLogger("dsh")
    logger.handlers[:] = [ContainedFailures(screen.say, debug=options.debug)]
    logger.propagate = False
    gc.freeze()
    gc.enable()
    try:
        code = trio.run(_act, options, screen)
    except OutletClosed as error:
        code = 141 if error.broken else 1
        if not error.broken:
            screen.say(f"dsh: {error}\n")
    except BaseException as error:  # the last frame: a person gets a sentence  # noqa: BLE001  # the last frame: a person gets a sentence
        text, code = explained(error, debug=options.debug, before_session=True)
        screen.say(text)
    screen.finish()
    return code


async def _act(options: SessionsOptions, screen: Screen) -> int:
    plan = planned(
        options.config, profile=options.profile, sets=options.sets, cwd=options.cwd, only=STORE
    )
    async with mounted(plan, strict=True) as harness:
        store = harness.service(PERSISTENCE)
        if options.action == "list":
            await _list(store, plan.cwd, screen, everywhere=options.everywhere)
            code = 0
        elif options.action == "verify" and options.everywhere:
            code = await _verify_all(store, screen)
        else:
            names = () if options.session is None else (options.session, *options.others)
            if not names:
                raise UsageError(f"dsh sessions {options.action} needs a SESSION")
            summaries = [await chosen(store, name, plan.cwd) for name in names]
            code = await _some(options, store, summaries, screen)
        await screen.flushed()
        return code


async def _some(
    options: SessionsOptions,
    store: SessionPersistence,
    summaries: Sequence[SessionSummary],
    screen: Screen,
) -> int:
    match options.action:
        case "fork" | "salvage" | "rm":
            from dsh.cli.copying import copying  # noqa: PLC0415

            return await copying(options, store, summaries, screen)
        case "replay":
            from dsh.cli.replaying import replaying  # noqa: PLC0415

            return await replaying(options, store, summaries[0], screen)
        case _:
            return await _one(options, store, summaries[0], screen)


async def _one(
    options: SessionsOptions, store: SessionPersistence, summary: SessionSummary, screen: Screen
) -> int:
    match options.action:
        case "show":
            log = await read_known(store, summary.id)
            width = screen.width if screen.out.is_terminal else PIPE_WIDTH
            for line in story(log, width=width, turn=options.turn):
                screen.out.text(line + "\n")
        case "messages":
            log = await read_known(store, summary.id)
            for message in request_at(log.events, options.step):
                screen.out.data(orjson.dumps(encode_record(message)) + b"\n")
        case "verify":
            return await _verify(store, summary, screen)
        case _:
            raise UsageError(f"dsh sessions {options.action} takes no SESSION")
    return 0


async def _list(store: SessionPersistence, cwd: Path, screen: Screen, *, everywhere: bool) -> None:
    stored = await store.list()
    shown = [one for one in stored if everywhere or is_here(one, cwd) or one.header is None]
    width = screen.width if screen.out.is_terminal else PIPE_WIDTH
    for one in shown:
        screen.out.text(clipped(_summary(one, everywhere=everywhere), width) + "\n")
    unreadable = sum(one.header is None for one in stored)
    elsewhere = len(stored) - len(shown)
    tail = f", {elsewhere} of other directories (--all)" if elsewhere else ""
    tail += f", {unreadable} unreadable (dsh sessions verify ID)" if unreadable else ""
    screen.say(f"{len(shown)} listed{tail}\n")


def _summary(one: SessionSummary, *, everywhere: bool) -> str:
    what = f"{one.id}   {moment(one.modified_ms)}   {size_in_words(one.bytes)}"
    if one.header is None:
        return f"{what}   unreadable: {one_line(one.problem or 'no reason given')}"
    return f"{what}   {one_line(one.header.cwd or '(no workspace)')}" if everywhere else what


async def _verify(store: SessionPersistence, summary: SessionSummary, screen: Screen) -> int:
    log = await read_known(store, summary.id)
    problems = verify(log)
    if not problems:
        size = size_in_words(summary.bytes)
        screen.out.text(f"ok {summary.id}: {len(log.events)} events, {size}\n")
        return 0
    _tell(summary, problems, screen)
    return 1


async def _verify_all(store: SessionPersistence, screen: Screen) -> int:
    """One line for each session; a bad one does not keep the others from being read."""
    bad = 0
    for summary in await store.list():
        try:
            bad += await _verify(store, summary, screen)
        except SessionError as error:
            screen.out.text(f"{summary.id}: {one_line(error.message)}\n")
            bad += 1
    if bad:
        screen.say(f"{bad} not sound; dsh sessions salvage ID copies what can be read\n")
    return 1 if bad else 0


def _tell(summary: SessionSummary, problems: Iterable[Problem], screen: Screen) -> None:
    for problem in problems:
        place = f"seq {problem.seq}" if problem.seq is not None else "the log"
        screen.out.text(f"{summary.id}: {place}: {one_line(problem.text)}\n")
