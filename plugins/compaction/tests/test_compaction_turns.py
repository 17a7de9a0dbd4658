"""Compaction in the real loop: pressure, overflow, failures, cancellation, locks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.catalog import records
from dsh.llm import ScriptEntry
from dsh.seams.compaction import COMPACTION, CompactionEngine
from dsh.testing import (
    MemoryStore,
    Talker,
    TestHouse,
    broken_laws,
    call,
    calls,
    open_test_house,
    says,
)
from dsh_plugins.compaction import compaction
from dsh_plugins.compaction.catalog import CompactionConfig
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from dsh.agent import AgentHandle
    from dsh.hooks import Next, live
    from dsh.tools import Tool

Answer: TypeAlias = "ScriptEntry | Callable[[live.LlmRequest], AsyncGenerator[records.StreamChunk]]"

ROUTE: Final = records.AgentOptions(provider="m", model="m-1")
FAILURE: Final = records.LlmFailure(message="prompt is too long", code="CONTEXT_WINDOW_EXCEEDED")
TOO_LONG: Final = ScriptEntry(error=FAILURE)
SUMMARY: Final = says("They asked for work. It is half done.")


def talker(
    *replies: Answer, window: int | None = 4000, summaries: tuple[Answer, ...] = (SUMMARY,)
) -> Talker:
    return Talker(*replies, window=window, summaries=summaries)


@frozen
class Size:
    """How much the tool answers."""

    size: int = 2000


async def read(args: Size, _run: live.ToolRun) -> str:
    """A tool with long output."""
    return "x" * args.size


READ: Tool = define_tool(name="read", description="Reads", args=Size, output=str, execute=read)


@asynccontextmanager
async def running(
    model: Talker,
    config: CompactionConfig | None = None,
    *,
    store: MemoryStore | None = None,
) -> AsyncGenerator[TestHouse]:
    async with open_test_house(plugins=[token_meter], tools=[READ], store=store) as house:
        house.llm.register(house.ctx, model, ("m",))
        await house.kernel.mount(compaction, config or CompactionConfig(), slot=7).ready()
        yield house


def reads(size: int = 2000) -> ScriptEntry:
    return calls(call("read", f'{{"size": {size}}}'))


def logged(house: TestHouse, handle: AgentHandle, *kinds: type) -> list[object]:
    return [e.data for e in house.session(handle).events if isinstance(e.data, kinds)]


def ends(house: TestHouse, handle: AgentHandle) -> list[ev.compaction.End]:
    events = house.session(handle).events
    return [e.data for e in events if isinstance(e.data, ev.compaction.End)]


def engine(house: TestHouse) -> CompactionEngine:
    found = house.ctx.get(COMPACTION)
    assert found is not None
    return found


def texts(request: live.LlmRequest) -> str:
    return "\n".join(
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, records.TextBlock)
    )


@pytest.mark.holds("CO1", "CO2", "CO6", "CO7")
async def test_under_pressure_the_older_part_becomes_a_summary() -> None:
    model = talker(*[reads()] * 8, says("done"))
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        outcome = await handle.agent.ask(user_message("Build the tower of 37 bricks."))
        assert outcome.reason == records.CompletedTurnEnd()
        (end,) = ends(house, handle)
        assert end.error is None
        assert end.tokens_before is not None
        assert end.tokens_after is not None
        assert end.tokens_before > 3000 > end.tokens_after
        assert end.prefix_tokens is not None
        assert end.turn == 1
        (start,) = logged(house, handle, ev.compaction.Start)
        assert isinstance(start, ev.compaction.Start)
        assert start.trigger == "pressure"
        # The summary's request begins as the conversation's own did, message by message.
        (asked,) = model.summarised
        shortened = next(at for at, one in enumerate(model.asked) if "<summary>" in texts(one))
        before, after = model.asked[shortened - 1], model.asked[shortened]
        same = asked.messages[:-1]
        assert len(same) > 4
        assert all(one is other for one, other in zip(same, before.messages, strict=False))
        assert asked.tools == before.tools
        assert asked.max_tokens == 500
        # The prompt is kept word for word, in the summary's own message.
        assert "It is half done." in texts(after)
        assert "Build the tower of 37 bricks." in texts(after)
        assert len(after.messages) < len(before.messages)
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("CO3")
async def test_cutting_results_alone_may_be_enough_and_needs_no_model() -> None:
    model = talker(reads(10_000), reads(100), says("done"))
    async with running(model, CompactionConfig(prune_threshold=4000, prune_head=1000)) as house:
        handle = await house.agent(options=ROUTE)
        model.window = 3000
        await handle.agent.ask(user_message("go"))
        assert model.summarised == []
        (note,) = logged(house, handle, ev.compaction.Prune)
        assert isinstance(note, ev.compaction.Prune)
        # What the model has not seen yet is whole; it is cut before the next request.
        assert "x" * 10_000 in texts(model.asked[1])
        assert "characters were taken out" in texts(model.asked[2])
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("CO8")
async def test_two_rounds_merge_and_the_facts_that_are_pinned_stay() -> None:
    model = talker(*[reads()] * 26, says("done"))
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        note = user_message(
            "Never touch blue.txt.",
            source=records.PluginSource(plugin="notes", data={"pinned": True}),
        )
        handle.agent.inject(note)
        await handle.agent.ask(user_message("Fact: the code is 4711."))
        assert len(model.summarised) >= 4
        for request in model.asked:
            assert texts(request).count("the code is 4711") == 1
            assert texts(request).count("Never touch blue.txt.") == 1
        # One summary stands for all the earlier ones.
        assert texts(model.asked[-1]).count("<summary>") == 1
        assert all(end.error is None for end in ends(house, handle))
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("CO9")
async def test_a_refused_request_is_shortened_once_and_sent_again() -> None:
    model = talker(*[reads()] * 3, TOO_LONG, says("done"), window=None)
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.text == "done"
        assert len(model.summarised) == 1
        assert len(model.asked[-1].messages) < len(model.asked[-2].messages)
        (start,) = logged(house, handle, ev.compaction.Start)
        assert isinstance(start, ev.compaction.Start)
        assert start.trigger == "overflow"
        assert len(logged(house, handle, ev.step.Start)) == 4


@pytest.mark.holds("CO9")
async def test_a_second_refusal_in_a_row_stands() -> None:
    model = talker(*[reads(8000)] * 5, TOO_LONG, TOO_LONG, says("never"), window=None)
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.ErrorTurnEnd(error=FAILURE)
        assert len(model.asked) == 7
        # A reply in between, or rest, makes the next refusal the first of its kind.
        model.replies[:] = [TOO_LONG, says("again")]
        assert (await handle.agent.ask(user_message("go on"))).text == "again"


@pytest.mark.holds("CO9", "case-044")
@pytest.mark.parametrize("code", ["INVALID_REQUEST", "RATE_LIMIT", "SERVER"])
async def test_other_refusals_start_no_compaction(code: str) -> None:
    other = ScriptEntry(error=records.LlmFailure(message="string too long", code=code))
    model = talker(*[reads()] * 3, other)
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        assert model.summarised == []
        assert logged(house, handle, ev.compaction.Start) == []


@pytest.mark.holds("CO9", "CO10")
async def test_one_message_that_is_too_long_is_an_event_with_a_reason_and_the_failure_stands() -> (
    None
):
    model = talker(TOO_LONG, says("never"), window=None)
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        outcome = await handle.agent.ask(user_message("word " * 5000))
        assert outcome.reason == records.ErrorTurnEnd(error=FAILURE)
        assert len(model.asked) == 1
        (end,) = ends(house, handle)
        assert end.error is not None
        assert "no progress" in end.error


BAD: Final = {
    "longer": (says("word " * 4000), "not smaller"),
    "blank": (says("  "), "empty"),
    "cut": (ScriptEntry(text="a", finish="max-tokens"), "cut off"),
    "calls": (reads(), "called a tool"),
    "fails": (ScriptEntry(error=records.LlmFailure(message="busy", code="SERVER")), "busy"),
    "empty": (ScriptEntry(), "empty"),
}


@pytest.mark.holds("CO10", "CO6")
@pytest.mark.parametrize("kind", BAD)
async def test_a_summary_that_cannot_be_used_changes_nothing_and_is_not_asked_for_at_every_step(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer, words = BAD[kind]
    model = talker(*[reads()] * 6, *[reads(10)] * 10, says("done"), summaries=(answer,))
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.text == "done"
        closed = ends(house, handle)
        # A fail and its repetition; then only after the conversation has grown noticeably.
        assert 2 <= len(closed) <= 12
        assert len(model.summarised) == len(closed) < 14
        assert all(words in (end.error or "") for end in closed)
        assert logged(house, handle, ev.compaction.Summary) == []
        assert house.session(handle).surface.generation == 0
        assert words in caplog.text
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("CO5")
async def test_a_summary_request_that_is_refused_as_too_long_is_made_smaller() -> None:
    model = talker(*[reads()] * 8, says("done"), summaries=(TOO_LONG, SUMMARY))
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        assert (await handle.agent.ask(user_message("go"))).text == "done"
        first, second, *_ = model.summarised
        assert len(second.messages) < len(first.messages)
        assert [end.error is None for end in ends(house, handle)][:2] == [False, True]


@pytest.mark.holds("CO7")
async def test_cancelling_while_the_summary_is_written_closes_the_bracket() -> None:
    async def stalls(_request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk]:
        yield records.BlockStartChunk(index=0, block_type="text")
        await trio.sleep_forever()

    model = talker(*[reads()] * 8, summaries=(stalls,))
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        handle.agent.followup(user_message("go"))
        while not model.summarised:
            await wait_all_tasks_blocked()
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()
        (end,) = ends(house, handle)
        assert end.error == "cancelled"
        assert house.session(handle).surface.generation == 0
        closed = logged(house, handle, ev.turn.End)[-1]
        assert isinstance(closed, ev.turn.End)
        assert closed.reason == records.AbortedTurnEnd(reason=records.UserCause())
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("CO1")
async def test_without_a_known_context_a_warning_comes_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = talker(*[reads(14_000)] * 9, says("done"), window=None)
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        assert caplog.text.count("context size of m/m-1 is unknown") == 1
        assert model.summarised == []


@pytest.mark.holds("CO1")
async def test_automatic_shortening_can_be_turned_off() -> None:
    model = talker(*[reads()] * 8, says("done"))
    async with running(model, CompactionConfig(auto=False)) as house:
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        assert model.summarised == []
        assert await engine(house).compact_now(handle.agent) is not None


@pytest.mark.holds("CO2")
async def test_another_model_may_write_the_summaries() -> None:
    model, writer = talker(*[reads()] * 8, says("done")), talker()
    config = CompactionConfig(summarization_provider="writer", summarization_model="w-1")
    async with running(model, config) as house:
        house.llm.register(house.ctx, writer, ("writer",))
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        assert model.summarised == []
        assert [request.model for request in writer.summarised] == ["w-1"]
        (made,) = logged(house, handle, ev.compaction.Summary)
        assert isinstance(made, ev.compaction.Summary)
        assert (made.provider, made.model) == ("writer", "w-1")


@pytest.mark.holds("CO12")
async def test_a_compacted_session_is_the_same_after_a_resume() -> None:
    store = MemoryStore()
    model = talker(*[reads()] * 12, says("done"), says("more"))
    async with running(model, store=store) as house:
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        before = house.session(handle).derive_messages()
        await handle.aclose()
    async with running(model, store=store) as house:
        again = await house.agents.resume("s", options=ROUTE)
        assert house.session(again).derive_messages() == before
        assert (await again.agent.ask(user_message("on"))).text == "more"


async def test_a_listener_after_it_sees_the_shortened_conversation() -> None:
    model = talker(*[reads()] * 8, says("done"))
    generations: list[int] = []
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)

        async def look(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            decision = await call_next()
            generations.append(house.session(step.agent).surface.generation)
            return decision

        house.ctx.on(ev.agent.PRE_STEP, prepend=True)(look)
        await handle.agent.ask(user_message("go"))
        assert generations[0] == 0
        assert generations[-1] >= 1
