"""Results of a step: pairs for every call, contexts, cancelled and failing batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.catalog.config import AgentLoopConfig
from dsh.session import Projection
from dsh.testing import broken_laws, call, calls, open_test_house, says
from dsh.testing.tool_parts import NoArgs, OverlapWatch, simple_tool, timed_call
from dsh.tools import define_tool, typed_output

if TYPE_CHECKING:
    from trio.testing import MockClock

    from dsh.hooks import Next, live
    from dsh.wire import StoredEvent


USER = records.UserCause()


@pytest.mark.holds("TC14", "IN18", "F7", "CR06", "case-032", "M14")
async def test_contexts_and_steering_follow_after_all_results_in_model_order(
    autojump_clock: MockClock,
) -> None:
    async def body(run: live.ToolRun) -> str:
        await trio.sleep({"a": 3, "b": 1, "c": 2}[run.call_id])
        run.defer_context(user_message(f"context of {run.call_id}"))
        return run.call_id

    tool = define_tool(
        name="p",
        description="p",
        args=NoArgs,
        output=str,
        execute=lambda args, run: body(run),
        execution_mode="parallel",
    )
    names = ("a", "b", "c")
    reply = calls(*(call("p", call_id=name) for name in names))
    async with open_test_house(replies=[reply, says("b")]) as house:
        house.tools.register(house.ctx, tool)
        handle = await house.agent()
        house.ctx.on(ev.tool.CALL)(
            lambda event: (
                handle.agent.steer(user_message("steered")) if event.data.call_id == "b" else None
            )
        )
        await handle.agent.ask(user_message("go"))
        roles = [m.role for m in house.model.requests[1].messages]
        assert roles == [
            "user",
            "assistant",
            "tool",
            "tool",
            "tool",
            "user",
            "user",
            "user",
            "user",
        ]
        texts = [
            block.text
            for m in house.model.requests[1].messages[5:]
            for block in m.content
            if isinstance(block, records.TextBlock)
        ]
        assert texts == ["steered", *(f"context of {name}" for name in names)]


@pytest.mark.holds("TC17", "F8")
async def test_a_cancel_during_an_ordered_pre_execute_starts_no_sibling() -> None:
    ran: list[str] = []

    async def body(run: live.ToolRun) -> str:
        ran.append(run.call_id)
        return "x"

    reply = calls(*(call("t", call_id=name) for name in ("a", "b", "c")))
    async with open_test_house(replies=[reply]) as house:
        house.tools.register(house.ctx, simple_tool("t", body))
        handle = await house.agent()

        @house.ctx.on(ev.tools.PRE_EXECUTE)
        async def pre(
            payload: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
        ) -> ev.tools.PreExecuteDecision:
            if payload.exec.call_id == "b":
                handle.agent.cancel(USER)
            return await call_next()

        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.AbortedTurnEnd(reason=USER)
        assert ran == ["a"]
        assert [one.message.tool_call_id for one in house.results(handle)] == [
            "a",
            "b",
            "c",
        ]
        codes = [r.error.code if r.error else None for r in house.results(handle)]
        assert codes == [None, "ABORTED_BEFORE_DISPATCH", "ABORTED_BEFORE_DISPATCH"]


@pytest.mark.holds("TC19", "F8")
async def test_a_cancel_in_a_parallel_group_never_reaches_the_barrier(
    autojump_clock: MockClock,
) -> None:
    watch = OverlapWatch()
    reply = calls(timed_call("p", 5, "a"), timed_call("p", 5, "b"), timed_call("x", 1, "c"))
    async with open_test_house(replies=[reply]) as house:
        house.tools.register(house.ctx, watch.tool("p", "parallel"))
        house.tools.register(house.ctx, watch.tool("x", "exclusive"))
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await trio.sleep(1)
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        assert "+c" not in watch.log
        codes = [r.error.code for r in house.results(handle) if r.error]
        assert codes == ["ABORTED", "ABORTED", "ABORTED_BEFORE_DISPATCH"]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("F10", "I6", "M13")
async def test_a_log_that_refuses_a_result_fails_the_turn_with_conservative_results() -> None:
    async def body(run: live.ToolRun) -> str:
        return "fine"

    reply = calls(*(call("t", call_id=name) for name in ("a", "b", "c")))
    async with open_test_house(replies=[reply, says("later")]) as house:
        house.tools.register(house.ctx, simple_tool("t", body))
        handle = await house.agent()

        def apply(state: int, event: StoredEvent) -> int:
            data = event.data
            match data:
                case ev.tool.Result(message=records.ToolResultMessage(is_error=False) as message):
                    if message.tool_call_id == "b":
                        raise ValueError("refused")
                case _:
                    pass
            return state

        house.sessions.project(house.ctx, Projection(key="veto", init=lambda: 0, apply=apply))
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "refused" in outcome.reason.error.message
        codes = [r.error.code if r.error else None for r in house.results(handle)]
        assert codes == [None, "TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"]
        assert broken_laws(house.session(handle)) == []
        assert (await handle.agent.ask(user_message("go on"))).text == "later"


@pytest.mark.holds("F5", "F10", "I6", "M14")
async def test_a_refused_result_does_not_let_later_ones_overtake_it() -> None:
    """The bodies overlap; what the second and third came to is known, and stands behind."""

    async def body(args: NoArgs, run: live.ToolRun) -> str:
        return "fine"

    reply = calls(*(call("t", call_id=name) for name in ("a", "b", "c")))
    async with open_test_house(replies=[reply, says("later")]) as house:
        tool = define_tool(
            name="t", description="", args=NoArgs, output=str, execute=body,
            execution_mode="parallel",
        )  # fmt: skip
        house.tools.register(house.ctx, tool)
        handle = await house.agent()

        def apply(state: int, event: StoredEvent) -> int:
            match event.data:
                case ev.tool.Result(message=message, error=None) if message.tool_call_id == "a":
                    raise ValueError("refused")
                case _:
                    return state

        house.sessions.project(house.ctx, Projection(key="veto", init=lambda: 0, apply=apply))
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        found = [
            (r.message.tool_call_id, r.error.code if r.error else None)
            for r in house.results(handle)
        ]
        assert found == [("a", "TOOL_OUTCOME_UNKNOWN"), ("b", None), ("c", None)]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("case-064")
async def test_one_failing_body_of_several_loses_nobody_elses_result(
    autojump_clock: MockClock,
) -> None:
    class HostileError(Exception):
        @override
        def __str__(self) -> str:
            raise RuntimeError

    async def body(run: live.ToolRun) -> str:
        if run.call_id == "a":
            await trio.sleep(0.2)
            return "written"
        await trio.sleep(0.05)
        raise {
            "b": ValueError("x"),
            "c": ExceptionGroup("several", [ValueError("y"), KeyError("z")]),
            "d": HostileError(),
        }[run.call_id]

    tool = define_tool(
        name="p",
        description="p",
        args=NoArgs,
        output=str,
        execute=lambda args, run: body(run),
        execution_mode="parallel",
    )
    reply = calls(*(call("p", call_id=name) for name in "abcd"))
    async with open_test_house(replies=[reply, says("on")]) as house:
        house.tools.register(house.ctx, tool)
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.text == "on"
        assert [one.message.tool_call_id for one in house.results(handle)] == list("abcd")
        assert [r.message.is_error for r in house.results(handle)] == [
            False,
            True,
            True,
            True,
        ]
        assert all(r.message.content for r in house.results(handle))


@pytest.mark.holds("case-030")
async def test_two_calls_with_one_id_get_ids_of_their_own_and_both_run() -> None:
    ran: list[str] = []

    async def body(run: live.ToolRun) -> str:
        ran.append(run.call_id)
        return run.call_id

    reply = calls(call("t", call_id="same"), call("t", call_id="same"))
    async with open_test_house(replies=[reply, says("b")]) as house:
        house.tools.register(house.ctx, simple_tool("t", body))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        assert ran == ["same", "same-2"]
        assert [one.message.tool_call_id for one in house.results(handle)] == ran
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("TO01", "TO02", "D16")
@pytest.mark.parametrize("names", [("b", "a", "C"), ("C", "b", "a")])
async def test_the_header_has_tools_in_canonical_order(names: tuple[str, ...]) -> None:
    async def body(run: live.ToolRun) -> str:
        return ""

    async with open_test_house(replies=[says("x")]) as house:
        for name in names:
            house.tools.register(house.ctx, simple_tool(name, body))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        header = house.session(handle).request_header()
        assert header is not None
        assert [tool.name for tool in header.tools] == ["C", "a", "b"]


@pytest.mark.holds("CE13", "F6")
async def test_presentation_meta_is_stored_with_the_result() -> None:
    async def execute(args: NoArgs, run: live.ToolRun) -> str:
        return "plain"

    def lines(args: NoArgs, value: str) -> object:
        return {"lines": len(value.splitlines())}

    tool = define_tool(
        name="t",
        description="t",
        args=NoArgs,
        output=typed_output(str, meta=lines),
        execute=execute,
    )
    async with open_test_house(replies=[calls(call("t")), says("b")]) as house:
        house.tools.register(house.ctx, tool)
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        [result] = house.results(handle)
        assert result.meta == {"lines": 1}


@pytest.mark.holds("TC07", "TC08", "ST02")
def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=">= 1"):
        AgentLoopConfig(max_parallel_tool_calls=0)


@pytest.mark.holds("ST03", "ST04")
def test_only_the_cap_is_a_live_setting() -> None:
    import attrs

    live_fields = [
        field.name for field in attrs.fields(AgentLoopConfig) if field.metadata.get("live")
    ]
    assert live_fields == ["max_parallel_tool_calls"]
    assert AgentLoopConfig().max_parallel_tool_calls == 10
