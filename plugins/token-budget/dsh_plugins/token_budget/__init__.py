"""The plugin `token-budget`: ends a turn that has cost too many tokens.

What comes in: the log's `turn/start` and `assistant/message` events, and every proposed step. What
goes out: a rejected step, so that the turn ends as blocked, with the reason in the log. It counts
what providers report, per turn and in memory; it never cuts a running reply off.
"""

from __future__ import annotations

from dsh import Context, Logged, Next, plugin
from dsh import catalog as ev
from dsh_plugins.token_budget.catalog import TokenBudgetConfig

__all__ = ["token_budget"]


@plugin(name="token-budget", config=TokenBudgetConfig)
async def token_budget(ctx: Context, config: TokenBudgetConfig) -> None:
    """Count tokens per turn and reject a step once the limit is passed."""
    spent: dict[str, int] = {}

    @ctx.on(ev.turn.START)
    def reset(event: Logged[ev.turn.Start]) -> None:
        spent[event.session.id] = 0

    @ctx.on(ev.assistant.MESSAGE)
    def count(event: Logged[ev.assistant.Message]) -> None:
        if event.data.usage is not None:
            spent[event.session.id] = spent.get(event.session.id, 0) + event.data.usage.total_tokens

    @ctx.on(ev.agent.DISPOSED)
    def forget(notice: ev.agent.Disposed) -> None:
        spent.pop(notice.agent.id, None)

    @ctx.on(ev.agent.PRE_STEP)
    async def guard(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        if spent.get(step.agent.id, 0) > config.max_turn_tokens:
            return ev.agent.Reject(reason="token-budget-exceeded")
        return await call_next()
