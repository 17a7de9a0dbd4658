"""The token budget in the real loop: which steps begin, and what the log says of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve, frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.catalog import records
from dsh.testing import ScriptEntry, call, calls, open_test_house, says
from dsh_plugins.token_budget import token_budget
from dsh_plugins.token_budget.catalog import TokenBudgetConfig

if TYPE_CHECKING:
    from dsh.hooks import live
    from dsh.tools import Tool


@frozen
class Nothing:
    """No arguments."""


async def work(_args: Nothing, _run: live.ToolRun) -> str:
    """What the model does between two replies."""
    return "done"


TOOL: Tool = define_tool(name="work", description="Works", args=Nothing, output=str, execute=work)


def costing(entry: ScriptEntry, tokens: int) -> ScriptEntry:
    """A reply that reports what it cost."""
    return evolve(entry, usage=records.Usage(input_tokens=tokens - 1, output_tokens=1))


async def test_a_step_over_the_budget_is_rejected_and_the_log_says_by_whom() -> None:
    replies = [costing(calls(call("work")), 30), costing(calls(call("work")), 30), says("never")]
    async with open_test_house(replies=replies, tools=[TOOL]) as house:
        await house.kernel.mount(token_budget, TokenBudgetConfig(max_turn_tokens=59)).ready()
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.BlockedTurnEnd(
            reason="token-budget-exceeded", plugin="token-budget"
        )
        assert len(house.model.requests) == 2
        assert house.names(handle).count(ev.step.START.name) == 2


async def test_a_turn_that_costs_exactly_the_budget_goes_on() -> None:
    replies = [costing(calls(call("work")), 30), costing(calls(call("work")), 30), says("ready")]
    async with open_test_house(replies=replies, tools=[TOOL]) as house:
        await house.kernel.mount(token_budget, TokenBudgetConfig(max_turn_tokens=60)).ready()
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.CompletedTurnEnd()
        assert outcome.text == "ready"


async def test_every_turn_begins_with_a_full_budget() -> None:
    replies = [costing(says(text), 50) for text in ("one", "two", "three")]
    async with open_test_house(replies=replies) as house:
        await house.kernel.mount(token_budget, TokenBudgetConfig(max_turn_tokens=60)).ready()
        handle = await house.agent()
        texts = [(await handle.agent.ask(user_message("go"))).text for _ in range(3)]
        assert texts == ["one", "two", "three"]


async def test_agents_do_not_spend_each_other_s_budget() -> None:
    async with open_test_house(tools=[TOOL]) as house:
        await house.kernel.mount(token_budget, TokenBudgetConfig(max_turn_tokens=60)).ready()
        for name in ("a", "b"):
            replies = [costing(calls(call("work")), 50), says(f"hello {name}")]
            house.model.replies.extend(replies)
            handle = await house.agent(name)
            assert (await handle.agent.ask(user_message("go"))).text == f"hello {name}"


async def test_replies_without_a_count_cost_nothing() -> None:
    replies = [calls(call("work")), says("ready")]
    async with open_test_house(replies=replies, tools=[TOOL]) as house:
        await house.kernel.mount(token_budget, TokenBudgetConfig(max_turn_tokens=1)).ready()
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "ready"


def test_the_limit_is_at_least_one_token() -> None:
    assert TokenBudgetConfig().max_turn_tokens == 50_000
    with pytest.raises(ValueError, match="max_turn_tokens"):
        TokenBudgetConfig(max_turn_tokens=0)
