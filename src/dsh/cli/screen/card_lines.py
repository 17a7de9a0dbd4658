"""A tool call that has ended, as lines of the scrollback, for the width of the window.

What comes in: the call, its outcome, how long it took, its number for `/out`. What goes out:
finished lines: one row where there is room, two or three where there is less, then a glance at the
output or at what was changed, and how much of it is not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.cli.screen.inert import cells, clipped, inert
from dsh.cli.screen.questions import MARKS
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh.cli.screen.cards import Outcome
    from dsh.cli.screen.outputs import Style
    from dsh.cli.screen.previews import Change
    from dsh.seams.previews import PreviewLines

__all__ = ["MEDIUM", "WIDE", "Looks", "RunningTool", "card_lines"]

#: From this width on a tool call is one row; from the second on it is two, below that three.
WIDE: Final = 80
MEDIUM: Final = 50
NAME_CELLS: Final = 10
SUMMARY_CELLS: Final = 10
TIME_CELLS: Final = 8
#: Lines around a change that are shown with it.
AROUND: Final = 2


@frozen(slots=True)
class Looks:
    """How lines look: `styled(text, style)`, the separator; width and previews as they are now."""

    styled: Callable[[str, Style], str]
    separator: str
    width: Callable[[], int]
    previews: Callable[[], PreviewLines]


@frozen(slots=True)
class RunningTool:
    """A call whose result is not there yet. `began` in epoch milliseconds.

    `asked`: it waits for a person, whose time is not the tool's. `change`: what it would edit.
    `shows`: the end of its output so far.
    """

    name: str
    subject: str
    began: int
    asked: bool = False
    change: Change | None = None
    shows: str = ""


def card_lines(
    tool: RunningTool, outcome: Outcome, took: str, number: int, looks: Looks
) -> Iterator[str]:
    """The lines of one card. `number` is what `/out` calls it."""
    width = looks.width()
    changed = None if outcome.failed or outcome.denied_by else tool.change
    text = outcome.summary if changed is None else changed.counts
    summary = looks.styled(text, "red" if outcome.failed else "plain")
    more = f"{outcome.hidden} more lines: /out {number}" if outcome.hidden else ""
    if width >= WIDE:
        indent = " " * (NAME_CELLS + 3)
        room = width - len(indent) - max(SUMMARY_CELLS, cells(text)) - TIME_CELLS - 3
        body = clipped(tool.subject, max(room, 8))
        gap = " " * max(room - cells(body), 0)
        pad = " " * max(SUMMARY_CELLS - cells(text), 0)
        name = looks.styled(tool.name, "bold") + " " * max(NAME_CELLS - cells(tool.name), 0)
        yield f"  {name} {body}{gap}  {summary}{pad} {took:>{TIME_CELLS}}"
        tail = [more] if more else []
    else:
        indent = " " * (8 if width >= MEDIUM else 2)
        name = looks.styled(tool.name, "bold")
        if width >= MEDIUM:
            room = width - cells(tool.name) - 5
            yield f"  {name}  {clipped(tool.subject, max(room, 8))}".rstrip()
        else:
            yield f"  {name}"
            if tool.subject:
                yield "  " + clipped(tool.subject, width - 3)
            more = more.rpartition(": ")[2]
        yield indent + looks.separator.join([summary, took, *([more] if more else [])])
        tail = []
    if outcome.denied_by is not None:
        yield indent + " ".join(outcome.preview)  # whole: it names the remedy
    elif changed is not None:
        yield from _change_lines(changed, indent, number, looks)
    elif width >= WIDE or outcome.failed:
        for line in (*outcome.preview, *tail):
            yield indent + clipped(line, width - len(indent) - 1)


def _change_lines(change: Change, indent: str, number: int, looks: Looks) -> Iterator[str]:
    """What was changed, with little around it, up to a number of lines."""
    near = [
        at
        for at in range(len(change.lines))
        if any(line[0] in MARKS for line in change.lines[max(at - AROUND, 0) : at + AROUND + 1])
    ]
    room, most = looks.width() - len(indent) - 1, looks.previews().change
    for at in near[:most]:
        line = change.lines[at]
        shown = clipped(inert(line).expandtabs(4), room)
        yield indent + looks.styled(shown, MARKS.get(line[0], "plain"))
    if len(near) > most:
        yield f"{indent}{len(near) - most} more lines: /out {number}"
