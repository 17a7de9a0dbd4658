"""The question about one call, as lines: who asks, the whole call, what can be answered.

What comes in: a question of `approval/request`, and what the session's rules offer. What goes out:
whole lines, inert, none of them cut: nobody approves what cannot be read. Nothing is asked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dsh.catalog.records import AssistantMessage, ToolCallBlock
from dsh.cli.screen.inert import cells, inert, one_line
from dsh.cli.screen.previews import change_of

if TYPE_CHECKING:
    from dsh import catalog as ev
    from dsh.cli.screen.outputs import Screen, Style
    from dsh.cli.screen.previews import Change
    from dsh.hooks import JsonValue

__all__ = ["MARKS", "block_of", "homely", "wrapped"]

INDENT: Final = 4
#: How a line of a change looks, by its first character.
MARKS: Final[Mapping[str, Style]] = {"+": "green", "-": "red"}


def block_of(
    question: ev.approval.Request, screen: Screen, offer: str | None, *, whose: str | None = None
) -> str:
    """The question: who asks, the whole call, where it would run, and what can be answered.

    `whose`: the session whose agent it is, where that is not the one the person talks to.
    """
    place, calls = _place(question)
    asks = f"approve {one_line(question.tool_name)}?"
    if question.total > calls:  # others wait, too
        asks += f"  {question.position} of {question.total}"
    if whose is not None:
        asks += f"  for agent {one_line(whose)}"
    if calls > 1:
        asks += f"  call {place} of {calls}"
    by = question.asked_by if question.asked_by is not None else "a plugin"
    reason = f": {one_line(question.reason)}" if question.reason else ""
    why = f"asked by {one_line(by)}{reason}"
    gap = screen.width - cells(asks) - cells(why)
    styled = screen.styled(asks, "bold")
    head = [styled + " " * gap + why] if gap > 0 else [styled, *worded(why, screen.width, 2)]
    cwd = question.agent.session.header.cwd
    where = wrapped(f"in {homely(cwd)}", screen.width, 2) if cwd is not None else []
    body = _body(question.arguments, screen)
    options = ["y once", *_session_option(question, offer), "n REASON", "v view", "then Enter"]
    first, *others = worded(screen.separator.join(options), screen.width - 2, 0)
    answers = [first, *(f"  {line}" for line in others)]
    return "\n".join([*head, *body, *where, *answers]) + "\n"


def homely(path: str) -> str:
    """A path as a person writes it, inert: `~/shop`."""
    home, given = Path.home(), Path(path)
    return inert(f"~/{given.relative_to(home)}" if given.is_relative_to(home) else path)


def _place(question: ev.approval.Request) -> tuple[int, int]:
    """Which call of its reply it is, from 1, and how many the reply has; 1 of 1 if unknown."""
    for message in reversed(question.agent.session.derive_messages()):
        if isinstance(message, AssistantMessage):
            ids = [one.id for one in message.content if isinstance(one, ToolCallBlock)]
            if question.call_id in ids:
                return ids.index(question.call_id) + 1, len(ids)
    return 1, 1


def _session_option(question: ev.approval.Request, offer: str | None) -> list[str]:
    if offer is None:
        return []
    arguments = question.arguments
    same = isinstance(arguments, dict) and offer.endswith(f": {arguments.get('command')}")
    return ["s same command this session" if same else f"s {one_line(offer)} this session"]


def _body(arguments: JsonValue, screen: Screen) -> list[str]:
    """Every argument, whole; a command first and without its name, an edit as what it changes."""
    width = screen.width
    if not isinstance(arguments, Mapping):
        return wrapped(json.dumps(arguments, ensure_ascii=False), width, INDENT)
    change = change_of(arguments)
    lines = [] if change is None else _change(change, screen)
    shown = frozenset[str]() if change is None else change.shown
    for key, value in sorted(arguments.items(), key=lambda item: item[0] != "command"):
        if key in shown:
            continue
        if key == "command" and isinstance(value, str):
            lines += wrapped(value, width, INDENT)
        elif isinstance(value, str) and "\n" in value:
            lines += wrapped(f"{one_line(key)}:", width, INDENT)
            lines += wrapped(value, width, INDENT + 2)
        else:
            said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines += wrapped(f"{one_line(key)}: {said}", width, INDENT)
    return lines or [" " * INDENT + "(no arguments)"]


def _change(change: Change, screen: Screen) -> list[str]:
    lines = wrapped(f"{change.path}   {change.counts}", screen.width, INDENT)
    for line in change.lines:
        style: Style = MARKS.get(line[0], "plain")
        lines += [screen.styled(one, style) for one in wrapped(line, screen.width, INDENT)]
    return lines


def worded(text: str, width: int, indent: int) -> list[str]:
    """Words of our own in lines that fit, parted between words where that is possible."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and cells(longer) > width - indent - 1:
            lines += wrapped(line, width, indent)
            longer = word
        line = longer
    return [*lines, *wrapped(line, width, indent)]


def wrapped(text: str, width: int, indent: int) -> list[str]:
    """Whole text in lines that fit, each indented: nothing foreign stands in the first column."""
    room = max(width - indent - 1, 8)
    lines: list[str] = []
    for line in inert(text).expandtabs(4).split("\n"):
        used, piece, first = 0, "", True
        for letter in line:
            wide = cells(letter)
            if used + wide > room:
                lines.append(_placed(piece, indent, first=first))
                used, piece, first = 0, "", False
            piece += letter
            used += wide
        lines.append(_placed(piece, indent, first=first))
    return lines


def _placed(piece: str, indent: int, *, first: bool) -> str:
    """A piece of a line; a later one begins further right by one."""
    return (" " * (indent if first else indent + 1) + piece).rstrip(" ")
