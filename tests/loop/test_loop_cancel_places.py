"""Cancellation: what is kept of a reply, and every place where a cancel can strike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.testing import TestHouse, broken_laws, call, calls, open_test_house, says, stalls
from dsh.testing.tool_parts import simple_tool

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import Logged, Next, live


USER = records.UserCause()


ABORTED = records.AbortedTurnEnd(reason=USER)


def text(value: str, index: int = 0) -> records.TextDeltaChunk:
    return records.TextDeltaChunk(index=index, text=value)


def anchor(house: TestHouse, handle: AgentHandle) -> ev.assistant.Message | None:
    found = [
        event.data
        for event in house.session(handle).events
        if isinstance(event.data, ev.assistant.Message)
    ]
    return found[-1] if found else None


@pytest.mark.holds("E6", "CA17", "LP33", "M7")
async def test_what_the_user_could_read_is_kept_as_an_interrupted_reply() -> None:
    usage = records.Usage(input_tokens=3, output_tokens=1)
    stream = stalls(text("half an "), text("answer"), records.UsageChunk(usage=usage))
    async with open_test_house(replies=[stream, says("a")]) as house:
        handle = await house.agent()
        frames: list[records.AssistantStreamFrame] = []
        house.ctx.on(ev.agent.ASSISTANT_STREAM)(lambda n: frames.append(n.frame))
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        kept = anchor(house, handle)
        assert kept is not None
        assert kept.interrupted
        assert kept.message.content == (records.TextBlock(text="half an answer"),)
        assert kept.usage == usage
        names = house.names(handle)
        assert names[-3:] == [ev.assistant.MESSAGE.name, ev.step.END.name, ev.turn.END.name]
        end = frames[-1]
        assert isinstance(end, records.EndFrame)
        assert end.outcome.kind == "committed"
        await handle.agent.ask(user_message("next"))
        assert [m.role for m in house.model.requests[1].messages] == ["user", "assistant", "user"]


@pytest.mark.holds("E6", "CA18", "CA19", "CA22", "M7")
@pytest.mark.parametrize(
    ("chunks", "kept"),
    [
        ((records.ReasoningDeltaChunk(index=0, text="hm"),), (records.ReasoningBlock(text="hm"),)),
        (
            (
                text("say"),
                records.ToolCallDeltaChunk(index=1, id="c", name="t", arguments_delta='{"a'),
            ),
            (records.TextBlock(text="say"),),
        ),
        ((text("  \n"),), None),
        ((), None),
    ],
    ids=["reasoning", "half a call", "blank", "nothing"],
)
async def test_the_prefix_keeps_text_and_reasoning_and_never_a_call(
    chunks: tuple[records.StreamChunk, ...], kept: tuple[records.ContentBlock, ...] | None
) -> None:
    async with open_test_house(replies=[stalls(*chunks)]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        found = anchor(house, handle)
        assert (None if found is None else found.message.content) == kept
        assert house.ends(handle) == [ABORTED]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("E7")
async def test_a_cancel_during_recovery_never_finalises_the_failed_stream(
    autojump_clock: MockClock,
) -> None:
    from dsh.llm import ScriptEntry

    failure = records.LlmFailure(message="busy", code="SERVER")
    async with open_test_house(replies=[ScriptEntry(text="seen", error=failure)]) as house:
        handle = await house.agent()

        async def wait(
            error: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            await trio.sleep(60)
            return ev.agent.Retry()

        house.ctx.on(ev.agent.REQUEST_ERROR)(wait)
        handle.agent.followup(user_message("go"))
        await trio.sleep(1)
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        assert anchor(house, handle) is None
        assert house.ends(handle) == [ABORTED]


@pytest.mark.holds("CA33", "G2", "AI02", "G5")
@pytest.mark.parametrize("where", ["assembly", "pre-step", "request", "stopping", "tool"])
async def test_each_extension_point_gets_the_one_signal_of_its_turn(where: str) -> None:
    from dsh.agent import initiator

    seen: list[tuple[str, live.TurnSignal | None, str | None]] = []
    async with open_test_house(replies=[calls(call("t")), says("a")]) as house:
        handle = await house.agent()

        async def point(name: str, signal: live.TurnSignal | None) -> None:
            agent = initiator()
            seen.append((name, signal, None if agent is None else agent.id))
            if name == where and signal is not None:
                await signal.wait()
                signal.raise_if_set()

        async def assemble(p: ev.system_prompt.Assemble, call_next: Next[object]) -> object:
            await point("assembly", p.context.signal)
            return await call_next()

        async def pre(p: ev.agent.PreStep, call_next: Next[object]) -> object:
            await point("pre-step", p.signal)
            return await call_next()

        async def request(p: ev.agent.Request, call_next: Next[object]) -> object:
            await point("request", p.signal)
            return await call_next()

        async def stopping(p: ev.agent.TurnStopping) -> None:
            await point("stopping", p.signal)

        async def body(run: live.ToolRun) -> str:
            await point("tool", run.signal)
            return "x"

        house.ctx.on(ev.system_prompt.ASSEMBLE)(assemble)  # type: ignore[arg-type]
        house.ctx.on(ev.agent.PRE_STEP)(pre)  # type: ignore[arg-type]
        house.ctx.on(ev.agent.REQUEST)(request)  # type: ignore[arg-type]
        house.ctx.on(ev.agent.TURN_STOPPING)(stopping)
        house.tools.register(house.ctx, simple_tool("t", body))
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        assert seen[-1][0] == where
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        assert house.ends(handle) == [ABORTED]
        assert len({id(signal) for _, signal, _ in seen}) == 1
        assert {agent for _, _, agent in seen} == {"s"}
        assert initiator() is None
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("CA23", "CA24", "G6")
@pytest.mark.parametrize("dispose", [False, True])
async def test_a_cancel_by_a_step_start_listener_closes_the_step_without_a_request(
    *, dispose: bool
) -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        session = house.session(handle)

        @house.ctx.on(ev.step.START)
        def cancel(event: Logged[ev.step.Start]) -> None:
            if dispose:
                nursery.start_soon(handle.aclose)
            handle.agent.cancel(records.DisposedCause() if dispose else USER)

        async with trio.open_nursery() as nursery:
            handle.agent.followup(user_message("go"))
            await handle.agent.when_idle()
        names = [event.type for event in session.events]
        assert names[-3:] == [ev.step.START.name, ev.step.END.name, ev.turn.END.name]
        assert house.model.requests == []


@pytest.mark.holds("CR33", "CR34", "CR35", "CR36", "CR37", "G6")
@pytest.mark.parametrize("dispose", [False, True])
@pytest.mark.parametrize("where", ["assembly", "pre-step"])
async def test_a_cancel_before_the_step_closes_a_turn_without_one(
    where: str, *, dispose: bool
) -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        session = house.session(handle)

        async def hang(payload: object, call_next: Next[object]) -> object:
            await trio.sleep_forever()

        if where == "assembly":
            house.ctx.on(ev.system_prompt.ASSEMBLE)(hang)  # type: ignore[arg-type]
        else:
            house.ctx.on(ev.agent.PRE_STEP)(hang)  # type: ignore[arg-type]
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        if dispose:
            await handle.aclose()
        else:
            handle.agent.cancel(USER)
            await handle.agent.when_idle()
        names = [event.type for event in session.events]
        assert ev.step.START.name not in names
        cause = records.DisposedCause() if dispose else USER
        assert session.events[-1].data == ev.turn.End(
            turn=1, reason=records.AbortedTurnEnd(reason=cause)
        )
        assert house.model.requests == []


@pytest.mark.holds("G6", "F8", "TC16")
async def test_a_cancel_by_an_observer_of_the_reply_skips_its_calls_and_pairs_them() -> None:
    ran: list[str] = []

    async def body(run: live.ToolRun) -> str:
        ran.append(run.call_id)
        return "x"

    async with open_test_house(replies=[calls(call("t"), call("t"))]) as house:
        house.tools.register(house.ctx, simple_tool("t", body))
        handle = await house.agent()
        house.ctx.on(ev.assistant.MESSAGE)(lambda event: handle.agent.cancel(USER))
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == ABORTED
        assert ran == []
        results = [
            event.data
            for event in house.session(handle).events
            if isinstance(event.data, ev.tool.Result)
        ]
        assert [r.error.code for r in results if r.error] == ["ABORTED_BEFORE_DISPATCH"] * 2
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("CE06")
async def test_disposal_while_streaming_is_recorded_as_disposed() -> None:
    async with open_test_house(replies=[stalls(text("seen"))]) as house:
        handle = await house.agent()
        session = house.session(handle)
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        await handle.aclose()
        assert session.events[-1].data == ev.turn.End(
            turn=1, reason=records.AbortedTurnEnd(reason=records.DisposedCause())
        )
        assert any(isinstance(e.data, ev.assistant.Message) for e in session.events)


@pytest.mark.holds("F9")
async def test_contexts_of_a_drained_call_stay_parked_after_the_cancel() -> None:
    async def body(run: live.ToolRun) -> str:
        run.defer_context(user_message("context", id="context"))
        handle.agent.inject(user_message("before", id="before"))
        handle.agent.cancel(USER)
        return "done"

    async with open_test_house(replies=[calls(call("t"))]) as house:
        house.tools.register(house.ctx, simple_tool("t", body))
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == ABORTED
        await wait_all_tasks_blocked()
        assert [m.id for m in handle.agent.pending("next-step")] == ["context"]
        assert handle.agent.turn == 1
