"""The stage law: a tool call passes its stages in order, each once, under one identity.

What comes in: executions, as each stage shows them. What goes out: nothing, or a breach. A wrapper
may run the body again, so `tools/execute` may repeat; nothing else may. Calls that were under way
when the plugin was loaded are let pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import evolve

from dsh import catalog as ev
from dsh.hooks import frozen, live

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh_plugins.invariants.breach import Book

__all__ = ["Stage", "Stages"]

Stage: TypeAlias = Literal["policy", "body", "review", "result"]

#: What may follow what; a call begins at "".
FOLLOWS: Final[dict[str, frozenset[Stage]]] = {
    "": frozenset({"policy", "review", "result"}),  # what cannot run at all is reviewed unasked
    "policy": frozenset({"body", "review", "result"}),
    "body": frozenset({"body", "review", "result"}),
    "review": frozenset({"result"}),
}

EVENTS: Final[dict[Stage, str]] = {
    "policy": ev.tools.PRE_EXECUTE.name,
    "body": ev.tools.EXECUTE.name,
    "review": ev.tools.POST_EXECUTE.name,
    "result": ev.tools.RESULT.name,
}


@frozen
class _Way:
    """How far one call came, and who it said it was."""

    stage: str
    call_id: str
    root: str
    name: str


class Stages:
    """The law for all calls of one house. `running`: agents that were at work at loading."""

    def __init__(self, book: Book, running: Iterable[str]) -> None:
        self._book: Final = book
        self._unknown: Final = set(running)
        self._ways: Final[dict[object, _Way]] = {}

    def at(self, stage: Stage, call: live.ToolExecution) -> None:
        """`call` comes to `stage`. Raises LawBroken."""
        if call.agent is not None and call.agent.id in self._unknown:
            return
        way = self._ways.get(call.token)
        seen = self._identity(call, way) or _order(stage, "" if way is None else way.stage)
        if seen is not None:
            raise self._book.breach(
                "stages",
                EVENTS[stage],
                _seq(call),
                f"call {call.call_id!r} of {call.name!r}: {seen}",
            )
        if stage == "result":
            self._ways.pop(call.token, None)
        else:
            now = way or _Way(stage, call.call_id, call.root_call_id, call.name)
            self._ways[call.token] = evolve(now, stage=stage)

    def ended(self, call: live.ToolExecution, result: object) -> None:
        """`call` has its final result, which nobody may change any more. Raises LawBroken."""
        self.at("result", call)
        content: object = getattr(result, "content", None)
        if not isinstance(result, live.ToolSuccess | live.ToolFailed) or not isinstance(
            content, tuple
        ):
            raise self._book.breach(
                "stages",
                EVENTS["result"],
                _seq(call),
                f"the result of call {call.call_id!r} of {call.name!r} is not frozen",
            )

    def rested(self, agent: live.Agent) -> None:
        """Everything that `agent` had under way is over; from now on its calls are known."""
        self._unknown.discard(agent.id)

    def _identity(self, call: live.ToolExecution, way: _Way | None) -> str | None:
        if not call.call_id or not call.root_call_id:
            return "it has no identity"
        if call.parent is None and call.root_call_id != call.call_id:
            return f"its root is {call.root_call_id!r}, and no call made it"
        above = self._ways.get(call.parent)
        if above is not None and above.root != call.root_call_id:
            return f"its root is {call.root_call_id!r}, that of its parent {above.root!r}"
        if way is not None and (way.call_id, way.root, way.name) != (
            call.call_id,
            call.root_call_id,
            call.name,
        ):
            return f"it was {way.call_id!r} of {way.name!r} before"
        return None


def _order(stage: Stage, before: str) -> str | None:
    if stage in FOLLOWS.get(before, frozenset()):
        return None
    return f"{stage} after {before or 'nothing'}"


def _seq(call: live.ToolExecution) -> int | None:
    return None if call.agent is None else call.agent.session.next_seq
