"""The approval seam: ask whoever can answer whether one tool call may run.

What comes in: one call that a policy wants a person to decide about. What goes out: one outcome,
and who decided. The tool pipeline asks through this seam and runs the call for `allowed-once` only;
without a provider it refuses. Beside it, what a person allows for the rest of a session. This
module decides nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from dsh.hooks import frozen
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from dsh.catalog import records
    from dsh.hooks import JsonValue
    from dsh.hooks.live import Agent, TurnSignal

__all__ = [
    "APPROVAL",
    "SESSION_RULES",
    "ApprovalAnswer",
    "ApprovalQuestion",
    "ApprovalService",
    "SessionRules",
]


@frozen(kw_only=True, slots=True, eq=False)
class ApprovalQuestion:
    """One call that waits. `arguments` are the final ones: what is shown is what would run.

    `asked_by` is the plugin that wants it asked, None if nobody in particular.
    """

    agent: Agent
    tool_name: str
    call_id: str
    arguments: JsonValue
    reason: str | None
    signal: TurnSignal
    asked_by: str | None = None


@frozen(kw_only=True, slots=True)
class ApprovalAnswer:
    """The outcome, and the plugin that gave it (None: the service itself).

    `detail` says in words why it was refused, where more is known than the outcome.
    """

    outcome: records.ApprovalOutcome
    plugin: str | None = None
    detail: str | None = None


class ApprovalService(ABC):
    """Who provides this asks one person at a time and logs question and decision as a pair."""

    @abstractmethod
    async def request(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Ask, and wait for the answer.

        Cancelled through the turn's signal: the question is withdrawn, an answer that comes later
        runs nothing, and the decision is logged as `cancelled`. `unavailable`: nobody could be
        asked. A grant covers exactly this call.
        """


APPROVAL: Final[ServiceKey[ApprovalService]] = ServiceKey("approval")


class SessionRules(ABC):
    """Who provides this keeps what a person allowed for the rest of one session."""

    @abstractmethod
    def offer(self, agent: Agent, tool_name: str, arguments: JsonValue) -> str | None:
        """What `remember` would allow from now on, in words.

        None: nothing can be remembered that would let this very call pass unasked.
        """

    @abstractmethod
    def remember(self, agent: Agent, tool_name: str, arguments: JsonValue) -> None:
        """Allow exactly such calls for this session, also when it is resumed, and log that.

        No wildcard: another command, however similar, is asked about again. Raises ToolError if
        `offer` is None for it.
        """


SESSION_RULES: Final[ServiceKey[SessionRules]] = ServiceKey("session-rules")
