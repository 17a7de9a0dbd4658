"""The laws of a session's log, as a fold: what may follow what.

What comes in: the events of one log in seq order. What goes out: the state that later events are
judged by, or `Unlawful` for an event that may not stand where it would. Pure: the same log always
gives the same answer, so a late fold judges exactly as an early one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import evolve, field

from dsh import catalog as ev
from dsh.catalog import records
from dsh.hooks import frozen
from dsh.session import TOOL_NOT_STARTED
from dsh_plugins.invariants.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.wire import StoredEvent

__all__ = ["CONCERNED", "Trace", "Unlawful", "judged"]


class Unlawful(Exception):
    """What is wrong with an event, in words."""


#: The events that the laws speak of; all others may stand anywhere.
CONCERNED: Final = (
    ev.turn.START,
    ev.turn.END,
    ev.step.START,
    ev.step.END,
    ev.user.MESSAGE,
    ev.system.MESSAGE,
    ev.assistant.CHUNK,
    ev.assistant.MESSAGE,
    ev.tool.CALL,
    ev.tool.RESULT,
    ev.request.HEADER,
    ev.request.CONTEXT,
    ev.llm.RETRY,
    ev.llm.RETRY_STARTED,
)


@frozen(kw_only=True)
class Trace:
    """Where a log stands. `seq` is that of the newest event the laws speak of.

    `calls` are the calls of the open step: asked for, started, or answered.
    """

    seq: int = -1
    turn: int = 0
    in_turn: bool = False
    step: int = 0
    in_step: bool = False
    headed: bool = False
    provider: str | None = None
    calls: Mapping[str, str] = field(factory=dict[str, str])
    retries: Retries = field(factory=Retries)

    @property
    def place(self) -> str:
        """For people: what is open."""
        if not self.in_turn:
            return f"no turn is open (the last was {self.turn})"
        if not self.in_step:
            return f"turn {self.turn} is open, and no step (the last was {self.step})"
        return f"step {self.step} of turn {self.turn} is open"


def judged(trace: Trace, event: StoredEvent) -> Trace:
    """The trace after `event`. Raises Unlawful."""
    if event.seq <= trace.seq:
        raise Unlawful(f"its seq is not greater than {trace.seq}")
    after = _after(trace, event)
    # A trace that did not change keeps its seq: chunks, the many, cost nothing.
    return after if after is trace else evolve(after, seq=event.seq)


def _after(trace: Trace, event: StoredEvent) -> Trace:
    match event.data:
        case ev.assistant.Chunk(turn=turn, step=step):
            _in_step(trace, turn, step)
        case ev.turn.Start() | ev.turn.End() | ev.step.Start() | ev.step.End():
            return _boundary(trace, event.data)
        case ev.assistant.Message() | ev.tool.Call() | ev.tool.Result():
            if not isinstance(event.surface_op, records.Replace):
                return _called(trace, event.data)
        case ev.request.Header():
            _in_turn(trace)
            return evolve(trace, headed=True)
        case ev.request.RouteContext(provider=provider):
            _in_turn(trace)
            return evolve(trace, provider=provider)
        case ev.system.Message():
            _in_turn(trace)
        case ev.user.Message() if not isinstance(event.surface_op, records.Replace):
            _in_turn(trace)
        case ev.llm.Retry(turn=turn, step=step) as retry:
            _in_step(trace, turn, step)
            if trace.provider not in {None, retry.provider}:
                raise Unlawful(f"{retry.provider} is to be tried again; {trace.provider} was asked")
            return _retried(trace, trace.retries.scheduled(retry))
        case ev.llm.RetryStarted(turn=turn, step=step) as started:
            _in_step(trace, turn, step)
            return _retried(trace, trace.retries.started(started))
        case _:
            pass
    return trace


def _boundary(
    trace: Trace, data: ev.turn.Start | ev.turn.End | ev.step.Start | ev.step.End
) -> Trace:
    match data:
        case ev.turn.Start(turn=turn):
            if trace.in_turn or turn != trace.turn + 1:
                raise Unlawful(f"turn {turn} starts where {trace.place}")
            return evolve(trace, turn=turn, in_turn=True, step=0, calls={}, retries=Retries())
        case ev.turn.End(turn=turn):
            if not trace.in_turn or trace.in_step or turn != trace.turn:
                raise Unlawful(f"turn {turn} ends where {trace.place}")
            return evolve(trace, in_turn=False)
        case ev.step.Start(turn=turn, step=step):
            fits = (turn, step) == (trace.turn, trace.step + 1)
            if not trace.in_turn or trace.in_step or not fits:
                raise Unlawful(f"step {step} of turn {turn} starts where {trace.place}")
            return evolve(trace, step=step, in_step=True, calls={}, retries=Retries())
        case ev.step.End(turn=turn, step=step):
            _in_step(trace, turn, step)
            owed = sorted(call for call, state in trace.calls.items() if state != "answered")
            if owed:
                raise Unlawful(f"step {step} ends with calls unanswered: {', '.join(owed)}")
            return evolve(trace, in_step=False)


def _called(trace: Trace, data: ev.assistant.Message | ev.tool.Call | ev.tool.Result) -> Trace:
    _in_step(trace, data.turn, data.step)
    match data:
        case ev.assistant.Message(message=message):
            asked = [b.id for b in message.content if isinstance(b, records.ToolCallBlock)]
            twice = sorted({one for one in asked if one in trace.calls or asked.count(one) > 1})
            if twice:
                raise Unlawful(f"the call {twice[0]} is asked for twice")
            return evolve(trace, calls={**trace.calls, **dict.fromkeys(asked, "asked")})
        case ev.tool.Call(call_id=call):
            if trace.calls.get(call) != "asked":
                raise Unlawful(
                    f"the call {call} is {trace.calls.get(call, 'not asked for')} in this step"
                )
            return evolve(trace, calls={**trace.calls, call: "started"})
        case ev.tool.Result(message=message, error=error):
            call = message.tool_call_id
            state = trace.calls.get(call)
            unstarted = error is not None and error.code == TOOL_NOT_STARTED
            if state != "started" and not (state == "asked" and unstarted):
                raise Unlawful(
                    f"a result for {call}, which is {state or 'not asked for'} in this step"
                )
            return evolve(trace, calls={**trace.calls, call: "answered"})


def _retried(trace: Trace, after: Retries | str) -> Trace:
    if isinstance(after, str):
        raise Unlawful(after)
    return evolve(trace, retries=after)


def _in_turn(trace: Trace) -> None:
    if not trace.in_turn:
        raise Unlawful(f"it stands where {trace.place}")


def _in_step(trace: Trace, turn: int, step: int) -> None:
    if not trace.in_step or step != trace.step or turn != trace.turn:
        raise Unlawful(f"it names step {step} of turn {turn} where {trace.place}")
