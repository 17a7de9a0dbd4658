"""The loop's side of a tool batch: what the scheduler writes goes into the log here.

What comes in: calls, rewrites and results, in the order the scheduler commits them. What goes out:
`tool/call`, `tool/rewritten` and `tool/result` events, contexts into the inbox, and a tally that
knows which calls of the step still lack their one result. It never runs or classifies a tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.agent import new_message_id
from dsh.catalog import records
from dsh.hooks import live
from dsh.session import interrupted_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.agent import ActivitySignal
    from dsh.hooks import JsonObject
    from dsh.loop.kit import Kit

__all__ = ["StepCalls"]


class StepCalls:
    """The calls of one step; the `BatchHost` that `run_batch` talks to."""

    def __init__(self, kit: Kit, signal: ActivitySignal) -> None:
        self._kit = kit
        self._signal = signal
        self._owed: dict[str, records.ToolCallBlock] = {}
        self._started: dict[str, int] = {}

    @property
    def agent(self) -> live.Agent:
        """Whose calls these are."""
        return self._kit.agent

    @property
    def signal(self) -> live.TurnSignal:
        """The turn's."""
        return self._signal

    @property
    def cwd(self) -> str:
        """The workspace."""
        return self._kit.session.header.cwd or "/"

    def limit(self) -> int:
        """How many bodies may overlap now."""
        return self._kit.services.limit()

    def expect(self, calls: Sequence[records.ToolCallBlock]) -> None:
        """The reply that is in the log asks for these; each is owed a result."""
        self._owed = {call.id: call for call in calls}

    def log_call(self, call: records.ToolCallBlock) -> int:
        """Append `tool/call`; its seq."""
        course = self._kit.course
        logged = self._kit.session.append(
            ev.tool.Call(
                turn=course.turn,
                step=course.step,
                call_id=call.id,
                name=call.name,
                arguments=call.arguments,
            )
        )
        self._started[call.id] = logged.seq
        return logged.seq

    def log_rewrite(self, call_id: str, plugin: str | None, arguments: JsonObject) -> None:
        """Append `tool/rewritten`."""
        self._kit.session.append(
            ev.tool.Rewritten(call_id=call_id, plugin=plugin or "", arguments=arguments)
        )

    def commit(
        self,
        call: records.ToolCallBlock,
        call_seq: int,
        result: live.ToolResult,
        decided_by: str | None,
    ) -> None:
        """Append `tool/result`.

        A call before this one whose own result could not be logged gets a conservative one first:
        results stand in the model's order.
        """
        self._settle(until=call.id)
        failed = isinstance(result, live.ToolFailed)
        course = self._kit.course
        self._kit.session.append(
            ev.tool.Result(
                turn=course.turn,
                step=course.step,
                message=records.ToolResultMessage(
                    id=new_message_id(),
                    content=result.content,
                    source=records.ToolSource(call_id=call.id),
                    tool_call_id=call.id,
                    is_error=failed,
                ),
                error=result.info if isinstance(result, live.ToolFailed) else None,
                decided_by=decided_by,
                meta=result.meta,
            ),
            surface=records.Append(),
            sources=(call_seq,),
        )
        self._owed.pop(call.id, None)

    def deliver_contexts(self, messages: Sequence[records.UserMessage]) -> None:
        """Add to the end of the next step's input; this wakes nobody."""
        for message in messages:
            self._kit.inbox.append("next-step", message)

    def settle_rest(self) -> None:
        """Give every call without a result a conservative one, so that the history stays valid.

        For a step that failed. The texts tell the model whether trying again is safe.
        """
        self._settle(until=None)

    def _settle(self, *, until: str | None) -> None:
        course, session = self._kit.course, self._kit.session
        for call in tuple(self._owed.values()):
            if call.id == until:
                return
            seq = self._started.get(call.id)
            session.append(
                interrupted_result(
                    call,
                    turn=course.turn,
                    step=course.step,
                    seq=session.next_seq,
                    started=seq is not None,
                ),
                surface=records.Append(),
                sources=None if seq is None else (seq,),
            )
            del self._owed[call.id]
