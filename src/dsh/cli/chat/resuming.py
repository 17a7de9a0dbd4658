"""Choosing a session to go on with: one row for each that is stored, readable or not.

What comes in: the store, a front to choose on, the workspace. What goes out: an id, or None. It
reads logs and changes none, and makes a copy when one is asked for; a log that cannot be read is a
row with its reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from dsh.boot import read_known
from dsh.cli.chat.front import PickRows
from dsh.cli.screen.figures import size_in_words
from dsh.cli.screen.inert import cells, clipped, one_line
from dsh.cli.sessions.choosing import is_here
from dsh.cli.sessions.looking import found_in
from dsh.cli.sessions.story import story
from dsh.cli.sessions.summaries import told_of_newest
from dsh.errors import UsageError
from dsh.session import fork_log

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.cli.chat.front import Front, Marked
    from dsh.cli.sessions.summaries import Told
    from dsh.kernel import Clock
    from dsh.seams.persistence import SessionPersistence, SessionSummary

__all__ = ["ago", "pick_session", "row_of"]

TITLE_CELLS: Final = 32
MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


async def pick_session(
    store: SessionPersistence, front: Front, cwd: Path, clock: Clock, marked: Marked
) -> str | None:
    """Let the person choose. None: no choice. Raises UsageError for one that cannot be read.

    The list begins with what `marked` says was shown last, and comes back as it was left when a
    session was only looked at.
    """
    marked.row, marked.needle = None, ""
    stored = await store.list()
    if not stored:
        raise UsageError("no session is stored yet")
    told = await told_of_newest(store, stored)
    now = clock.now_ms()
    rows = [row_of(one, told.get(one.id), now) for one in stored]
    here = [at for at, one in enumerate(stored) if is_here(one, cwd)]
    lists = (
        PickRows("here", tuple(rows[at] for at in here)),
        PickRows("all", tuple(rows)),
    )
    while (choice := await front.pick("resume", lists, marked)) is not None:
        picked = stored[here[choice.row] if choice.shown == 0 else choice.row]
        problem = told.get(picked.id)
        if isinstance(problem, str):
            raise UsageError(
                f"session {picked.id} cannot be read: {one_line(problem)}; "
                f"dsh sessions salvage {picked.id} copies what can be"
            )
        if choice.action == "open":
            return picked.id
        log = await read_known(store, picked.id)
        if choice.action == "fork":
            child = f"s{uuid4().hex[:10]}"
            await fork_log(store, log, child_id=child, now_ms=clock.now_ms())
            front.print(f"{child} is a copy of {picked.id}, which stays as it is")
            return child
        for line in story(found_in(log), width=front.width):
            front.print(line)
    return None


def row_of(one: SessionSummary, told: Told | str | None, now_ms: int) -> str:
    """Title, age, turns, size, state, id; or the reason why it cannot be read."""
    age, size = ago(now_ms - one.modified_ms), size_in_words(one.bytes)
    if isinstance(told, str):
        return f"{one.id}   {age}   {size}   unreadable: {one_line(told)}"
    if told is None:
        return f"{one.id}   {age}   {size}"
    shown = clipped(told.title or "(nothing said)", TITLE_CELLS)
    shown += " " * (TITLE_CELLS - cells(shown))
    return f"{shown}  {age:<12} {told.count:<9} {size:<7} {told.state}   {one.id}"


def ago(milliseconds: int) -> str:
    """How long ago, roughly: `12 min ago`, `yesterday`, `3 days ago`."""
    passed = max(milliseconds, 0) // 1000
    if passed < MINUTE:
        return "just now"
    if passed < HOUR:
        return f"{passed // MINUTE} min ago"
    if passed < DAY:
        return f"{passed // HOUR} h ago"
    days = passed // DAY
    return "yesterday" if days == 1 else f"{days} days ago"
