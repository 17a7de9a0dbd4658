"""The words about sessions: another one, a copy, a name, the story so far, a file.

What comes in: the conversation and a word's argument. What goes out: another open session, lines
on its front, a file that only its owner can read. A session that is copied, told or exported is
never changed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.boot import read_known
from dsh.cli.chat.resuming import pick_session
from dsh.cli.screen.inert import one_line
from dsh.cli.screen.questions import homely
from dsh.cli.sessions.choosing import chosen
from dsh.cli.sessions.looking import found_in
from dsh.cli.sessions.markdown import markdown
from dsh.cli.sessions.positions import end_of, turn_named
from dsh.cli.sessions.story import story
from dsh.errors import UsageError
from dsh.seams.persistence import PERSISTENCE
from dsh.session import fork_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dsh.cli.chat.talk import Talk
    from dsh.session import Session
    from dsh.wire import StoredLog

__all__ = ["SESSION_WORDS", "log_of", "open_session", "refuse_while_running", "write_private"]


def open_session(talk: Talk) -> Session:
    """The open session. Raises UsageError if none is."""
    if talk.place is None:
        raise UsageError("no session is open")
    return talk.place.session


def refuse_while_running(talk: Talk, what: str) -> None:
    """Raise UsageError while a turn runs: `what` would pull its session from under it."""
    if talk.place is not None and talk.place.handle.agent.status == "running":
        raise UsageError(f"a turn is running; Ctrl-C stops it, then {what}")


async def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else can read. Raises UsageError with the reason."""

    def write() -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)

    try:
        await trio.to_thread.run_sync(write)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


async def _new(talk: Talk, _argument: str) -> None:
    refuse_while_running(talk, "/new")
    before = talk.session_id
    await talk.open(evolve(talk.options, session=None, resume=None))
    talk.front.print(f"-- session {talk.session_id} begins; back to the other: /resume {before} --")


async def _resume(talk: Talk, argument: str) -> None:
    refuse_while_running(talk, "/resume")
    store = talk.harness.service(PERSISTENCE)
    if argument:
        wanted = (await chosen(store, argument, talk.plan.cwd)).id
    else:
        clock = talk.harness.context.clock
        picked = await pick_session(store, talk.front, talk.plan.cwd, clock, talk.marked)
        if picked is None:
            return
        wanted = picked
    if wanted == talk.session_id:
        raise UsageError(f"session {wanted} is the one that is open")
    await talk.open(evolve(talk.options, session=None, resume=wanted))


async def _fork(talk: Talk, argument: str) -> None:
    refuse_while_running(talk, "/fork")
    log = await log_of(talk)
    boundary = None if not argument else end_of(log.events, argument)
    store = talk.harness.service(PERSISTENCE)
    child = f"s{uuid4().hex[:10]}"
    now = talk.harness.context.clock.now_ms()
    inside = bool(argument)
    await fork_log(store, log, child_id=child, now_ms=now, boundary=boundary, inside=inside)
    await talk.open(evolve(talk.options, session=None, resume=child))
    parent = log.header.id
    talk.front.print(f"-- {child} is a copy of {parent}; back to that: /resume {parent} --")


async def _title(talk: Talk, argument: str) -> None:
    session, title = open_session(talk), one_line(argument)
    if not title:
        raise UsageError("what is it to be called? write /title TEXT")
    session.append(ev.session.Title(title=title))
    talk.front.notice(f"called {title}")


async def _view(talk: Talk, argument: str) -> None:
    log = await log_of(talk)
    turn = turn_named(argument) if argument else None
    for line in story(found_in(log), width=talk.front.width, turn=turn):
        talk.front.print(line)


async def _export(talk: Talk, argument: str) -> None:
    path = trio.Path(talk.plan.cwd) / argument
    if path.suffix != ".md":
        raise UsageError("where to? write /export FILE.md")
    if await path.exists():
        raise UsageError(f"{path} is there already; choose another name")
    log = await log_of(talk)
    await write_private(Path(path), "\n".join(markdown(found_in(log))) + "\n")
    talk.front.print(f"exported {log.header.id} to {homely(str(path))}")


async def log_of(talk: Talk) -> StoredLog:
    """The open session as the store has it, up to now."""
    session = open_session(talk)
    if not session.events:
        raise UsageError("nothing has happened in this session yet")
    await session.writer.barrier()
    return await read_known(talk.harness.service(PERSISTENCE), session.id)


SESSION_WORDS: Final[Mapping[str, Callable[[Talk, str], Awaitable[None]]]] = {
    "new": _new,
    "resume": _resume,
    "fork": _fork,
    "title": _title,
    "view": _view,
    "export": _export,
}
