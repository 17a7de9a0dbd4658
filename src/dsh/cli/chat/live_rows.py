"""The live lines of a conversation: what is going on, what waits, and the status line.

What comes in: what the transcript says is going on, what is queued, numbers of the session, the
time and the width. What goes out: rows that each fit the width. Pure: the same in, the same out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.cli.screen.inert import cells, clipped, inert, one_line
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.cli.chat.transcript import Doing

__all__ = ["Gauge", "activity_rows", "queued_rows", "status_row"]

ROWS_MAX: Final = 6
TOOLS_MAX: Final = 4
#: Lines of the output of a tool that runs alone.
SHOWN_MAX: Final = 4
QUEUED_MAX: Final = 2
NAME_CELLS: Final = 10
KILO: Final = 1000
#: From here on how long a whole turn has gone on is said, too.
LONG_MS: Final = 10_000


@frozen(kw_only=True, slots=True)
class Gauge:
    """Numbers for the status line. `context` and `window` in tokens, None when unknown.

    `estimated`: the context is no count of the provider's. `cost`: what the session has cost, in
    the currency of the configured prices; None where a price is missing.
    """

    session: str
    model: str
    context: int | None = None
    window: int | None = None
    estimated: bool = False
    tokens: int = 0
    cost: float | None = None


def activity_rows(doing: Doing, *, now: int, width: int, stopping: bool) -> list[str]:
    """The partial reply or the running tools, at most six rows."""
    if not doing.open and not doing.compacting:
        return []
    since = _span(now - doing.since)
    if stopping:
        names = ", ".join(dict.fromkeys(tool.name for tool in doing.tools.values()))
        finishing = f"{names} may finish, 10 s; " if names else ""
        return [clipped(f"stopping: {finishing}Ctrl-C again leaves", width)]
    if doing.compacting:
        return [clipped(f"compacting {since}", width)]
    if doing.waiting is not None:
        wait = doing.waiting
        return [clipped(f'{wait.words} in {_span(wait.until - now + 999)}: "{wait.why}"', width)]
    rows = _tail(doing.partial, width)
    tools = list(doing.tools.values())
    for tool in tools[:TOOLS_MAX]:
        state = "waits for you" if tool.asked else f"running {_span(now - tool.began)}"
        shows = [line for line in tool.shows.splitlines() if line.strip()]
        if len(tools) == 1:
            rows.append(_tool_row(tool.name, tool.subject, state, width))
            indent = " " * min(NAME_CELLS + 3, width // 4)
            rows += [
                indent + clipped(one_line(line), width - len(indent)) for line in shows[-SHOWN_MAX:]
            ]
        else:
            said = f'{state}: "{clipped(one_line(shows[-1]), width // 3)}"' if shows else state
            rows.append(_tool_row(tool.name, tool.subject, said, width))
    if len(tools) > TOOLS_MAX:
        rows.append(f"  +{len(tools) - TOOLS_MAX} more")
    if not rows:
        asked = f"asked {doing.provider or 'the model'}"
        phases = {"asked": asked, "tools": "preparing the next step"}
        what = phases.get(doing.phase, doing.phase)
        rows.append(clipped(f"{what} {since}", width))
    return rows[-ROWS_MAX:]


def queued_rows(queued: Sequence[str], later: int, width: int) -> list[str]:
    """What waits to be read by the model, newest last, and how to take it back."""
    rows: list[str] = []
    hint = "Up takes it back"
    for text in queued[-QUEUED_MAX:]:
        room = width - len("queued for next step: ") - len(hint) - 4
        if room < len(hint):
            rows.append(clipped(f'queued: "{one_line(text)}"', width))
            continue
        said = f'queued for next step: "{clipped(one_line(text), room)}"'
        rows.append(said + " " * (width - cells(said) - len(hint)) + hint)
    if later:
        rows.append(clipped(f"{later} later: after this turn", width))
    return rows


def status_row(
    doing: Doing, gauge: Gauge, *, now: int, width: int, separator: str, stopping: bool
) -> str:
    """State, context, model, session, hint, what was spent; whole segments drop from the end."""
    state = "idle"
    hint = "/help"
    if doing.open:
        hint = "Ctrl-C stops"
        state = f"step {doing.step}" if doing.step else "starting"
        tool = next(iter(doing.tools.values()), None)
        if stopping:
            state = "stopping"
        elif tool is not None:
            what = f"{tool.name} waits for you" if tool.asked else tool.name
            state += f"{separator}{what} {_span(now - tool.began)}"
        else:
            state += f"{separator}{_span(now - doing.since)}"
    segments = [state]
    if gauge.context is not None:
        segments.append(_context(gauge))
    segments.append(one_line(gauge.model))
    segments.append(one_line(gauge.session))
    told = len(segments)
    if gauge.tokens:
        segments.append(f"{_short(gauge.tokens)} tokens")
    if gauge.cost is not None:
        segments.append(f"cost {gauge.cost:.2f}")
    if doing.open and now - doing.began >= LONG_MS:
        segments.append(f"turn {_span(now - doing.began)}")
    while len(segments) > told and cells(separator.join(segments)) + cells(hint) + 2 > width:
        segments.pop()
    while len(segments) > 1 and cells(separator.join(segments)) > width:
        segments.pop()
    shown = clipped(separator.join(segments), width)
    room = width - cells(shown) - cells(hint)
    return f"{shown}{' ' * room}{hint}" if room > 1 else shown


def _context(gauge: Gauge) -> str:
    about = "~" if gauge.estimated else ""
    used = gauge.context or 0
    if not gauge.window:
        return f"ctx {about}{_short(used)}"
    return f"ctx {about}{100 * used // gauge.window}% of {_short(gauge.window)}"


def _tool_row(name: str, subject: str, state: str, width: int) -> str:
    padding = " " * max(NAME_CELLS - cells(name), 0)
    head = f"  {name}{padding} "
    room = width - cells(head) - cells(state) - 2
    if room < NAME_CELLS:
        return clipped(f"  {name} {state}", width)
    body = clipped(subject, room)
    return f"{head}{body}{' ' * (room - cells(body))}  {state}"


def _tail(text: str, width: int) -> list[str]:
    """The end of a line that is still being written, wrapped to the width."""
    if not text:
        return []
    rows: list[str] = []
    row, used = "", 0
    for letter in inert(text[-ROWS_MAX * width :]).expandtabs(4):
        wide = cells(letter)
        if used + wide > width:
            rows.append(row)
            row, used = "", 0
        row += letter
        used += wide
    return [*rows, row][-ROWS_MAX:]


def _span(milliseconds: int) -> str:
    whole = max(milliseconds, 0) // 1000
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"  # noqa: PLR2004


def _short(count: int) -> str:
    if count < KILO:
        return str(count)
    return f"{count / KILO:.1f}k" if count < 10 * KILO else f"{count // KILO}k"
