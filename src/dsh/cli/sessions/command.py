"""`dsh sessions`: the actions on stored sessions; here those that only look.

What comes in: typed options. What goes out: rows, a story, messages as JSON lines, or a verdict, on
standard output. Beside are `showing`, `copying` (and removing) and `replaying`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from dsh.boot import read_known
from dsh.catalog.codec import encode_record
from dsh.cli.screen.figures import moment, size_in_words
from dsh.cli.screen.inert import clipped, one_line
from dsh.cli.sessions.choosing import chosen, is_here
from dsh.cli.sessions.looking import Looking, look
from dsh.cli.sessions.requests import request_at
from dsh.cli.sessions.summaries import READ_MAX, told_of_newest
from dsh.errors import SessionError, UsageError
from dsh.session import Problem, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dsh.cli.grammar.sessions import SessionsOptions
    from dsh.cli.screen.outputs import Screen
    from dsh.cli.sessions.summaries import Told
    from dsh.seams.persistence import SessionPersistence, SessionSummary

__all__ = ["sessions"]

PIPE_WIDTH: Final = 100
#: Columns that ids and states are aligned to, as far as they are not longer.
ID_CELLS: Final = 24
STATE_CELLS: Final = 14


def sessions(options: SessionsOptions) -> int:
    """Run one of the actions. Returns the exit code; a refusal is said on standard error."""
    return look(options, _act)


async def _act(options: SessionsOptions, looking: Looking) -> int:
    store, screen = looking.store, looking.screen
    if options.action == "list":
        await _list(options, store, looking.cwd, screen)
        return 0
    if options.action == "verify" and options.everywhere:
        return await _verify_all(store, screen)
    names = () if options.session is None else (options.session, *options.others)
    if not names:
        raise UsageError(f"dsh sessions {options.action} needs a SESSION, or --all")
    by_title = options.action != "rm"  # what is gone is gone: ids only
    summaries = [await chosen(store, name, looking.cwd, by_title=by_title) for name in names]
    return await _some(options, store, summaries, screen)


async def _some(
    options: SessionsOptions,
    store: SessionPersistence,
    summaries: Sequence[SessionSummary],
    screen: Screen,
) -> int:
    match options.action:
        case "fork" | "salvage" | "rm":
            from dsh.cli.sessions.copying import copying  # noqa: PLC0415

            return await copying(options, store, summaries, screen)
        case "replay":
            from dsh.cli.sessions.replaying import replaying  # noqa: PLC0415

            return await replaying(options, store, summaries[0], screen)
        case _:
            return await _one(options, store, summaries[0], screen)


async def _one(
    options: SessionsOptions, store: SessionPersistence, summary: SessionSummary, screen: Screen
) -> int:
    match options.action:
        case "show":
            from dsh.cli.sessions.showing import showing  # noqa: PLC0415

            return await showing(options, store, summary, screen)
        case "messages":
            log = await read_known(store, summary.id)
            for message in request_at(log.events, options.step):
                screen.out.data(orjson.dumps(encode_record(message)) + b"\n")
        case "verify":
            return await _verify(store, summary, screen)
        case _:
            raise UsageError(f"dsh sessions {options.action} takes no SESSION")
    return 0


async def _list(
    options: SessionsOptions, store: SessionPersistence, cwd: Path, screen: Screen
) -> None:
    stored = await store.list()
    everywhere = options.everywhere
    shown = [one for one in stored if everywhere or is_here(one, cwd) or one.header is None]
    if options.ids:
        screen.out.text("".join(f"{one.id}\n" for one in shown))
        return
    width = screen.width if screen.out.is_terminal else PIPE_WIDTH
    told = await told_of_newest(store, shown)
    longest = max((len(one.id) for one in shown), default=0)
    for one in shown:
        row = _summary(one, told.get(one.id), min(longest, ID_CELLS), everywhere=everywhere)
        screen.out.text(clipped(row, width) + "\n")
    unreadable = sum(one.header is None or isinstance(told.get(one.id), str) for one in shown)
    elsewhere = len(stored) - len(shown)
    tail = f", {elsewhere} of other directories (--all)" if elsewhere else ""
    tail += f", {unreadable} unreadable (dsh sessions verify ID)" if unreadable else ""
    tail += f", titles of the newest {READ_MAX}" if len(shown) > READ_MAX else ""
    screen.say(f"{len(shown)} listed{tail}\n")


def _summary(
    one: SessionSummary, told: Told | str | None, id_cells: int, *, everywhere: bool
) -> str:
    """Id, time, size, turns, how it ended, workspace if asked for, title; or why it is none."""
    what = f"{one.id:<{id_cells}}   {moment(one.modified_ms)}   {size_in_words(one.bytes):<7}"
    if one.header is None or isinstance(told, str):
        reason = told if isinstance(told, str) else one.problem or "no reason given"
        return f"{what}   unreadable: {one_line(reason)}"
    parts = [what]
    if told is not None:
        parts += [f"{told.count:<8}", f"{told.state:<{STATE_CELLS}}"]
    if everywhere:
        parts.append(one_line(one.header.cwd or "(no workspace)"))
    if told is not None:
        parts.append(told.title or "(nothing said)")
    return "   ".join(parts).rstrip()


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
