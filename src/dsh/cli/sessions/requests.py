"""What the model was sent at a step, or has read and said by now, folded from the log.

What comes in: the events of a stored log, and perhaps `TURN.STEP`. What goes out: the messages of
the request that was answered there, or the whole history. The fold is the session's own; nothing is
guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.cli.sessions.positions import step_named, steps_of
from dsh.errors import UsageError
from dsh.session import derive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog.records import Message
    from dsh.hooks import History
    from dsh.wire import StoredEvent

__all__ = ["request_at"]


def request_at(events: Sequence[StoredEvent], wanted: str | None) -> History[Message]:
    """The messages of the step's last request; None: the history as it is now.

    The history ends with the last reply, which no request has sent yet. Raises UsageError for a
    step that is not there.
    """
    steps = steps_of(events)
    if not steps:
        raise UsageError("the session has no step yet: nothing was sent to a model")
    if wanted is None:
        return derive(events)
    return derive(events[: _cut(events, _wanted(steps, wanted))])


def _wanted(steps: Sequence[tuple[int, int]], wanted: str) -> tuple[int, int]:
    found = step_named(wanted)
    if found not in steps:
        last = ".".join(str(part) for part in steps[-1])
        raise UsageError(f"the session has no step {wanted}; its last one is {last}")
    return found


def _cut(events: Sequence[StoredEvent], step: tuple[int, int]) -> int:
    """How many events came before the reply of this step: those the request was made of.

    A step without a reply made its last request before it ended; a later replacement of the
    history (a compaction between attempts) belongs to that request.
    """
    inside = False
    for place, event in enumerate(events):
        match event.data:
            case ev.step.Start(turn=turn, step=number):
                inside = (turn, number) == step
            case ev.assistant.Message() | ev.step.End() if inside:
                return place
            case _:
                pass
    return len(events)
