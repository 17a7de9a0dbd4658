"""Steps, time and calls of a session, folded from its log.

What comes in: events of turns, steps and replies. What goes out: counts, for the open turn and for
the whole session. Pure; times are those that stand in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import evolve, field

from dsh.catalog import assistant, records, step, turn
from dsh.hooks import frozen
from dsh.session import Projection

if TYPE_CHECKING:
    from dsh.wire import StoredEvent

__all__ = ["PACE", "Asked", "Pace"]


@frozen(slots=True)
class Asked:
    """The ids of the calls of the newest reply, in order."""

    ids: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many calls it asks for."""
        return len(self.ids)

    def place(self, call_id: str) -> int:
        """The call's place, from 0; 0 for a call that this reply did not ask for."""
        return self.ids.index(call_id) if call_id in self.ids else 0


@frozen(kw_only=True, slots=True)
class Pace:
    """Counts so far. Times in epoch ms; `turn_began` is None between turns."""

    turn_steps: int = 0
    session_steps: int = 0
    turn_began: int | None = None
    last_seen: int = 0
    past_ms: int = 0
    asked: Asked = field(factory=Asked)

    def turn_ms(self, now_ms: int) -> int:
        """How long the open turn has run; a clock that was set back counts as standing still."""
        return 0 if self.turn_began is None else max(0, now_ms - self.turn_began)

    def session_ms(self, now_ms: int) -> int:
        """How long all turns have run."""
        return self.past_ms + self.turn_ms(now_ms)


def _apply(state: Pace, event: StoredEvent) -> Pace:
    match event.data:
        case turn.Start():
            return evolve(state, turn_steps=0, turn_began=event.time, last_seen=event.time)
        case step.Start():
            return evolve(
                state,
                turn_steps=state.turn_steps + 1,
                session_steps=state.session_steps + 1,
                last_seen=event.time,
            )
        case turn.End(reason=reason):
            # After a crash the end is written when somebody resumes, maybe days later.
            crashed = isinstance(reason, records.InterruptedTurnEnd)
            until = state.last_seen if crashed else event.time
            return evolve(state, past_ms=state.session_ms(until), turn_began=None)
        case assistant.Message(message=message):
            ids = tuple(b.id for b in message.content if isinstance(b, records.ToolCallBlock))
            return evolve(state, asked=Asked(ids), last_seen=event.time)
        case _:
            return state


PACE: Final[Projection[Pace]] = Projection(
    key="budget",
    init=Pace,
    apply=_apply,
    events=(turn.START, turn.END, step.START, assistant.MESSAGE),
)
