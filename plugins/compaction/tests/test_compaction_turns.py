"""Compaction in the real loop: pressure, overflow, failures, cancellation, locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh import user_message
from dsh.catalog import records
from dsh.llm import ScriptEntry
from dsh.testing import MemoryStore, broken_laws, says, stalls
from dsh.testing.long_talks import ROUTE, SUMMARY, reads, talker, texts
from dsh_plugins.compaction.catalog import CompactionConfig

if TYPE_CHECKING:
    from dsh.hooks import Next
    from dsh.testing.long_talks import OpenTalks

FAILURE: Final = records.LlmFailure(message="prompt is too long", code="CONTEXT_WINDOW_EXCEEDED")
TOO_LONG: Final = ScriptEntry(error=FAILURE)


@pytest.mark.holds("CO1", "CO2", "CO6", "CO7")
async def test_under_pressure_the_older_part_becomes_a_summary(open_talks: OpenTalks) -> None:
    model = talker(*[reads()] * 8, says("done"))
    async with open_talks(model) as talks:
        handle = await talks.agent()
        outcome = await handle.agent.ask(user_message("Build the tower of 37 bricks."))
        assert outcome.reason == records.CompletedTurnEnd()
        (end,) = talks.house.logged(handle, ev.compaction.End)
        assert end.error is None
        assert end.tokens_before is not None
        assert end.tokens_after is not None
        assert end.tokens_before > 3000 > end.tokens_after
        assert end.prefix_tokens is not None
        assert end.turn == 1
        (start,) = talks.house.logged(handle, ev.compaction.Start)
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
        assert broken_laws(talks.house.session(handle)) == []


@pytest.mark.holds("CO3")
async def test_cutting_results_alone_may_be_enough_and_needs_no_model(
    open_talks: OpenTalks,
) -> None:
    model = talker(reads(10_000), reads(100), says("done"))
    async with open_talks(model, CompactionConfig(prune_threshold=4000, prune_head=1000)) as talks:
        handle = await talks.agent()
        model.window = 3000
        await handle.agent.ask(user_message("go"))
        assert model.summarised == []
        assert len(talks.house.logged(handle, ev.compaction.Prune)) == 1
        # What the model has not seen yet is whole; it is cut before the next request.
        assert "x" * 10_000 in texts(model.asked[1])
        assert "characters were taken out" in texts(model.asked[2])
        assert broken_laws(talks.house.session(handle)) == []


@pytest.mark.holds("CO8")
async def test_two_rounds_merge_and_the_facts_that_are_pinned_stay(open_talks: OpenTalks) -> None:
    model = talker(*[reads()] * 26, says("done"))
    async with open_talks(model) as talks:
        handle = await talks.agent()
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
        assert all(end.error is None for end in talks.house.logged(handle, ev.compaction.End))
        assert broken_laws(talks.house.session(handle)) == []


@pytest.mark.holds("CO9")
async def test_a_refused_request_is_shortened_once_and_sent_again(open_talks: OpenTalks) -> None:
    model = talker(*[reads()] * 3, TOO_LONG, says("done"), window=None)
    async with open_talks(model) as talks:
        handle = await talks.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.text == "done"
        assert len(model.summarised) == 1
        assert len(model.asked[-1].messages) < len(model.asked[-2].messages)
        (start,) = talks.house.logged(handle, ev.compaction.Start)
        assert start.trigger == "overflow"
        assert len(talks.house.logged(handle, ev.step.Start)) == 4


@pytest.mark.holds("CO9")
async def test_a_second_refusal_in_a_row_stands(open_talks: OpenTalks) -> None:
    model = talker(*[reads(8000)] * 5, TOO_LONG, TOO_LONG, says("never"), window=None)
    async with open_talks(model) as talks:
        handle = await talks.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.ErrorTurnEnd(error=FAILURE)
        assert len(model.asked) == 7
        # A reply in between, or rest, makes the next refusal the first of its kind.
        model.replies[:] = [TOO_LONG, says("again")]
        assert (await handle.agent.ask(user_message("go on"))).text == "again"


@pytest.mark.holds("CO9", "case-044")
@pytest.mark.parametrize("code", ["INVALID_REQUEST", "RATE_LIMIT", "SERVER"])
async def test_other_refusals_start_no_compaction(open_talks: OpenTalks, code: str) -> None:
    other = ScriptEntry(error=records.LlmFailure(message="string too long", code=code))
    model = talker(*[reads()] * 3, other)
    async with open_talks(model) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        assert model.summarised == []
        assert talks.house.logged(handle, ev.compaction.Start) == []


@pytest.mark.holds("CO9", "CO10")
async def test_one_message_that_is_too_long_is_an_event_with_a_reason_and_the_failure_stands(
    open_talks: OpenTalks,
) -> None:
    model = talker(TOO_LONG, says("never"), window=None)
    async with open_talks(model) as talks:
        handle = await talks.agent()
        outcome = await handle.agent.ask(user_message("word " * 5000))
        assert outcome.reason == records.ErrorTurnEnd(error=FAILURE)
        assert len(model.asked) == 1
        (end,) = talks.house.logged(handle, ev.compaction.End)
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
    open_talks: OpenTalks, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer, words = BAD[kind]
    model = talker(*[reads()] * 6, *[reads(10)] * 10, says("done"), summaries=(answer,))
    async with open_talks(model) as talks:
        handle = await talks.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.text == "done"
        closed = talks.house.logged(handle, ev.compaction.End)
        # A fail and its repetition; then only after the conversation has grown noticeably.
        assert 2 <= len(closed) <= 12
        assert len(model.summarised) == len(closed) < 14
        assert all(words in (end.error or "") for end in closed)
        assert talks.house.logged(handle, ev.compaction.Summary) == []
        assert talks.house.session(handle).surface.generation == 0
        assert words in caplog.text
        assert broken_laws(talks.house.session(handle)) == []


@pytest.mark.holds("CO5")
async def test_a_summary_request_that_is_refused_as_too_long_is_made_smaller(
    open_talks: OpenTalks,
) -> None:
    model = talker(*[reads()] * 8, says("done"), summaries=(TOO_LONG, SUMMARY))
    async with open_talks(model) as talks:
        handle = await talks.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "done"
        first, second, *_ = model.summarised
        assert len(second.messages) < len(first.messages)
        assert [end.error is None for end in talks.house.logged(handle, ev.compaction.End)][:2] == [
            False,
            True,
        ]


@pytest.mark.holds("CO7")
async def test_cancelling_while_the_summary_is_written_closes_the_bracket(
    open_talks: OpenTalks,
) -> None:
    model = talker(*[reads()] * 8, summaries=(stalls(),))
    async with open_talks(model) as talks:
        handle = await talks.agent()
        handle.agent.followup(user_message("go"))
        while not model.summarised:
            await wait_all_tasks_blocked()
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()
        (end,) = talks.house.logged(handle, ev.compaction.End)
        assert end.error == "cancelled"
        assert talks.house.session(handle).surface.generation == 0
        closed = talks.house.logged(handle, ev.turn.End)[-1]
        assert closed.reason == records.AbortedTurnEnd(reason=records.UserCause())
        assert broken_laws(talks.house.session(handle)) == []


@pytest.mark.holds("CO1")
async def test_without_a_known_context_a_warning_comes_once(
    open_talks: OpenTalks, caplog: pytest.LogCaptureFixture
) -> None:
    words, store = "context size of m/m-1 is unknown", MemoryStore()
    model = talker(*[reads(40_000)] * 9, says("done"), says("more"), window=None)
    async with open_talks(model, store=store) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        assert len(model.asked) == 10
        assert caplog.text.count(words) == 1
        assert model.summarised == []
        await handle.aclose()
    async with open_talks(model, store=store) as talks:
        again = await talks.resume()
        await again.agent.ask(user_message("on"))
        assert caplog.text.count(words) == 1
        # Another one that becomes long is worth a word again, here where none was said yet.
        model.replies[:] = [*[reads(40_000)] * 9, says("done")]
        other = await talks.house.agent("other", options=ROUTE)
        await other.agent.ask(user_message("go"))
        assert caplog.text.count(words) == 2


@pytest.mark.holds("CO1")
async def test_a_conversation_that_every_context_holds_brings_no_warning(
    open_talks: OpenTalks, caplog: pytest.LogCaptureFixture
) -> None:
    model = talker(*[reads(14_000)] * 9, says("done"), window=None)
    async with open_talks(model) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        assert len(model.asked) == 10
        assert "unknown" not in caplog.text


@pytest.mark.holds("CO1")
async def test_automatic_shortening_can_be_turned_off(open_talks: OpenTalks) -> None:
    model = talker(*[reads()] * 8, says("done"))
    async with open_talks(model, CompactionConfig(auto=False)) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        assert model.summarised == []
        assert await talks.engine.compact_now(handle.agent) is not None


@pytest.mark.holds("CO2")
async def test_another_model_may_write_the_summaries(open_talks: OpenTalks) -> None:
    model, writer = talker(*[reads()] * 8, says("done")), talker()
    config = CompactionConfig(summarization_provider="writer", summarization_model="w-1")
    async with open_talks(model, config) as talks:
        talks.house.llm.register(talks.house.ctx, writer, ("writer",))
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        assert model.summarised == []
        assert [request.model for request in writer.summarised] == ["w-1"]
        (made,) = talks.house.logged(handle, ev.compaction.Summary)
        assert (made.provider, made.model) == ("writer", "w-1")


@pytest.mark.holds("CO12")
async def test_a_compacted_session_is_the_same_after_a_resume(open_talks: OpenTalks) -> None:
    store = MemoryStore()
    model = talker(*[reads()] * 12, says("done"), says("more"))
    async with open_talks(model, store=store) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        before = talks.house.session(handle).derive_messages()
        await handle.aclose()
    async with open_talks(model, store=store) as talks:
        again = await talks.resume()
        assert talks.house.session(again).derive_messages() == before
        assert (await again.agent.ask(user_message("on"))).text == "more"


async def test_a_listener_after_it_sees_the_shortened_conversation(open_talks: OpenTalks) -> None:
    model = talker(*[reads()] * 8, says("done"))
    generations: list[int] = []
    async with open_talks(model) as talks:
        handle = await talks.agent()

        async def look(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            decision = await call_next()
            generations.append(talks.house.session(step.agent).surface.generation)
            return decision

        talks.house.ctx.on(ev.agent.PRE_STEP, prepend=True)(look)
        await handle.agent.ask(user_message("go"))
        assert generations[0] == 0
        assert generations[-1] >= 1
