"""Choosing a session to go on with: one row for each that is stored, readable or not.

What comes in: the store, a front to choose on, the workspace. What goes out: an id, or None. It
reads logs and changes none, and makes a copy when one is asked for; a log that cannot be read is a
row with its reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from dsh import catalog as ev
from dsh.boot import read_known
from dsh.catalog.records import TextBlock, UserSource
from dsh.cli.chat.front import PickRows
from dsh.cli.screen.figures import size_in_words
from dsh.cli.screen.inert import cells, clipped, one_line
from dsh.cli.screen.progress import reason_in_words
from dsh.cli.sessions.choosing import is_here
from dsh.cli.sessions.looking import found_in
from dsh.cli.sessions.story import story
from dsh.errors import SessionError, UsageError
from dsh.session import fork_log

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.cli.chat.front import Front
    from dsh.kernel import Clock
    from dsh.seams.persistence import SessionPersistence, SessionSummary
    from dsh.wire import StoredLog

__all__ = ["ago", "pick_session", "row_of"]

#: Logs that are opened for their titles; older ones are rows with what their first line says.
READ_MAX: Final = 60
TITLE_CELLS: Final = 32
MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


async def pick_session(
    store: SessionPersistence, front: Front, cwd: Path, clock: Clock
) -> str | None:
    """Let the person choose. None: no choice. Raises UsageError for one that cannot be read."""
    stored = await store.list()
    if not stored:
        raise UsageError("no session is stored yet")
    rows: list[str] = []
    problems: dict[str, str] = {}
    for at, one in enumerate(stored):
        log: StoredLog | str | None = one.problem
        if at < READ_MAX and one.header is not None:
            try:
                log = await store.read(one.id)
            except SessionError as error:
                log = error.message
        if isinstance(log, str):
            problems[one.id] = log
        rows.append(row_of(one, log, clock.now_ms()))
    here = [at for at, one in enumerate(stored) if is_here(one, cwd)]
    lists = (
        PickRows("here", tuple(rows[at] for at in here)),
        PickRows("all", tuple(rows)),
    )
    while (choice := await front.pick("resume", lists)) is not None:
        picked = stored[here[choice.row] if choice.shown == 0 else choice.row]
        if picked.id in problems:
            raise UsageError(
                f"session {picked.id} cannot be read: {problems[picked.id]}; "
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


def row_of(one: SessionSummary, log: StoredLog | str | None, now_ms: int) -> str:
    """Title, age, turns, size, state, id; or the reason why it cannot be read."""
    age, size = ago(now_ms - one.modified_ms), size_in_words(one.bytes)
    if isinstance(log, str):
        return f"{one.id}   {age}   {size}   unreadable: {one_line(log)}"
    if log is None:
        return f"{one.id}   {age}   {size}"
    title, named, turns, state = "", "", 0, "open"
    for event in log.events:
        match event.data:
            case ev.user.Message(message=message) if isinstance(message.source, UserSource):
                texts = (b.text for b in message.content if isinstance(b, TextBlock))
                title = title or one_line(" ".join(texts))
            case ev.session.Title(title=given):
                named = one_line(given)
            case ev.turn.Start():
                turns, state = turns + 1, f"interrupted in turn {turns + 1}"
            case ev.turn.End(reason=reason):
                state = reason_in_words(reason)
            case _:
                pass
    shown = clipped(named or title or "(nothing said)", TITLE_CELLS)
    shown += " " * (TITLE_CELLS - cells(shown))
    count = "1 turn" if turns == 1 else f"{turns} turns"
    return f"{shown}  {age:<12} {count:<9} {size:<7} {one_line(state)}   {one.id}"


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
