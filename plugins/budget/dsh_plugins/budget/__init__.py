"""The plugin `budget`: a turn or a session that has used up its limits goes no further.

What comes in: limits and prices from the configuration, the log, the token meter. What goes out:
rejected steps, with the reason in the log, and refused calls beyond a number. It never cuts off
what already runs, and keeps nothing but what the log says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from typing_extensions import override

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.seams.prices import PRICES, Prices
from dsh.seams.token_meter import TOKEN_METER, TokenMeter
from dsh.session import SESSIONS, Sessions
from dsh.tools import TOOLS, ToolRuntime
from dsh_plugins.budget.catalog import BudgetConfig
from dsh_plugins.budget.limits import NoPrice, cost_of, exhausted
from dsh_plugins.budget.pace import PACE, Asked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks.live import ToolExecution
    from dsh.seams.token_meter import UsageTotals
    from dsh_plugins.budget.catalog import ModelPrice

__all__ = ["budget"]


@frozen
class Needs:
    """What the plugin stands on."""

    sessions: Sessions = required(SESSIONS)
    meter: TokenMeter = required(TOKEN_METER)
    tools: ToolRuntime = required(TOOLS)


@final
class Priced(Prices):
    """The prices of the configuration, for whoever shows what was spent."""

    def __init__(self, prices: tuple[ModelPrice, ...]) -> None:
        self._prices: Final = prices

    @override
    def cost(self, routes: Mapping[tuple[str, str], UsageTotals]) -> float | None:
        try:
            return cost_of(self._prices, routes)
        except NoPrice:
            return None


@plugin(name="budget", config=BudgetConfig, deps=Needs, provides=(PRICES,))
async def budget(ctx: Context, config: BudgetConfig, deps: Needs) -> None:
    """Reject steps beyond the limits, refuse calls beyond the number of one reply."""
    deps.sessions.project(ctx, PACE)
    ctx.provide(PRICES, Priced(config.prices))

    @ctx.on(ev.agent.PRE_STEP)
    async def limit(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        session = deps.sessions.get(step.agent.session.id)
        if session is not None:
            pace = session.projection(PACE)
            reason = exhausted(config, pace, deps.meter.usage(session), ctx.clock.now_ms())
            if reason is not None:
                return ev.agent.Reject(reason=f"budget: {reason}")
        return await call_next()

    def too_many(call: ToolExecution) -> str | None:
        agent = call.agent
        session = None if agent is None else deps.sessions.get(agent.session.id)
        if session is None or call.parent is not None:
            return None
        asked: Asked = session.projection(PACE).asked
        if asked.place(call.call_id) < config.message_calls:
            return None
        return (
            f"{asked.count} calls in one reply; only the first {config.message_calls} run. "
            "Ask again for what is still needed, in smaller batches."
        )

    deps.tools.guard(ctx, too_many)
