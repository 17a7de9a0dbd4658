"""Proof that a log is sound: everything a reader, a repair and a resumed loop rely on.

What comes in: a log as a store read it. What goes out: the problems found, in log order; none means
sound. It judges and never repairs, and one problem does not hide the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.catalog import assistant, request, step, tool, turn, user
from dsh.catalog.records import Append, Replace, ToolCallBlock
from dsh.errors import InvalidAppend
from dsh.hooks import AnyDurable, CoreSurface, frozen
from dsh.session.rules import checked_sources, refuse_broken_rewrite
from dsh.session.surface import Surface, SurfaceFault
from dsh.wire import FORMAT_VERSION, StoredEvent, StoredLog, UnknownEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Problem", "lawful_prefix", "verify"]


@frozen(slots=True)
class Problem:
    """One thing wrong with a log. `seq` is where, or None for the log as a whole."""

    seq: int | None
    text: str


def verify(log: StoredLog) -> tuple[Problem, ...]:
    """All problems of a log that begins at seq 0.

    Looked at: header, envelope, contiguous seqs, known types, turn and step nesting and numbers,
    pairs of calls and results, surface operations and their sources. An open turn at the end is
    no problem: that is how a crash looks, and resume closes it.
    """
    check = _Check()
    if log.header.version != FORMAT_VERSION:
        check.note(None, f"the header has format {log.header.version}, not {FORMAT_VERSION}")
    if log.torn is not None:
        check.note(None, f"unfinished at its end: {log.torn}; the next writer cuts it off")
    for place, event in enumerate(log.events):
        check.see(place, event)
    return tuple(check.problems)


def lawful_prefix(events: Sequence[StoredEvent]) -> tuple[int, Problem | None]:
    """How many leading events are sound, and the first problem after them, if there is one.

    The prefix may end inside a turn, as a crash leaves it; resume closes that.
    """
    check = _Check()
    for place, event in enumerate(events):
        check.see(place, event)
        if check.problems:
            return place, check.problems[0]
    return len(events), None


class _Check:
    """One pass over one log."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._surface: Final = Surface()
        self._nodes: Final[dict[int, StoredEvent]] = {}
        self._turn = 0
        self._open_turn: int | None = None
        self._step = 0
        self._open_step: int | None = None
        self._asked: dict[str, bool] = {}

    def note(self, seq: int | None, text: str) -> None:
        self.problems.append(Problem(seq, text))

    def see(self, place: int, event: StoredEvent) -> None:
        """Judge one event and remember what later ones depend on."""
        if event.seq != place:
            self.note(event.seq, f"stands at place {place}; seqs must count from 0 without gaps")
        if isinstance(event.data, UnknownEvent):
            if not event.ignorable:
                self.note(event.seq, f"{event.type}: {event.data.problem}; resume will refuse it")
            return
        self._see_envelope(event, event.data)
        self._see_nesting(event)
        self._see_pairs(event)

    def _see_envelope(self, event: StoredEvent, payload: AnyDurable) -> None:
        if payload.TOKEN.name != event.type:
            self.note(event.seq, f"says {event.type} and holds {payload.TOKEN.name}")
        op = event.surface_op
        if not isinstance(payload, CoreSurface):
            if op is not None or event.source_event_seqs is not None:
                self.note(event.seq, f"{event.type} is log-only and carries surface fields")
            return
        if op is None:
            self.note(event.seq, f"{event.type} is model-visible and has no surfaceOp")
            return
        try:
            hidden = self._hidden(op, payload, event.seq)
            checked_sources(payload, event.source_event_seqs, seq=event.seq, hidden=hidden)
            self._surface.apply(event.seq, op)
            self._nodes[event.seq] = event
        except (InvalidAppend, SurfaceFault) as fault:
            self.note(event.seq, str(fault))

    def _hidden(self, op: Append | Replace, payload: CoreSurface, seq: int) -> Sequence[int]:
        if isinstance(op, Append):
            return ()
        hidden = self._surface.shadowed(op)
        if isinstance(payload, tool.Result):
            refuse_broken_rewrite(payload, [self._nodes[node] for node in hidden], seq=seq)
        return hidden

    def _see_nesting(self, event: StoredEvent) -> None:
        match event.data:
            case turn.Start(turn=number):
                self._turn_starts(event.seq, number)
            case turn.End(turn=number):
                self._turn_ends(event.seq, number)
            case step.Start(turn=number, step=index):
                self._step_starts(event.seq, number, index)
            case step.End(turn=number, step=index):
                self._step_ends(event.seq, number, index)
            case assistant.Chunk(turn=number, step=index) | tool.Call(turn=number, step=index):
                self._see_step(event, number, index)
            case request.Header() | request.RouteContext() if self._open_turn is None:
                self.note(event.seq, f"{event.type} outside a turn")
            case _:
                pass

    def _turn_starts(self, seq: int, number: int) -> None:
        if self._open_turn is not None:
            self.note(seq, f"turn {number} starts inside turn {self._open_turn}")
        elif number != self._turn + 1:
            self.note(seq, f"turn {number} follows turn {self._turn}")
        self._turn = self._open_turn = number
        self._step, self._open_step = 0, None

    def _turn_ends(self, seq: int, number: int) -> None:
        if self._open_turn != number:
            self.note(seq, f"turn {number} ends and is not open")
        elif self._open_step is not None:
            self.note(seq, f"turn {number} ends inside its step {self._open_step}")
        self._open_turn = self._open_step = None

    def _step_starts(self, seq: int, number: int, index: int) -> None:
        if self._open_turn != number or self._open_step is not None:
            self.note(seq, f"step {index} of turn {number} starts where it cannot")
        elif index != self._step + 1:
            self.note(seq, f"step {index} follows step {self._step}")
        self._step = self._open_step = index
        self._asked = {}

    def _step_ends(self, seq: int, number: int, index: int) -> None:
        if self._open_turn != number or self._open_step != index:
            self.note(seq, f"step {index} of turn {number} ends and is not open")
        unanswered = sorted(call for call, done in self._asked.items() if not done)
        if unanswered:
            self.note(seq, f"step {index} ends with calls unanswered: {unanswered}")
        self._open_step = None

    def _see_step(self, event: StoredEvent, number: int, index: int) -> None:
        if (number, index) != (self._open_turn, self._open_step):
            self.note(event.seq, f"{event.type} names step {index} of turn {number}, not open here")

    def _see_pairs(self, event: StoredEvent) -> None:
        if event.surface_op is not None and not isinstance(event.surface_op, Append):
            return
        match event.data:
            case assistant.Message(turn=number, step=index, message=message):
                self._see_step(event, number, index)
                for block in message.content:
                    if isinstance(block, ToolCallBlock):
                        if block.id in self._asked:
                            self.note(event.seq, f"the call {block.id} is asked for twice")
                        self._asked[block.id] = False
            case tool.Call(call_id=call_id) if call_id not in self._asked:
                self.note(event.seq, f"the call {call_id} was not asked for in this step")
            case tool.Result(turn=number, step=index, message=message):
                self._see_step(event, number, index)
                call_id = message.tool_call_id
                if call_id not in self._asked:
                    self.note(event.seq, f"a result for {call_id}, not asked for in this step")
                elif self._asked[call_id]:
                    self.note(event.seq, f"a second result for {call_id}")
                self._asked[call_id] = True
            case user.Message() if self._open_turn is None:
                self.note(event.seq, "user/message outside a turn")
            case _:
                pass
