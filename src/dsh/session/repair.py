"""What a log that ends inside a turn needs, so that it can go on: closers, computed and pure.

What comes in: the events of a valid log. What goes out: the events to append, in order, or nothing
for a balanced log. Repair adds and never removes: partial replies stay in the log without becoming
messages. Running it on its own result gives nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.catalog import assistant, step, tool, turn
from dsh.catalog.records import (
    Append,
    InterruptedTurnEnd,
    TextBlock,
    ToolCallBlock,
    ToolErrorInfo,
    ToolResultMessage,
    ToolSource,
)
from dsh.hooks import frozen
from dsh.wire import StoredEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.hooks import AnyDurable

__all__ = [
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "interrupted_closers",
    "interrupted_result",
]

TOOL_NOT_STARTED: Final = "TOOL_NOT_STARTED"
TOOL_OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"

_NOT_STARTED_TEXT: Final = (
    "This call was not started: the program was interrupted before the tool ran, so it had no "
    "effect. It is safe to make the call again if it is still needed."
)
_UNKNOWN_TEXT: Final = (
    "The outcome of this call is unknown: the program was interrupted after the call was handed "
    "to the tool and before its result was recorded. It may have run completely, in part, or not "
    "at all. Repeat it only if it reads without changing anything or has the same effect when "
    "done twice; otherwise check first what it did."
)


class _Open:
    """The open turn of a log, as far as it came."""

    def __init__(self, number: int) -> None:
        self.turn: Final = number
        self.step: int | None = None
        self.asked: dict[str, ToolCallBlock] = {}
        self.started: dict[str, int] = {}

    def see(self, event: StoredEvent) -> None:
        match event.data:
            case step.Start(step=number):
                self.step = number
                self.asked, self.started = {}, {}
            case step.End():
                self.step = None
                self.asked, self.started = {}, {}
            case assistant.Message(message=message) if self.step is not None:
                calls = (block for block in message.content if isinstance(block, ToolCallBlock))
                self.asked.update((call.id, call) for call in calls)
            case tool.Call(call_id=call_id) if call_id in self.asked:
                self.started[call_id] = event.seq
            case tool.Result(message=message):
                self.asked.pop(message.tool_call_id, None)
            case _:
                pass


@frozen(slots=True)
class _Closers:
    """Closers under way: each continues the seq, all carry the time of the last event."""

    seq: int
    time: int
    events: list[StoredEvent]

    def add(
        self,
        payload: AnyDurable,
        *,
        op: Append | None = None,
        sources: tuple[int, ...] | None = None,
    ) -> None:
        token = payload.TOKEN
        seq = self.seq + len(self.events)
        self.events.append(
            StoredEvent(
                token.name,
                seq,
                self.time,
                payload,
                v=token.version,
                ignorable=token.ignorable,
                surface_op=op,
                source_event_seqs=sources,
            )
        )


def _open_tail(events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
    """The events from the last `turn/start` on, or none if no turn is open."""
    for place in range(len(events) - 1, -1, -1):
        match events[place].data:
            case turn.End():
                return ()
            case turn.Start():
                return events[place:]
            case _:
                pass
    return ()


def interrupted_closers(
    events: Sequence[StoredEvent],
) -> tuple[StoredEvent, ...]:
    """The events that close the open turn at the end of `events`; empty if none is open.

    `events` reaches back at least to the last `turn/start`. Per unanswered tool call of the open
    step, in the order the model asked: an error result; then `step/end` and `turn/end` with reason
    `interrupted`. Same input, same output: ids are made of the cause, the call and the seq.
    """
    tail = _open_tail(events)
    if not tail or not isinstance(first := tail[0].data, turn.Start):
        return ()
    state = _Open(first.turn)
    for event in tail[1:]:
        state.see(event)
    closers = _Closers(tail[-1].seq + 1, tail[-1].time, [])
    if state.step is not None:
        for call in state.asked.values():
            call_seq = state.started.get(call.id)
            seq = closers.seq + len(closers.events)
            closers.add(
                interrupted_result(
                    call, turn=state.turn, step=state.step, seq=seq, started=call_seq is not None
                ),
                op=Append(),
                sources=None if call_seq is None else (call_seq,),
            )
        closers.add(step.End(turn=state.turn, step=state.step))
    closers.add(turn.End(turn=state.turn, reason=InterruptedTurnEnd()))
    return tuple(closers.events)


def interrupted_result(
    call: ToolCallBlock, *, turn: int, step: int, seq: int, started: bool
) -> tool.Result:
    """The error result of a call that nobody will answer any more.

    `started` says whether its `tool/call` is in the log: then its effect is unknown, and the text
    tells the model to look before it tries again. `seq` is where the result will stand.
    """
    code = TOOL_OUTCOME_UNKNOWN if started else TOOL_NOT_STARTED
    cause = "outcome-unknown" if started else "not-started"
    return tool.Result(
        turn=turn,
        step=step,
        message=ToolResultMessage(
            id=f"repair:{cause}:{call.id}:{seq}",
            content=(TextBlock(text=_UNKNOWN_TEXT if started else _NOT_STARTED_TEXT),),
            source=ToolSource(call_id=call.id),
            tool_call_id=call.id,
            is_error=True,
        ),
        error=ToolErrorInfo(name="Interrupted", code=code),
    )
