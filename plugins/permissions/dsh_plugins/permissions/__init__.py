"""The plugin `permissions`: which tool calls run, which are asked about, which are denied.

What comes in: every tool call before it runs. What goes out: the stricter of what the other plugins
and the table of rules say; and, as a guard, a refusal of any final arguments that the table does
not allow and nobody was asked about. It never allows what another plugin or guard refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.hooks import frozen
from dsh.kernel import late, optional, required
from dsh.seams.approval import SESSION_RULES
from dsh.seams.origins import ORIGINS, Origins
from dsh.session import SESSIONS, Sessions
from dsh.tools import TOOLS, ToolRuntime
from dsh_plugins.permissions.catalog import PermissionsConfig
from dsh_plugins.permissions.policy import Policy
from dsh_plugins.permissions.remembered import REMEMBERED, Remembered
from dsh_plugins.permissions.table import Table
from dsh_plugins.permissions.written import Written

if TYPE_CHECKING:
    from dsh.hooks import live
    from dsh.kernel import Late

__all__ = ["permissions"]


@frozen
class _Deps:
    tools: ToolRuntime = required(TOOLS)
    sessions: Sessions | None = optional(SESSIONS)
    origins: Late[Origins] = late(ORIGINS)


@plugin(name="permissions", config=PermissionsConfig, deps=_Deps, provides=(SESSION_RULES,))
async def permissions(ctx: Context, config: PermissionsConfig, deps: _Deps) -> None:
    """Two registrations over one table: a listener that asks or denies, and a guard."""
    table = Table(config.rules)
    if deps.sessions is not None:
        deps.sessions.project(ctx, REMEMBERED)
    written = Written(config.rules, deps.origins)
    remembered = Remembered(deps.tools, deps.sessions, table, config.ask, written)
    policy = Policy(deps.tools, table, config.ask, remembered)
    told: WeakSet[live.Session] = WeakSet()
    ctx.provide(SESSION_RULES, remembered)

    @ctx.on(ev.tools.PRE_EXECUTE, prepend=True)
    async def decide(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        chain = await call_next()
        return chain if isinstance(chain, ev.tools.Deny) else policy.answer(event.exec, chain)

    deps.tools.guard(ctx, policy.guard)

    @ctx.on(ev.agent.PRE_STEP)
    async def tell(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        # Before a session's first request, and again when new rules (a reload) are in force.
        session = step.agent.session
        if session not in told:
            told.add(session)
            session.append(remembered.told(remembered.of(step.agent)))
        return await call_next()
