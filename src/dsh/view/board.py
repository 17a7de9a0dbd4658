"""Where a log is up to while it is told: the clock that never goes back, the open turn, the lanes.

What comes in: event times, and entities to add. What goes out: the same in the tables, each span
in a lane where nothing lies under it. It knows no event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from dsh.view.tables import Op, Row, Span, Step, Tables, Turn

if TYPE_CHECKING:
    from dsh.view.tables import RowKind, SpanKind, State
    from dsh.view.words import Words
    from dsh.wire import StoredEvent

__all__ = ["Board"]

#: Lanes are shared by kinds of one group; the first of a span's group is its preference.
GROUPS: Final[dict[SpanKind, str]] = {
    "model": "model",
    "backoff": "model",
    "compaction": "model",
    "tool": "tool",
    "approval": "wait",
    "mark": "wait",
}
#: More tools at once than this share the last lane.
MOST_LANES: Final = 12


@final
class Board:
    """The state that every part of a telling shares."""

    def __init__(self, words: Words) -> None:
        self.words: Final = words
        self.tables: Final = Tables()
        self.base: int | None = None
        self.now = 0
        self.newest = 0
        self.turn: Turn | None = None
        self.step: Step | None = None
        #: When the next request could have left: after everything it is made of was logged.
        self.ready = 0
        self._lanes: Final[dict[str, list[int | None]]] = {}

    @property
    def place(self) -> tuple[int, int]:
        """The open turn and step; 0 where none is."""
        turn = 0 if self.turn is None else self.turn.number
        return turn, 0 if self.step is None else self.step.number

    def tick(self, event: StoredEvent) -> bool:
        """Move the clock to an event. True: its time lies before that of an earlier event."""
        if self.base is None:
            self.base = event.time
        at = event.time - self.base
        backwards = at < self.now
        self.now = max(at, self.now)
        self.newest = event.seq
        return backwards

    def row(
        self,
        kind: RowKind,
        seq: int,
        *,
        name: str = "",
        text: str = "",
        note: str = "",
        by: str = "",
    ) -> tuple[int, Row]:
        """Begin a row at the open step. Returns its index, and the row."""
        turn, step = self.place
        row = Row(kind, [seq], turn, step, self.now, name=name, text=text, note=note, by=by)
        return self.tables.add("rows", row), row

    def changed(self, row: int) -> None:
        """Say that a row changed."""
        self.tables.touch("rows", row)

    def op(self, op: Op) -> None:
        """One more surface operation."""
        self.tables.add("ops", op)

    def span(self, kind: SpanKind, row: int, begin: int) -> int:
        """Begin a span in the lowest lane that is free. Returns its index."""
        group = GROUPS[kind]
        lanes = self._lanes.setdefault(group, [])
        free = [lane for lane, until in enumerate(lanes) if until is not None and until <= begin]
        if free:
            lane = free[0]
        elif len(lanes) < MOST_LANES:
            lane = len(lanes)
            lanes.append(None)
        else:
            lane = MOST_LANES - 1
        lanes[lane] = None
        return self.tables.add("spans", Span(kind, lane, row, begin))

    def close(self, span: int, state: State = "ok") -> None:
        """End a span now, and free its lane."""
        entity = self.tables.spans[span]
        entity.end = self.now
        entity.state = state
        self._lanes[GROUPS[entity.kind]][entity.lane] = self.now
        self.tables.touch("spans", span)
