"""The meter on real sessions: predictions, totals, and what a question costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve, frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.catalog import records
from dsh.seams.token_meter import TOKEN_METER, TokenMeter
from dsh.testing import (
    MemoryStore,
    ScriptedReplies,
    TestHouse,
    call,
    calls,
    open_test_house,
    says,
)
from dsh_plugins.token_meter import token_meter
from dsh_plugins.token_meter.estimate import message_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.hooks import Next, live
    from dsh.llm import ScriptEntry
    from dsh.testing.model import Reply
    from dsh.tools import Tool


@frozen
class Nothing:
    """No arguments."""


async def work(_args: Nothing, _run: live.ToolRun) -> str:
    """What the model does between two replies."""
    return "x" * 400


TOOL: Tool = define_tool(name="work", description="Works", args=Nothing, output=str, execute=work)


def costing(entry: ScriptEntry, read: int, wrote: int, *, cached: int = 0) -> ScriptEntry:
    usage = records.Usage(
        input_tokens=read - cached, output_tokens=wrote, cache_read_tokens=cached or None
    )
    return evolve(entry, usage=usage)


def meter_of(house: TestHouse) -> TokenMeter:
    meter = house.ctx.get(TOKEN_METER)
    assert meter is not None
    return meter


@pytest.mark.holds("TM1")
async def test_before_any_reply_everything_is_estimated() -> None:
    async with open_test_house(plugins=[token_meter]) as house:
        handle = await house.agent()
        measured = meter_of(house).measure(house.session(handle))
        assert measured.baseline == "estimated"
        assert measured.total_tokens == measured.surface_tokens == 0


@pytest.mark.holds("TM1")
async def test_the_last_count_is_the_base_and_what_came_since_is_added() -> None:
    replies = [costing(calls(call("work")), 900, 100), costing(says("done"), 1200, 10)]
    seen: list[int] = []
    async with open_test_house(replies=replies, tools=[TOOL], plugins=[token_meter]) as house:
        handle = await house.agent()
        session, meter = house.session(handle), meter_of(house)

        async def look(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            measured = meter.measure(session)
            seen.append(measured.total_tokens)
            if step.step == 2:
                assert measured.baseline == "usage"
                assert measured.surface_delta == 400 // 4 + 4 + 4
                # The provider counts more than the estimate: so will it for what came since.
                assert measured.scale == 4.0
                assert measured.total_tokens == 1000 + 4 * measured.surface_delta
            return await call_next()

        house.ctx.on(ev.agent.PRE_STEP)(look)
        await handle.agent.ask(user_message("go"))
        assert len(seen) == 2
        assert meter.measure(session).total_tokens == 1210
        assert sum(price.tokens for price in meter.prices(session)) == (
            meter.measure(session).surface_tokens
        )


@pytest.mark.holds("TM1")
@pytest.mark.parametrize("count", [0, 3])
async def test_counts_that_are_too_small_to_be_true_are_not_the_base(count: int) -> None:
    async with open_test_house(
        replies=[costing(says("x" * 4000), count, 1)], plugins=[token_meter]
    ) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        measured = meter_of(house).measure(house.session(handle))
        assert measured.baseline == "estimated"
        assert measured.total_tokens >= 1000


@pytest.mark.holds("TM1")
async def test_another_route_is_estimated_until_it_has_counted_itself() -> None:
    other = ScriptedReplies([costing(says("b"), 700, 1)])
    async with open_test_house(
        replies=[costing(says("a"), 900, 1)], plugins=[token_meter]
    ) as house:
        house.llm.register(house.ctx, other, ("other",))
        baselines: list[str] = []
        handle = await house.agent()
        session, meter = house.session(handle), meter_of(house)

        async def route(
            ask: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            config = await call_next()
            return evolve(config, provider="other") if ask.turn == 2 else config

        house.ctx.on(ev.agent.REQUEST)(route)
        house.ctx.on(ev.request.HEADER)(
            lambda _event: baselines.append(meter.measure(session).baseline)
        )
        await handle.agent.ask(user_message("go"))
        assert meter.measure(session).baseline == "usage"
        await handle.agent.ask(user_message("go"))
        assert baselines == ["estimated", "estimated"]
        assert meter.measure(session).total_tokens == 701
        report = meter.usage(session)
        assert {name: one.total_tokens for name, one in report.providers.items()} == {
            "test": 901,
            "other": 701,
        }


@pytest.mark.holds("TM2")
async def test_usage_is_summed_by_session_turn_and_provider() -> None:
    replies = [
        costing(calls(call("work")), 100, 10),
        costing(says("one"), 200, 20, cached=100),
        costing(says("two"), 300, 30, cached=200),
    ]
    async with open_test_house(replies=replies, tools=[TOOL], plugins=[token_meter]) as house:
        handle = await house.agent()
        for _ in range(2):
            await handle.agent.ask(user_message("go"))
        report = meter_of(house).usage(house.session(handle))
        assert (report.session.attempts, report.session.total_tokens) == (3, 660)
        assert (report.turn_number, report.turn.total_tokens) == (2, 330)
        assert report.session.cache_hit_ratio == pytest.approx(0.5)
        assert report.providers == {"test": report.session}


@pytest.mark.holds("TM2")
async def test_a_server_without_counts_is_estimated_and_that_is_said() -> None:
    async with open_test_house(replies=[says("x" * 40)], plugins=[token_meter]) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("y" * 80))
        totals = meter_of(house).usage(house.session(handle)).session
        assert (totals.attempts, totals.estimated_attempts) == (1, 1)
        assert totals.input_tokens == 80 // 4 + 4 + 4
        assert totals.output_tokens == 40 // 4 + 4


@pytest.mark.holds("TM2")
async def test_a_failed_attempt_that_reported_its_counts_has_cost_them() -> None:
    async def fails(_request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        yield records.UsageChunk(usage=records.Usage(input_tokens=70, output_tokens=7))
        failure = records.LlmFailure(message="busy", code="SERVER")
        yield records.FinishChunk(reason=records.ErrorFinish(failure=failure))

    replies: list[Reply] = [fails, costing(says("ok"), 100, 10)]
    async with open_test_house(replies=replies, plugins=[token_meter]) as house:

        async def again(
            _failed: ev.agent.RequestError, _call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            return ev.agent.Retry()

        house.ctx.on(ev.agent.REQUEST_ERROR)(again)
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        totals = meter_of(house).usage(house.session(handle)).session
        assert (totals.attempts, totals.total_tokens) == (2, 187)


@pytest.mark.holds("TM4")
async def test_a_replacement_changes_the_prediction_and_the_stable_prefix() -> None:
    replies = [costing(calls(call("work")), 900, 100), costing(says("done"), 1200, 10)]
    async with open_test_house(replies=replies, tools=[TOOL], plugins=[token_meter]) as house:
        handle = await house.agent()
        session, meter = house.session(handle), meter_of(house)
        await handle.agent.ask(user_message("go"))
        before = meter.measure(session)
        assert before.prefix_tokens == before.surface_tokens
        nodes = list(session.surface.nodes)
        result = next(
            event.data for event in session.events if isinstance(event.data, ev.tool.Result)
        )
        at = next(seq for seq in nodes if session.events[seq].data is result)
        short = evolve(result.message, content=(records.TextBlock(text="short"),))
        session.append(
            evolve(result, message=short),
            surface=records.Replace(start_seq=at, end_seq=at),
            sources=(at,),
        )
        after = meter.measure(session)
        saved = (400 // 4) - 2
        assert after.total_tokens == before.total_tokens - saved
        prices = {price.seq: price.tokens for price in meter.prices(session)}
        kept = nodes[: nodes.index(at)]
        assert after.prefix_tokens == sum(prices[seq] for seq in kept)


@pytest.mark.holds("TM4")
async def test_a_resumed_session_is_measured_as_before() -> None:
    store = MemoryStore()
    replies = [costing(calls(call("work")), 900, 100), costing(says("done"), 1200, 10)]
    async with open_test_house(
        replies=replies, tools=[TOOL], plugins=[token_meter], store=store
    ) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        session = house.session(handle)
        before, spent = meter_of(house).measure(session), meter_of(house).usage(session)
        await handle.aclose()
    async with open_test_house(tools=[TOOL], plugins=[token_meter], store=store) as house:
        session = house.session(await house.agents.resume("s"))
        again = meter_of(house).measure(session)
        assert (again.total_tokens, again.baseline) == (before.total_tokens, "usage")
        assert meter_of(house).usage(session) == spent


@pytest.mark.holds("TM4")
async def test_asking_again_looks_at_no_event_twice() -> None:
    replies = [costing(says("x"), 10 + at, 1) for at in range(20)]
    async with open_test_house(replies=replies, plugins=[token_meter]) as house:
        handle = await house.agent()
        session, meter = house.session(handle), meter_of(house)
        priced: list[str] = []

        def pricing(message: records.Message) -> int:
            priced.append(message.id)
            return message_tokens(message)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dsh_plugins.token_meter.fold.message_tokens", pricing)
            for _ in range(20):
                await handle.agent.ask(user_message("go"))
                for _ in range(5):
                    meter.measure(session)
                    meter.usage(session)
        assert len(priced) == len(set(priced)) == 40
