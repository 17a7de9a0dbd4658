"""The player: which recorded stream or result stands for which request or call.

What comes in: the waterfalls and streams of one loop. What goes out: recorded answers. A place is
found by turn, step and attempt, never by content, so that the first difference is seen where it
arises.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.errors import SessionError
from dsh.hooks import live
from dsh.session import (
    first_difference,
    first_message_difference,
    is_regenerated,
    same_message,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from dsh import Context, Next
    from dsh.hooks import StreamNext
    from dsh.session import RecordedRequest, Recording, Sessions

__all__ = ["Player"]

DIFFERS: Final = "REPLAY_DIFFERS"
ENDED: Final = "REPLAY_ENDED"
_BY_ITSELF: Final = (ev.records.CompletedTurnEnd, ev.records.MaxTokensTurnEnd)


@final
class Player:
    """One recording, played to the sessions that run on its history."""

    def __init__(self, recording: Recording, sessions: Sessions) -> None:
        self._recording: Final = recording
        self._sessions: Final = sessions
        self._attempts: Final[dict[tuple[str, int, int], int]] = {}
        self._steps: Final[dict[str, int]] = {}
        #: Calls that were answered from the recording. Any other result is this run's own.
        self._served: Final[dict[str, ev.tool.Result]] = {}

    def listen(self, ctx: Context) -> None:
        """Take the places of model and tools, before every other listener."""

        @ctx.on(ev.llm.STREAM, prepend=True)
        @asynccontextmanager
        async def play(
            stream: ev.llm.Stream,
            _call_next: StreamNext[ev.records.StreamChunk],
        ) -> AsyncGenerator[AsyncIterator[ev.records.StreamChunk], None]:
            yield _played(self._answer(stream.request))

        @ctx.on(ev.agent.PRE_STEP, prepend=True)
        async def admit(
            proposed: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            decided = await call_next()
            if isinstance(decided, ev.agent.Reject):
                return decided
            recorded = self._recording.admitted(proposed.turn, proposed.step)
            return ev.agent.Enter(
                messages=_merged(recorded, decided.messages),
                starts_request_series=decided.starts_request_series,
            )

        @ctx.on(ev.tools.EXECUTE, prepend=True)
        async def result(
            call: ev.tools.Execute, _call_next: Next[live.ToolSuccess | live.ToolFailed]
        ) -> live.ToolSuccess | live.ToolFailed:
            recorded = self._recording.results.get(call.exec.call_id)
            if recorded is None:
                told = f"the recording has no result for call {call.exec.call_id}"
                return live.ToolFailed(message=told, content=())
            self._served[call.exec.call_id] = recorded
            return live.ToolFailed(
                message="replayed", content=recorded.message.content, info=recorded.error
            )

        @ctx.on(ev.tools.POST_EXECUTE, prepend=True)
        async def keep(
            call: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
        ) -> ev.tools.PostExecuteDecision:
            # What was recorded has been through this already.
            if call.exec.call_id in self._served:
                return ev.tools.Accept()
            return await call_next()

        @ctx.on(ev.agent.TURN_STOPPING, prepend=True)
        async def compare(stopping: ev.agent.TurnStopping) -> None:
            found = self._left_behind(stopping.agent.session, stopping.turn)
            if found is not None:
                raise SessionError(f"turn {stopping.turn}, at its end: {found}", code=DIFFERS)

    def _answer(self, request: live.LlmRequest) -> Sequence[ev.records.StreamChunk]:
        """The recorded stream, or one that fails and says why."""
        place = self._place(request.session_id)
        if place is None:
            return _failure(DIFFERS, "a request outside of the recorded session's steps")
        turn, step, index = place
        self._steps[request.session_id or ""] = step
        recorded = self._recording.attempt(turn, step, index)
        where = f"turn {turn}, step {step}" + (f", try {index + 1}" if index else "")
        if recorded is None:
            told = self._recording.turns.get(turn)
            if told is None or any(number > step for number in told.steps):
                return _failure(DIFFERS, f"{where}: no such request was recorded")
            return _failure(ENDED, f"{where}: the recorded turn made no such request")
        found = first_difference(recorded, request, self._as_served(request.messages))
        if found is not None:
            return _failure(DIFFERS, f"{where}: {found}")
        return _whole(recorded, where)

    def _left_behind(self, session: live.Session, turn: int) -> str | None:
        """The first difference in the history that the turn leaves behind.

        A turn that went on from here, or that something else ended, is told by its next request or
        by its end.
        """
        recorded = self._recording.turns.get(turn)
        if recorded is None or not isinstance(recorded.end, _BY_ITSELF):
            return None
        if self._steps.get(session.id, 0) != max(recorded.steps, default=0):
            return None
        return first_message_difference(
            recorded.messages, self._as_served(session.derive_messages())
        )

    def _as_served(self, messages: Sequence[ev.records.Message]) -> tuple[ev.records.Message, ...]:
        """The messages, with each result that was served as what it was: no failure, or one."""
        return tuple(map(self._unmasked, messages))

    def _unmasked(self, message: ev.records.Message) -> ev.records.Message:
        if isinstance(message, ev.records.ToolResultMessage):
            served = self._served.get(message.tool_call_id)
            if served is not None:
                return evolve(message, is_error=served.message.is_error)
        return message

    def _place(self, session_id: str | None) -> tuple[int, int, int] | None:
        session = None if session_id is None else self._sessions.get(session_id)
        if session is None:
            return None
        for event in reversed(session.events):
            if isinstance(event.data, ev.step.Start):
                key = (session.id, event.data.turn, event.data.step)
                index = self._attempts.get(key, 0)
                self._attempts[key] = index + 1
                return event.data.turn, event.data.step, index
        return None


def _whole(recorded: RecordedRequest, where: str) -> Sequence[ev.records.StreamChunk]:
    if recorded.finished:
        return recorded.chunks
    return (*recorded.chunks, *_failure(ENDED, f"{where}: the recorded stream was cut here"))


def _failure(code: str, message: str) -> Sequence[ev.records.StreamChunk]:
    failure = ev.records.LlmFailure(message=message, code=code)
    return (ev.records.FinishChunk(reason=ev.records.ErrorFinish(failure=failure)),)


async def _played(
    chunks: Sequence[ev.records.StreamChunk],
) -> AsyncGenerator[ev.records.StreamChunk, None]:
    for chunk in chunks:
        await trio.lowlevel.checkpoint()
        yield chunk


def _merged(
    recorded: Sequence[ev.records.UserMessage], now: Sequence[ev.records.UserMessage]
) -> tuple[ev.records.UserMessage, ...]:
    """What was admitted then, with what is made anew taken from now; strangers of now last."""
    left = list(now)
    merged: list[ev.records.UserMessage] = []
    for message in recorded:
        twin = next((one for one in left if same_message(one, message)), None)
        if twin is not None:
            left.remove(twin)
            merged.append(twin)
        elif not is_regenerated(message):
            merged.append(message)
    return (*merged, *left)
