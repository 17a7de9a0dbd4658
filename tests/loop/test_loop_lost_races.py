"""Races that were lost elsewhere before, each with the one order of events that loses it."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.kernel import FiberState, Plugin, open_kernel
from dsh.llm import ResolvedModel, ScriptEntry
from dsh.testing import (
    AtStep,
    broken_laws,
    call,
    calls,
    echo_tool,
    open_test_house,
    says,
    stalls,
)
from dsh.testing.house import OPTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.hooks import Logged, Next, live
    from dsh.testing import TestHouse

ROOT = Path(__file__).parents[2]
USER = records.UserCause()


# -- wakes and waiters ---------------------------------------------------------------------------


@pytest.mark.holds("M1")
async def test_a_wake_at_every_step_of_a_cancelled_turn_is_run_or_parked_and_never_lost() -> None:
    """Race 1: between the cancel and rest there is no moment that swallows a message."""

    async def run(step: int | None) -> int:
        async with open_test_house(replies=[stalls(), says("late")]) as house:
            handle = await house.agent()
            agent = handle.agent

            def send() -> None:
                agent.followup(user_message("late"))

            counter = AtStep(step, send)
            trio.lowlevel.add_instrument(counter)
            agent.followup(user_message("go"))
            await wait_all_tasks_blocked()
            counter.arm()
            agent.cancel(USER)
            await agent.when_idle()
            counter.disarm()
            trio.lowlevel.remove_instrument(counter)
            if counter.acted:
                assert agent.pending("next-turn") == ()
                assert len(house.model.requests) == 2
            assert broken_laws(house.session(handle)) == []
            return counter.count

    steps = await run(None)
    assert steps > 1
    for step in range(1, steps + 1):
        await run(step)


@pytest.mark.holds("C6", "M5")
async def test_an_idle_wake_whose_message_vanished_opens_and_closes_an_empty_turn() -> None:
    """Race 5, the other half: only a latched wake may be dropped."""
    async with open_test_house(replies=[says("never")]) as house:
        handle = await house.agent()
        agent = handle.agent

        @house.ctx.on(ev.agent.STATUS)
        def withdraw(notice: ev.agent.Status) -> None:
            if notice.status == "running":
                agent.remove("m")

        agent.followup(user_message("go", id="m"))
        await agent.when_idle()
        [end] = [e.data for e in house.session(handle).events if isinstance(e.data, ev.turn.End)]
        assert end.reason == records.CompletedTurnEnd()
        assert house.model.requests == []
        assert house.names(handle).count(ev.step.START.name) == 0


async def stalled(house: TestHouse) -> live.Agent:
    """An agent whose first turn streams nothing."""
    handle = await house.agent()
    handle.agent.followup(user_message("go"))
    await wait_all_tasks_blocked()
    return handle.agent


def asked(house: TestHouse) -> list[str]:
    """The text of the newest message of each request."""
    newest = [request.messages[-1].content for request in house.model.requests]
    return ["".join(getattr(block, "text", "") for block in content) for content in newest]


@pytest.mark.holds("B11", "G4")
async def test_a_second_cancel_that_keeps_the_inbox_keeps_the_wake_too() -> None:
    async with open_test_house(replies=[stalls(), says("a")]) as house:
        agent = await stalled(house)
        agent.cancel(USER)
        agent.followup(user_message("late"))
        agent.cancel(USER, keep_inbox=True)
        await agent.when_idle()
        assert asked(house) == ["go", "late"]


@pytest.mark.holds("B11", "B14")
async def test_a_second_cancel_takes_the_wake_back_and_an_injection_after_it_stays_parked() -> None:
    async with open_test_house(replies=[stalls(), says("a")]) as house:
        agent = await stalled(house)
        agent.cancel(USER)
        agent.followup(user_message("late"))
        agent.cancel(USER)
        agent.inject(user_message("aside", id="aside"))
        await agent.when_idle()
        assert asked(house) == ["go"]
        assert [message.id for message in agent.pending("next-step")] == ["aside"]


@pytest.mark.holds("B11", "B14")
async def test_an_injection_between_a_cancel_and_rest_is_no_prompt_and_wakes_nobody() -> None:
    async with open_test_house(replies=[stalls(), says("a")]) as house:
        agent = await stalled(house)
        agent.cancel(USER)
        agent.inject(user_message("aside", id="aside"))
        await agent.when_idle()
        assert asked(house) == ["go"]
        assert [message.id for message in agent.pending("next-step")] == ["aside"]


@pytest.mark.holds("B11", "G8")
async def test_nothing_that_is_sent_after_a_cancel_as_disposed_is_run() -> None:
    async with open_test_house(replies=[stalls(), says("a")]) as house:
        agent = await stalled(house)
        agent.cancel(records.DisposedCause())
        agent.followup(user_message("late", id="late"))
        agent.wake()
        await agent.when_idle()
        assert asked(house) == ["go"]
        assert [message.id for message in agent.pending("next-turn")] == ["late"]


@pytest.mark.holds("B11", "B12")
async def test_a_wake_between_a_cancel_and_rest_runs_what_was_kept() -> None:
    async with open_test_house(replies=[stalls(), says("a")]) as house:
        agent = await stalled(house)
        agent.followup(user_message("kept"))
        agent.cancel(USER, keep_inbox=True)
        agent.wake()
        await agent.when_idle()
        assert asked(house) == ["go", "kept"]


# -- requests ------------------------------------------------------------------------------------


@pytest.mark.holds("M25", "M27")
async def test_the_prompt_follows_the_prepared_route_and_not_the_one_logged_before() -> None:
    """Races 25 and 27: what the new route can do decides, also in the request that switches."""
    async with open_test_house(replies=[says("a"), says("b"), says("c")]) as house:
        words = ["one"]
        house.prompt.section(house.ctx, "word", lambda context: words[0])
        handle = await house.agent()
        session = house.session(handle)
        await handle.agent.ask(user_message("go"))
        words[0] = "two"
        house.model.resolved = ResolvedModel(system_prompt_update="in-history")
        await handle.agent.ask(user_message("go"))
        roles = [m.role for m in house.model.requests[1].messages]
        assert roles == ["system", "user", "assistant", "system", "user"]
        words[0] = "three"
        house.model.resolved = ResolvedModel()
        await handle.agent.ask(user_message("go"))
        roles = [m.role for m in house.model.requests[2].messages]
        assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
        texts = [m.content for m in house.model.requests[2].messages if m.role == "system"]
        assert texts == [(records.TextBlock(text="three"),)]
        headers = [e.data.reason for e in session.events if isinstance(e.data, ev.request.Header)]
        assert headers == ["initial", "series"]


@pytest.mark.holds("M10")
async def test_the_model_that_is_asked_is_the_one_the_prompt_was_assembled_for() -> None:
    """Race 10, the other half: nobody can change the choice between the two."""
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        house.prompt.section(house.ctx, "model", "{{model}}")
        refused: list[bool] = []

        @house.ctx.on(ev.agent.PRE_STEP)
        async def switch(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                step.agent.options.model = "model-2"  # type: ignore[misc]
            with pytest.raises(AttributeError):
                step.agent.options = attrs.evolve(OPTIONS, model="model-2")  # type: ignore[misc]
            refused.append(True)
            return await call_next()

        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        request = house.model.requests[0]
        seen = [b.text for b in request.messages[0].content if isinstance(b, records.TextBlock)]
        assert (request.model, seen) == ("model-1", ["model-1"])
        assert refused == [True]


@pytest.mark.holds("E6", "E10")
async def test_a_cancel_at_the_chunk_that_says_the_model_failed_keeps_nothing_of_it() -> None:
    failed = ScriptEntry(text="half", error=records.LlmFailure(message="busy", code="SERVER"))
    async with open_test_house(replies=[failed]) as house:
        handle = await house.agent()

        @house.ctx.on(ev.assistant.CHUNK)
        def cancel(event: Logged[ev.assistant.Chunk]) -> None:
            if isinstance(event.data.chunk, records.FinishChunk):
                handle.agent.cancel(USER)

        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.AbortedTurnEnd(reason=USER)
        assert ev.assistant.MESSAGE.name not in house.names(handle)
        assert [m.role for m in house.session(handle).derive_messages()] == ["user"]


@pytest.mark.holds("B12")
async def test_what_a_cancel_between_owed_steps_keeps_is_not_claimed() -> None:
    replies = [calls(call("echo", '{"text": "x"}'))]
    async with open_test_house(replies=replies, tools=[echo_tool()]) as house:
        handle = await house.agent()

        @house.ctx.on(ev.step.END)
        def cancel(event: Logged[ev.step.End]) -> None:
            handle.agent.inject(user_message("kept", id="kept"))
            handle.agent.cancel(USER, keep_inbox=True)

        await handle.agent.ask(user_message("go"))
        assert [message.id for message in handle.agent.pending("next-step")] == ["kept"]


async def test_no_chunk_is_logged_after_the_cancel_even_if_the_stream_never_waits() -> None:
    async def rushes(request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        yield records.BlockStartChunk(index=0, block_type="text")
        for word in ("one", "two", "three"):
            yield records.TextDeltaChunk(index=0, text=word)

    async with open_test_house(replies=[rushes]) as house:
        handle = await house.agent()

        @house.ctx.on(ev.assistant.CHUNK)
        def cancel(event: Logged[ev.assistant.Chunk]) -> None:
            if isinstance(event.data.chunk, records.TextDeltaChunk):
                handle.agent.cancel(USER)

        await handle.agent.ask(user_message("go"))
        events = house.session(handle).events
        chunks = [e.data.chunk for e in events if isinstance(e.data, ev.assistant.Chunk)]
        assert chunks[1:] == [records.TextDeltaChunk(index=0, text="one")]


# -- tools ----------------------------------------------------------------------------------------


@pytest.mark.holds("F15", "M15")
async def test_a_wrapper_can_neither_replace_the_signal_nor_take_the_body_out_of_it() -> None:
    """Race 15: a time limit around a body ends with the turn, and the body is waited for."""
    order: list[str] = []

    async with open_test_house(replies=[calls(call("echo", '{"text": "x"}'))]) as house:

        @house.ctx.on(ev.tools.EXECUTE)
        async def limit(
            payload: ev.tools.Execute, call_next: Next[live.ToolResult]
        ) -> live.ToolResult:
            with pytest.raises(AttributeError):
                payload.exec.signal = payload.exec.signal  # type: ignore[misc]
            with trio.fail_after(1000):
                return await call_next()

        @house.ctx.on(ev.tools.EXECUTE)
        async def hangs(
            payload: ev.tools.Execute, call_next: Next[live.ToolResult]
        ) -> live.ToolResult:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
                order.append("body over")
            raise AssertionError

        house.tools.register(house.ctx, echo_tool())

        @house.ctx.on(ev.tool.RESULT)
        def result(event: Logged[ev.tool.Result]) -> None:
            order.append("result")

        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        assert order == ["body over", "result"]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("C21", "M29")
async def test_a_cancelled_turn_keeps_the_error_that_a_tool_had_already() -> None:
    """Race 29: that the turn was cancelled and that the tool failed are two facts."""
    async with open_test_house(
        replies=[calls(call("nobody"), call("echo", '{"text": "x"}'))], tools=[echo_tool()]
    ) as house:
        handle = await house.agent()

        @house.ctx.on(ev.tool.RESULT)
        def cancel(event: Logged[ev.tool.Result]) -> None:
            handle.agent.cancel(USER)

        await handle.agent.ask(user_message("go"))
        events = house.session(handle).events
        results = [e.data.error for e in events if isinstance(e.data, ev.tool.Result)]
        codes = [None if error is None else error.code for error in results]
        assert codes == ["UNKNOWN_TOOL", "ABORTED_BEFORE_DISPATCH"]
        [end] = [e.data for e in events if isinstance(e.data, ev.turn.End)]
        assert end.reason == records.AbortedTurnEnd(reason=USER)


# -- the loader ------------------------------------------------------------------------------------

TOLD = [
    tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.glob("plugins/*/plugin.toml"))
]


@pytest.mark.holds("M28")
@pytest.mark.parametrize("told", TOLD, ids=lambda told: str(told["name"]))
async def test_what_the_loader_finds_waits_for_what_it_declares(told: dict[str, str]) -> None:
    """Race 28: the exported form of a plugin carries its dependencies."""
    found: object = EntryPoint(told["name"], told["entry"], "dsh.plugins").load()
    assert isinstance(found, Plugin)
    assert found.name == told["name"]
    needed = sorted(need.key.name for need in found.needs if need.mode == "required")
    async with open_kernel() as kernel:
        if needed:
            fiber = kernel.mount(found)
            await fiber.settled()
            assert fiber.state is FiberState.PENDING, f"{needed} are not there"
