"""A session told in plain text: turns, replies, tries, tool calls, waits, how each turn ended.

What comes in: what of a log could be read. What goes out: lines, inert and cut to a width, each
record on one of its own; `#n` is the seq everywhere. It tells the trajectory that the page shows,
in the same words; what is left out is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.cli.screen.cards import outcome_of, seconds, subject_of
from dsh.cli.screen.figures import moment, size_in_words
from dsh.cli.screen.inert import cells, clipped, one_line
from dsh.cli.screen.progress import reason_in_words
from dsh.view import Trajectory, Words, count_in_words, counted, told, totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dsh.cli.sessions.looking import Found
    from dsh.view import Row, RowKind, Step, Turn
    from dsh.wire import StoredEvent

__all__ = ["WORDS", "moment", "size_in_words", "story", "trajectory_of"]

BODY_INDENT: Final = 9
#: What the command line calls things; the page says the same.
WORDS: Final = Words(
    subject=subject_of,
    outcome=outcome_of,
    ending=reason_in_words,
    line=one_line,
    seconds=seconds,
)
#: What stands before a row. None: the row is not told unless it is asked for.
LABELS: Final[dict[RowKind, str | None]] = {
    "user": "you",
    "context": "context",
    "system": "system",
    "tool": "",
    "decision": "",
    "rewrite": "",
    "compaction": "---",
    "prune": "---",
    "replace": "---",
    "seed": "---",
    "unknown": "?",
    "queue": None,
    "request": None,
    "event": None,
}


def trajectory_of(events: Sequence[StoredEvent]) -> Trajectory:
    """The trajectory of a log, in the command line's words."""
    trajectory = Trajectory(WORDS)
    trajectory.see_all(events)
    return trajectory


def story(
    found: Found,
    *,
    width: int,
    turn: int | None = None,
    wanted: Callable[[Row], bool] | None = None,
) -> Iterator[str]:
    """The lines of a session, or of one of its turns; with `wanted`, of those rows alone."""
    trajectory = trajectory_of(found.events)
    teller = _Teller(trajectory, width)
    if turn is None and wanted is None:
        yield from _head(found, trajectory, width)
    left_out = 0
    for row in trajectory.tables.rows:
        if turn is not None and row.turn != turn:
            continue
        if wanted is not None:
            if wanted(row):
                yield teller.line(row, label=f"{row.turn}.{row.step}")
            continue
        if row.kind in LABELS and LABELS[row.kind] is None:
            left_out += 1
            continue
        yield from teller.lines(row)
    if wanted is None:
        yield from teller.rest()
        yield from _tail(found, trajectory, left_out if turn is None else 0)


def _head(found: Found, trajectory: Trajectory, width: int) -> Iterator[str]:
    header, turns = found.header, trajectory.tables.turns
    where = one_line(header.cwd) if header is not None and header.cwd else "(no workspace)"
    when = moment(trajectory.base if header is None else header.created_at)
    ending = (turns[-1].words or "not finished") if turns else "no turn yet"
    rest = f"   {where}   {when}   {ending}"
    start = f"session  {found.id}"
    if trajectory.title:
        room = max(width - cells(start) - cells(rest) - 3, 12)
        start += f' "{clipped(trajectory.title, room)}"'
    yield clipped(start + rest, width)
    sums = totals(trajectory.tables, trajectory.length)
    counts = ", ".join(
        counted(count, word)
        for count, word in (
            (len(found.events), "event"),
            (sums.turns, "turn"),
            (sums.steps, "step"),
        )
    )
    yield clipped(f"model    {_model(found.events)}   {counts}", width)
    spent = f"model {seconds(sums.model)} · tools {seconds(sums.tools)}"
    spent += f" · waiting {seconds(sums.waiting)}"
    spent += f" · retries {sums.retries}" if sums.retries else ""
    spent += f" · {counted(sums.errors, 'error')}" if sums.errors else ""
    yield clipped(f"time     {seconds(trajectory.length)}: {spent}", width)


def _tail(found: Found, trajectory: Trajectory, left_out: int) -> Iterator[str]:
    if left_out:
        what = "settings, queued messages, events of plugins"
        yield ""
        yield f"not told: {left_out} records ({what}); --format json has them"
    if trajectory.unknown:
        yield f"events of types unknown to this installation: {trajectory.unknown}"
    if found.torn is not None:
        yield f"the last line is unfinished: {one_line(found.torn)}; the next resume cuts it off"
    if found.damage is not None:
        yield f"damaged: {one_line(found.damage)}"
        yield f"what can be read becomes a session of its own with: dsh sessions salvage {found.id}"


def _model(events: Sequence[StoredEvent]) -> str:
    for event in reversed(events):
        if isinstance(event.data, ev.request.Header):
            config = event.data.header.config
            return f"{one_line(config.provider)}/{one_line(config.model)}"
    return "(never asked)"


class _Teller:
    """Rows as lines of one width."""

    def __init__(self, trajectory: Trajectory, width: int) -> None:
        self._width: Final = width
        tables = trajectory.tables
        self._turns: Final[dict[int, Turn]] = {turn.row: turn for turn in tables.turns}
        self._steps: Final[dict[tuple[int, int], Step]] = {
            (step.turn, step.number): step for step in tables.steps
        }
        self._rows: Final = {id(row): place for place, row in enumerate(tables.rows)}
        self._at = (0, 0)
        self._tools = 0

    def lines(self, row: Row) -> Iterator[str]:
        """What a row says, with what has to be said before it."""
        if (row.turn, row.step) != self._at:
            yield from self.rest()
            self._at = (row.turn, row.step)
        if row.kind == "turn":
            yield ""
            yield self._turn(row)
            if row.text:
                yield clipped(f"  !!     {row.text}", self._width)
            return
        self._tools += row.kind == "tool"
        label = LABELS.get(row.kind)
        yield self.line(row, label=f"{row.turn}.{row.step}" if label is None else label)

    def rest(self) -> Iterator[str]:
        """What is to be said at the end of a step: how much of its tools ran at once."""
        step = self._steps.get(self._at)
        if self._tools > 1 and step is not None and step.tool_sum > step.tool_wall:
            yield (
                f"{'':{BODY_INDENT}}{self._tools} tools together {seconds(step.tool_wall)}, "
                f"one by one {seconds(step.tool_sum)}"
            )
        self._tools = 0

    def line(self, row: Row, *, label: str) -> str:
        """One row as one line: label, words, how it came out, how long it took, its seq."""
        words = told(row, WORDS)
        named = row.kind in {"tool", "decision", "try", "compaction", "prune", "replace", "unknown"}
        subject = f"{words.name} {words.about}" if named else words.about
        took = ""
        if row.end is not None and row.kind not in {"user", "context", "system"}:
            took = seconds(row.end - row.begin - row.waited)
        right = "   ".join(part for part in (words.result, took) if part)
        tail = f"{right}  {f'#{row.seqs[0]}':>5}"
        room = self._width - BODY_INDENT - cells(tail) - 2
        body = clipped(subject.strip(), max(room, 20))
        gap = " " * max(self._width - BODY_INDENT - cells(body) - cells(tail), 2)
        return f"{f'  {label}'.ljust(BODY_INDENT)}{body}{gap}{tail}".rstrip()

    def _turn(self, row: Row) -> str:
        turn = self._turns.get(self._rows[id(row)])
        parts = [f"turn {row.turn}", row.note or "not finished"]
        if row.end is not None:
            parts.append(seconds(row.end - row.begin))
        spent = None if turn is None else turn.spent
        return "   ".join(part for part in (*parts, count_in_words(spent)) if part)
