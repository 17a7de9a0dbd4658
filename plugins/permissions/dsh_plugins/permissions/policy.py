"""The table of rules at its two posts: an answer before a call, and a guard on what would run.

What comes in: a call, what the other policies answered, the table. What goes out: the stricter of
both answers; and the guard's refusal of arguments that nobody allowed and nobody was asked about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.hooks import frozen
from dsh.tools import ToolRuntime, asked_about
from dsh_plugins.permissions.table import Call, Table, Verdict

if TYPE_CHECKING:
    from dsh.hooks import JsonValue, live
    from dsh_plugins.permissions.catalog import PermissionAsk
    from dsh_plugins.permissions.remembered import Remembered

__all__ = ["Policy"]


@frozen(slots=True, eq=False)
class Policy:
    """One table, used twice. `ask`: whether there is anybody to ask."""

    _tools: ToolRuntime
    _table: Table
    _ask: PermissionAsk
    _remembered: Remembered

    def _judge(self, call: live.ToolExecution, arguments: JsonValue) -> Verdict:
        scope = call.agent.scope if call.agent is not None else None
        tool = self._tools.get(call.name, scope)
        known = self._remembered.of(call.agent)
        return self._table.judge(
            Call(name=call.name, tool=tool, arguments=arguments, cwd=call.cwd), known
        )

    def answer(
        self, call: live.ToolExecution, chain: ev.tools.Allow | ev.tools.Ask
    ) -> ev.tools.PreExecuteDecision:
        """The stricter of what the rest of the chain answered and what the table says."""
        final = chain.arguments if chain.arguments is not None else call.arguments
        verdict = self._judge(call, final)
        if verdict.decision == "deny":
            return ev.tools.Deny(reason=f"denied: {verdict.reason}")
        reason = verdict.reason
        if isinstance(chain, ev.tools.Ask):
            reason = chain.reason or reason
        elif verdict.decision == "allow":
            return chain
        if self._ask == "deny":
            return ev.tools.Deny(reason=_nobody(reason, verdict))
        return ev.tools.Ask(reason=reason, arguments=chain.arguments)

    def guard(self, call: live.ToolExecution) -> str | None:
        """Refuse what the table denies, or wants asked about and nobody was asked about."""
        verdict = self._judge(call, call.arguments)
        if verdict.decision == "allow" or (verdict.decision == "ask" and asked_about(call)):
            return None
        if verdict.decision == "deny":
            return f"denied: {verdict.reason}"
        if self._ask == "deny":
            return _nobody(verdict.reason, verdict)
        return f"denied: {verdict.reason}, and nobody was asked about these arguments"


def _nobody(reason: str, verdict: Verdict) -> str:
    return f"denied: {reason}, and nobody to ask; {verdict.remedy}"
