"""Tool calls of a step as the loop logs them: order, overlap, policies, the live limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.catalog.config import AgentLoopConfig
from dsh.errors import ToolError
from dsh.testing import broken_laws, call, calls, open_test_house, says
from dsh.testing.tool_parts import OverlapWatch, simple_tool, timed_call

if TYPE_CHECKING:
    from trio.testing import MockClock

    from dsh.hooks import Next, live


@pytest.mark.holds("LP07", "F6", "CE01", "CE02")
async def test_a_round_trip_pairs_call_and_result_whatever_the_arguments() -> None:
    async def body(run: live.ToolRun) -> str:
        return f"got {run.arguments!r}"

    broken = call("t", "{not json", call_id="c2")
    async with open_test_house(
        replies=[calls(call("t", "", call_id="c1"), broken), says("b")]
    ) as house:
        house.tools.register(house.ctx, simple_tool("t", body))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        first, second = house.results(handle)
        assert not first.message.is_error
        assert second.message.is_error
        session = house.session(handle)
        for event in session.events:
            if isinstance(event.data, ev.tool.Result):
                assert event.source_event_seqs is not None
                [cited] = event.source_event_seqs
                logged = session.events[cited].data
                assert isinstance(logged, ev.tool.Call)
                assert logged.call_id == event.data.message.tool_call_id
        last = house.model.requests[1].messages[-2:]
        assert [m.role for m in last] == ["tool", "tool"]
        assert [e.data.arguments for e in session.events if isinstance(e.data, ev.tool.Call)] == [
            "",
            "{not json",
        ]


@pytest.mark.holds("CE07", "F6")
async def test_error_facts_stand_on_the_result() -> None:
    async def body(run: live.ToolRun) -> str:
        raise ToolError("out of paper", code="NO_PAPER")

    async with open_test_house(replies=[calls(call("t")), says("b")]) as house:
        house.tools.register(house.ctx, simple_tool("t", body))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        [result] = house.results(handle)
        assert result.error == records.ToolErrorInfo(name="ToolError", code="NO_PAPER")
        assert result.message.is_error


@pytest.mark.holds("TC01", "TC05", "TC06", "F5", "F4", "M14")
async def test_parallel_calls_overlap_and_commit_in_model_order(autojump_clock: MockClock) -> None:
    watch = OverlapWatch()
    reply = calls(timed_call("p", 3, "a"), timed_call("p", 1, "b"), timed_call("p", 2, "c"))
    async with open_test_house(replies=[reply, says("b")]) as house:
        house.tools.register(house.ctx, watch.tool("p", "parallel"))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        assert set(watch.log[:3]) == {"+a", "+b", "+c"}
        assert watch.log[3:] == ["-b", "-c", "-a"]
        assert [one.message.tool_call_id for one in house.results(handle)] == [
            "a",
            "b",
            "c",
        ]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("TC02", "F3")
async def test_an_exclusive_call_is_a_barrier(autojump_clock: MockClock) -> None:
    watch = OverlapWatch()
    reply = calls(
        timed_call("p", 1, "a"),
        timed_call("x", 1, "b"),
        timed_call("p", 1, "c"),
        timed_call("p", 1, "d"),
    )
    async with open_test_house(replies=[reply, says("b")]) as house:
        house.tools.register(house.ctx, watch.tool("p", "parallel"))
        house.tools.register(house.ctx, watch.tool("x", "exclusive"))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        assert watch.log[:4] == ["+a", "-a", "+b", "-b"]
        assert set(watch.log[4:6]) == {"+c", "+d"}


@pytest.mark.holds("TC10", "TC11", "TC12", "F4")
@pytest.mark.parametrize("cap", [1, 2, 3])
async def test_the_cap_bounds_the_pool_of_every_agent(cap: int, autojump_clock: MockClock) -> None:
    watch = OverlapWatch()
    reply = calls(*(timed_call("p", 1 + n % 2, f"{n}") for n in range(5)))
    config = AgentLoopConfig(max_parallel_tool_calls=cap)
    async with open_test_house(replies=[reply, says("b"), reply, says("b")], loop=config) as house:
        house.tools.register(house.ctx, watch.tool("p", "parallel"))
        for session_id in ("one", "two"):
            watch.most = 0
            handle = await house.agent(session_id)
            await handle.agent.ask(user_message("go"))
            assert watch.most == cap
            assert [one.message.tool_call_id for one in house.results(handle)] == [
                str(n) for n in range(5)
            ]


@pytest.mark.holds("ST01", "A36", "TC09")
async def test_a_new_cap_holds_from_the_next_group_on_without_a_restart(
    autojump_clock: MockClock,
) -> None:
    watch = OverlapWatch()
    reply = calls(*(timed_call("p", 1, f"{n}") for n in range(4)))
    async with open_test_house(replies=[reply, says("a"), reply, says("b")]) as house:
        house.tools.register(house.ctx, watch.tool("p", "parallel"))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        assert watch.most == 4
        await house.loop.update(AgentLoopConfig(max_parallel_tool_calls=2))
        watch.most = 0
        await handle.agent.ask(user_message("again"))
        assert watch.most == 2
        assert house.agents.get("s") is handle.agent


@pytest.mark.holds("TC13", "TC15", "IN20", "F12")
async def test_policies_see_model_order_and_a_denied_call_is_not_dispatched(
    autojump_clock: MockClock,
) -> None:
    watch = OverlapWatch()
    seen: list[str] = []
    reply = calls(timed_call("p", 2, "a"), timed_call("p", 1, "b"), timed_call("p", 1, "c"))
    async with open_test_house(replies=[reply, says("b")]) as house:
        house.tools.register(house.ctx, watch.tool("p", "parallel"))
        handle = await house.agent()

        @house.ctx.on(ev.tools.PRE_EXECUTE)
        async def pre(
            payload: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
        ) -> ev.tools.PreExecuteDecision:
            seen.append(f"pre {payload.exec.call_id}")
            if payload.exec.call_id == "b":
                return ev.tools.Deny(reason="not that one")
            return await call_next()

        @house.ctx.on(ev.tools.POST_EXECUTE)
        async def post(
            payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
        ) -> ev.tools.PostExecuteDecision:
            seen.append(f"post {payload.exec.call_id}")
            return await call_next()

        await handle.agent.ask(user_message("go"))
        assert [s for s in seen if s.startswith("pre")] == ["pre a", "pre b", "pre c"]
        assert [s for s in seen if s.startswith("post")] == ["post a", "post b", "post c"]
        assert "+b" not in watch.log
        assert [result.message.is_error for result in house.results(handle)] == [
            False,
            True,
            False,
        ]
        assert house.results(handle)[1].decided_by == "kernel"
