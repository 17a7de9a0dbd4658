"""What a person allowed for one session: exact rules, kept in that session's log and nowhere else.

What comes in: a call that a person allowed once and for the rest of the session. What goes out: a
`permissions/rules` event with one rule more, and the remembered rules of a session, which a resume
reads back from the log. A rule here has no wildcard and never lifts a denial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from dsh.errors import ToolError
from dsh.hooks import frozen
from dsh.seams.approval import SessionRules
from dsh.session import Projection, Sessions
from dsh_plugins.permissions.catalog import PermissionAsk, PermissionRule
from dsh_plugins.permissions.catalog import permissions as events
from dsh_plugins.permissions.table import Call, Table

if TYPE_CHECKING:
    from dsh.hooks import JsonValue, live
    from dsh.tools import ToolRuntime
    from dsh.wire import StoredEvent
    from dsh_plugins.permissions.written import Written

__all__ = ["REMEMBERED", "Remembered"]


def _nothing() -> tuple[PermissionRule, ...]:
    return ()


def _folded(state: tuple[PermissionRule, ...], event: StoredEvent) -> tuple[PermissionRule, ...]:
    return event.data.remembered if isinstance(event.data, events.Rules) else state


REMEMBERED: Final[Projection[tuple[PermissionRule, ...]]] = Projection(
    key="permissions/remembered", init=_nothing, apply=_folded, events=(events.RULES,)
)


@frozen(slots=True, eq=False)
class Remembered(SessionRules):
    """The remembered rules of all sessions. Without a log there is nothing to remember them in."""

    _tools: ToolRuntime
    _sessions: Sessions | None
    _table: Table
    _ask: PermissionAsk
    _written: Written

    def of(self, agent: live.Agent | None) -> tuple[PermissionRule, ...]:
        """The rules of the agent's session, in the order in which they were given."""
        if agent is None or self._sessions is None:
            return ()
        session = self._sessions.get(agent.session.id)
        return session.projection(REMEMBERED) if session is not None else ()

    def _call(self, agent: live.Agent, tool_name: str, arguments: JsonValue) -> Call:
        tool = self._tools.get(tool_name, agent.scope)
        cwd = agent.session.header.cwd or "/"
        return Call(name=tool_name, tool=tool, arguments=arguments, cwd=cwd)

    def _rule(
        self, agent: live.Agent, tool_name: str, arguments: JsonValue
    ) -> PermissionRule | None:
        call = self._call(agent, tool_name, arguments)
        try:
            rule = call.exact_rule()
        except Exception:  # noqa: BLE001 - a subject that cannot be made out cannot be remembered
            return None
        verdict = self._table.judge(call, (*self.of(agent), rule))
        return rule if verdict.decision == "allow" else None

    @override
    def offer(self, agent: live.Agent, tool_name: str, arguments: JsonValue) -> str | None:
        rule = None if self._sessions is None else self._rule(agent, tool_name, arguments)
        return None if rule is None else f"{rule.tool}: {rule.pattern}"

    @override
    def remember(self, agent: live.Agent, tool_name: str, arguments: JsonValue) -> None:
        rule = None if self._sessions is None else self._rule(agent, tool_name, arguments)
        if rule is None:
            raise ToolError(f"a rule for this call of {tool_name} cannot be remembered")
        known = self.of(agent)
        if rule not in known:
            agent.session.append(self.told((*known, rule)))

    def told(self, remembered: tuple[PermissionRule, ...]) -> events.Rules:
        """The event that says which rules are in force, and where they come from."""
        rules = self._table.rules(remembered)
        sources = self._written.sources(rules, remembered)
        return events.Rules(
            ask=self._ask,
            rules=rules,
            source=self._written.layers(sources),
            sources=sources,
            remembered=remembered,
        )
