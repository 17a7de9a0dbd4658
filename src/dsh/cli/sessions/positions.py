"""Places in a session as a person names them: a turn, `2`, or a step of one, `2.3`.

What comes in: what was typed, and the events of a log. What goes out: numbers, or the seq at which
that turn or step ended; or a UsageError with the last place there is. It reads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.wire import StoredEvent

__all__ = ["end_of", "end_of_step", "end_of_turn", "step_named", "steps_of", "turn_named"]

Step = tuple[int, int]


def turn_named(text: str) -> int:
    """A turn's number. Raises UsageError."""
    if not text.isdecimal():
        raise UsageError(f"{text!r} is no turn; write its number, as in the line at its end")
    return int(text)


def step_named(text: str) -> Step:
    """A step as (turn, step). Raises UsageError."""
    turn, dot, step = text.partition(".")
    if not (dot and turn.isdecimal() and step.isdecimal()):
        raise UsageError(f"{text!r} is no step: write TURN.STEP, as in 1.2")
    return int(turn), int(step)


def steps_of(events: Sequence[StoredEvent]) -> tuple[Step, ...]:
    """Every step of the log as (turn, step), in order."""
    return tuple(
        (event.data.turn, event.data.step)
        for event in events
        if isinstance(event.data, ev.step.Start)
    )


def end_of(events: Sequence[StoredEvent], text: str) -> int:
    """The seq at which the turn or step that `text` names ended. Raises UsageError."""
    if "." in text:
        return end_of_step(events, step_named(text))
    return end_of_turn(events, turn_named(text))


def end_of_turn(events: Sequence[StoredEvent], turn: int) -> int:
    """The seq at which this turn ended. Raises UsageError with the newest one that has."""
    ended = {event.data.turn: event.seq for event in events if isinstance(event.data, ev.turn.End)}
    if turn not in ended:
        has = f"its last ended turn is {max(ended)}" if ended else "no turn of it has ended"
        raise UsageError(f"turn {turn} has not ended here: {has}")
    return ended[turn]


def end_of_step(events: Sequence[StoredEvent], step: Step) -> int:
    """The seq at which this step ended; if it was its turn's last one, that at which the turn did.

    Raises UsageError with the newest step that has ended.
    """
    ended: dict[Step, int] = {}
    last: Step | None = None
    for event in events:
        match event.data:
            case ev.step.End(turn=turn, step=number):
                last = (turn, number)
                ended[last] = event.seq
            case ev.turn.End() if last is not None and last[0] == event.data.turn:
                ended[last] = event.seq
            case _:
                pass
    if step not in ended:
        has = f"its last ended step is {last[0]}.{last[1]}" if last else "no step of it has ended"
        raise UsageError(f"step {step[0]}.{step[1]} has not ended here: {has}")
    return ended[step]
