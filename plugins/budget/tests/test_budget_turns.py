"""Budgets in the real loop: each limit ends the turn with its reason, and nothing else does."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from attrs import evolve, frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.catalog import records
from dsh.seams.prices import PRICES
from dsh.seams.token_meter import UsageTotals
from dsh.testing import (
    MemoryStore,
    ScriptEntry,
    TestHouse,
    broken_laws,
    call,
    calls,
    open_test_house,
    says,
)
from dsh_plugins.budget import budget
from dsh_plugins.budget.catalog import BudgetConfig, ModelPrice
from dsh_plugins.budget.pace import PACE, Pace
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.agent import AgentHandle
    from dsh.hooks import live
    from dsh.tools import Tool


@frozen
class Job:
    """Which job."""

    number: int = 1


async def job_output(args: Job, _run: live.ToolRun) -> str:
    """A tool that is polled."""
    return f"job {args.number} runs"


JOB: Tool = define_tool(
    name="job_output", description="Polls", args=Job, output=str, execute=job_output
)


@asynccontextmanager
async def running(
    config: BudgetConfig, *replies: ScriptEntry, store: MemoryStore | None = None
) -> AsyncGenerator[TestHouse]:
    async with open_test_house(
        replies=replies, tools=[JOB], plugins=[token_meter], store=store
    ) as house:
        await house.kernel.mount(budget, config, slot=5).ready()
        yield house


def polls(read: int = 10) -> ScriptEntry:
    usage = records.Usage(input_tokens=read - 1, output_tokens=1)
    return evolve(calls(call("job_output")), usage=usage)


def blocked(reason: str) -> records.BlockedTurnEnd:
    return records.BlockedTurnEnd(reason=reason, plugin="budget")


def results(house: TestHouse, handle: AgentHandle) -> list[ev.tool.Result]:
    events = house.session(handle).events
    return [event.data for event in events if isinstance(event.data, ev.tool.Result)]


@pytest.mark.holds("case-084")
async def test_thirty_polls_are_work_and_a_doom_loop_ends_at_the_limit_of_steps() -> None:
    async with running(BudgetConfig(turn_steps=40), *[polls()] * 30, says("ready")) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "ready"
        house.model.replies[:] = [polls()] * 100
        outcome = await handle.agent.ask(user_message("again"))
        assert outcome.reason == blocked("budget: turn-steps 40 of 40")
        assert len(house.model.replies) == 60
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("case-084")
async def test_of_two_hundred_calls_in_one_reply_only_so_many_run() -> None:
    many = calls(*(call("job_output", call_id=f"c{at}") for at in range(200)))
    async with running(BudgetConfig(message_calls=20), many, says("fewer")) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "fewer"
        found = results(house, handle)
        assert [result.message.is_error for result in found] == [False] * 20 + [True] * 180
        (told,) = {
            block.text
            for result in found[20:]
            for block in result.message.content
            if isinstance(block, records.TextBlock)
        }
        assert "200 calls in one reply; only the first 20 run" in told
        assert broken_laws(house.session(handle)) == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (BudgetConfig(turn_steps=2), "budget: turn-steps 2 of 2"),
        (BudgetConfig(session_steps=3), "budget: session-steps 3 of 3"),
        (BudgetConfig(turn_tokens=15), "budget: turn-tokens 20 of 15"),
        (BudgetConfig(session_tokens=25), "budget: session-tokens 30 of 25"),
    ],
)
async def test_each_limit_has_its_reason(config: BudgetConfig, reason: str) -> None:
    async with running(config, *[polls()] * 9) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).reason == blocked(reason)


async def test_a_turn_begins_with_a_full_budget_and_a_session_does_not() -> None:
    config = BudgetConfig(turn_steps=2, session_tokens=35)
    async with running(config, *[polls()] * 9) as house:
        handle = await house.agent()
        reasons = [(await handle.agent.ask(user_message("go"))).reason for _ in range(3)]
        assert reasons == [
            blocked("budget: turn-steps 2 of 2"),
            blocked("budget: turn-steps 2 of 2"),
            blocked("budget: session-tokens 40 of 35"),
        ]


async def test_money_is_counted_by_model_and_a_model_without_a_price_is_said() -> None:
    price = ModelPrice(provider="test", model="*", input=1_000_000, output=2_000_000)
    config = BudgetConfig(turn_cost=25, prices=(price,))
    async with running(config, *[polls()] * 9) as house:
        handle = await house.agent()
        # Nine read and one written are eleven.
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == blocked("budget: turn-cost 33 of 25")
        known = house.ctx.require(PRICES)
        used = UsageTotals(input_tokens=2, output_tokens=1)
        assert known.cost({("test", "any"): used}) == 4
        assert known.cost({("test", "any"): used, ("other", "any"): used}) is None
    async with running(BudgetConfig(session_cost=1), *[polls()] * 9) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == blocked("budget: no price for test/model-1")


async def test_time_is_that_of_the_log() -> None:
    # The house's clock advances by a millisecond with each look.
    async with running(BudgetConfig(turn_seconds=0.05), *[polls()] * 99) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.BlockedTurnEnd)
        assert (outcome.reason.reason or "").startswith("budget: turn-seconds 0.0")


@pytest.mark.holds("case-084")
async def test_what_a_session_used_is_known_after_a_resume() -> None:
    store, config = MemoryStore(), BudgetConfig(session_steps=3)
    async with running(config, polls(), says("done"), store=store) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "done"
        before = house.session(handle).projection(PACE)
        await handle.aclose()
    async with running(config, *[polls()] * 5, store=store) as house:
        again = await house.agents.resume(
            "s", options=records.AgentOptions(provider="test", model="model-1")
        )
        after = house.session(again).projection(PACE)
        assert evolve(after, last_seen=0) == evolve(before, last_seen=0)
        outcome = await again.agent.ask(user_message("on"))
        assert outcome.reason == blocked("budget: session-steps 3 of 3")


def test_a_clock_that_is_set_back_and_a_turn_cut_by_a_crash_cost_no_time() -> None:
    pace = Pace(turn_began=10_000, last_seen=12_000, past_ms=500)
    assert pace.turn_ms(9_000) == 0
    assert pace.session_ms(12_000) == 2_500
    assert Pace().turn_ms(99) == 0
