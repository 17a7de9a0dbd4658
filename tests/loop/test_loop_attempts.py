"""Attempts: anchors, failures and recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.llm import ResolvedModel, ScriptEntry
from dsh.testing import ScriptedReplies, TestHouse, broken_laws, open_test_house, says

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.agent import AgentHandle
    from dsh.hooks import Next
    from dsh.hooks.live import LlmRequest


BUSY = records.LlmFailure(message="busy", code="SERVER", status=503, request_id="r-1")


FAILS = ScriptEntry(text="half an answer", error=BUSY)


def anchors(house: TestHouse, handle: AgentHandle) -> list[tuple[int, ev.assistant.Message]]:
    return [
        (event.seq, event.data)
        for event in house.session(handle).events
        if isinstance(event.data, ev.assistant.Message)
    ]


def chunk_seqs(house: TestHouse, handle: AgentHandle) -> list[int]:
    return [
        event.seq
        for event in house.session(handle).events
        if isinstance(event.data, ev.assistant.Chunk)
    ]


@pytest.mark.holds("E2", "E3", "LP18", "CR01")
async def test_an_anchor_cites_exactly_the_chunks_of_its_attempt() -> None:
    usage = records.Usage(input_tokens=5, output_tokens=2)
    async with open_test_house(replies=[ScriptEntry(text="one two", usage=usage)]) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        [(seq, anchor)] = anchors(house, handle)
        event = house.session(handle).events[seq]
        assert event.source_event_seqs == tuple(chunk_seqs(house, handle))
        assert event.surface_op == records.Append()
        assert anchor.usage == usage
        assert not anchor.interrupted
        assert anchor.message.source == records.ModelSource(provider="test", model="model-1")


@pytest.mark.holds("CR01", "E3")
async def test_replay_state_stands_in_the_source_beside_the_content() -> None:
    async def reply(request: LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        yield records.BlockStartChunk(index=0, block_type="text")
        yield records.TextDeltaChunk(index=0, text="hi")
        yield records.BlockEndChunk(index=0, block=records.TextBlock(text="hi"))
        envelope = records.ReplayEnvelope(response={"id": 7}, blocks=("x",))
        yield records.FinishChunk(reason=records.StopFinish(), replay_state=envelope)

    async with open_test_house(replies=[reply]) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        [(_, anchor)] = anchors(house, handle)
        source = anchor.message.source
        assert isinstance(source, records.ModelSource)
        assert source.replay_state == {"response": {"id": 7}, "blocks": ("x",)}


@pytest.mark.holds("LP38", "LP39", "E3")
@pytest.mark.parametrize("finish", [records.StopFinish(), records.MaxTokensFinish()])
async def test_an_empty_reply_gets_an_anchor_that_derives_no_message(
    finish: records.FinishReason,
) -> None:
    async def reply(request: LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        yield records.FinishChunk(reason=finish)

    async with open_test_house(replies=[reply]) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        [(_, anchor)] = anchors(house, handle)
        assert anchor.message.content == ()
        assert anchor.usage is None
        assert [m.role for m in house.session(handle).derive_messages()] == ["user"]


@pytest.mark.holds("CR17", "CE10", "E8")
async def test_a_providers_failure_ends_the_turn_with_its_facts() -> None:
    async with open_test_house(replies=[FAILS]) as house:
        handle = await house.agent()
        told: list[ev.agent.Error] = []
        house.ctx.on(ev.agent.ERROR)(told.append)
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.ErrorTurnEnd(error=BUSY)
        assert [(n.turn, n.step, n.messages) for n in told] == [(1, 1, ())]
        assert anchors(house, handle) == []
        assert chunk_seqs(house, handle) != []
        assert house.names(handle).count(ev.step.END.name) == 1


@pytest.mark.holds("CR18")
async def test_an_aborted_finish_that_nobody_here_asked_for_is_a_failure() -> None:
    failure = records.LlmFailure(message="gateway gave up", code="ABORTED")

    async def reply(request: LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        yield records.FinishChunk(reason=records.AbortedFinish(failure=failure))

    async with open_test_house(replies=[reply]) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.ErrorTurnEnd(error=failure)


@pytest.mark.holds("E9", "E10", "CA21", "C13", "M8")
async def test_a_retry_repeats_the_request_and_only_its_own_chunks_are_cited() -> None:
    async with open_test_house(replies=[FAILS, says("whole")]) as house:
        handle = await house.agent()
        seen = house.retrying()
        counts = {"assemble": 0, "pre": 0, "request": 0}

        async def assemble(p: ev.system_prompt.Assemble, call_next: Next[object]) -> object:
            counts["assemble"] += 1
            return await call_next()

        async def pre(p: ev.agent.PreStep, call_next: Next[object]) -> object:
            counts["pre"] += 1
            return await call_next()

        async def request(p: ev.agent.Request, call_next: Next[object]) -> object:
            counts["request"] += 1
            return await call_next()

        house.ctx.on(ev.system_prompt.ASSEMBLE)(assemble)  # type: ignore[arg-type]
        house.ctx.on(ev.agent.PRE_STEP)(pre)  # type: ignore[arg-type]
        house.ctx.on(ev.agent.REQUEST)(request)  # type: ignore[arg-type]
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.text == "whole"
        assert counts == {"assemble": 1, "pre": 1, "request": 2}
        assert [(e.provider, e.failure, e.turn, e.step) for e in seen] == [("test", BUSY, 1, 1)]
        assert seen[0].retry_policy == records.NormalRetryPolicy()
        names = house.names(handle)
        assert names.count(ev.user.MESSAGE.name) == 1
        assert names.count(ev.step.START.name) == 1
        assert names.count(ev.request.HEADER.name) == 1
        [(seq, _)] = anchors(house, handle)
        cited = house.session(handle).events[seq].source_event_seqs
        assert cited is not None
        assert set(cited) < set(chunk_seqs(house, handle))
        assert min(cited) > chunk_seqs(house, handle)[2]
        first, second = house.model.requests
        assert first.messages == second.messages
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("NEW-13", "E1")
async def test_frames_of_failed_attempts_end_as_aborted() -> None:
    async with open_test_house(replies=[FAILS, says("whole")]) as house:
        handle = await house.agent()
        house.retrying()
        ends: list[str] = []

        def watch(notice: ev.agent.AssistantStream) -> None:
            if isinstance(notice.frame, records.EndFrame):
                ends.append(notice.frame.outcome.kind)

        house.ctx.on(ev.agent.ASSISTANT_STREAM)(watch)
        await handle.agent.ask(user_message("go"))
        assert ends == ["aborted", "committed"]


@pytest.mark.holds("NEW-13")
async def test_no_frame_is_emitted_when_dispatch_never_began() -> None:
    async with open_test_house() as house:
        handle = await house.agent(options=records.AgentOptions())
        frames: list[object] = []
        house.ctx.on(ev.agent.ASSISTANT_STREAM)(frames.append)
        await handle.agent.ask(user_message("go"))
        assert frames == []


@pytest.mark.holds("NEW-7", "C13", "D6", "M25")
async def test_a_recovery_that_replaces_history_is_seen_by_the_retry_at_the_head() -> None:
    model = ScriptedReplies([says("old"), FAILS, says("whole")])
    async with open_test_house(model=model) as house:
        prompts = ["one"]
        house.prompt.section(house.ctx, "persona", lambda context: prompts[0])
        handle = await house.agent()
        await handle.agent.ask(user_message("first"))
        session = house.session(handle)
        prompts[0] = "two"
        model.resolved = ResolvedModel(system_prompt_update="in-history")

        async def compact(
            error: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            nodes = list(session.surface.nodes)
            summary = user_message("summary")
            session.append(
                ev.user.Message(message=summary),
                surface=records.Replace(start_seq=nodes[1], end_seq=nodes[2]),
                sources=(nodes[1], nodes[2]),
            )
            return ev.agent.Retry()

        house.ctx.on(ev.agent.REQUEST_ERROR)(compact)
        outcome = await handle.agent.ask(user_message("second"))
        assert outcome.text == "whole"
        failed, retried = house.model.requests[1:]
        assert [m.role for m in failed.messages] == [
            "system",
            "user",
            "assistant",
            "system",
            "user",
        ]
        # The tail prompt was emptied and the head rewritten; the user message was admitted once.
        assert [m.role for m in retried.messages] == ["system", "user", "user"]
        head = retried.messages[0]
        assert isinstance(head, records.SystemMessage)
        assert head.content == (records.TextBlock(text="two"),)
        reasons = [
            (event.data.reason, event.data.starts_series)
            for event in session.events
            if isinstance(event.data, ev.request.Header)
        ]
        assert reasons == [("initial", False), ("series", False)]


@pytest.mark.holds("RE01", "E8")
async def test_a_raising_stream_listener_is_not_offered_for_recovery() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        seen = house.retrying(times=5)
        from dsh.llm import map_chunks

        def fail(chunk: records.StreamChunk) -> records.StreamChunk:
            raise RuntimeError("listener")

        house.ctx.on(ev.llm.STREAM)(map_chunks(fail))
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "listener" in outcome.reason.error.message
        assert seen == []


@pytest.mark.holds("RE04", "CE15", "E9")
async def test_recovery_that_raises_or_declines_is_terminal() -> None:
    async with open_test_house(replies=[FAILS, FAILS]) as house:
        handle = await house.agent()
        raising = [True]

        async def recover(
            error: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            if raising:
                raising.clear()
                raise ValueError("recovery broke")
            return await call_next()

        house.ctx.on(ev.agent.REQUEST_ERROR)(recover)
        first = await handle.agent.ask(user_message("go"))
        assert isinstance(first.reason, records.ErrorTurnEnd)
        assert "recovery broke" in first.reason.error.message
        second = await handle.agent.ask(user_message("again"))
        assert second.reason == records.ErrorTurnEnd(error=BUSY)
        assert len(house.model.requests) == 2


@pytest.mark.holds("RE03", "CE09", "E9", "M9")
async def test_a_cancel_beats_a_retry_that_was_decided() -> None:
    async with open_test_house(replies=[FAILS, says("never")]) as house:
        handle = await house.agent()

        async def recover(
            error: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            handle.agent.cancel(records.UserCause())
            return ev.agent.Retry()

        house.ctx.on(ev.agent.REQUEST_ERROR)(recover)
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.AbortedTurnEnd(reason=records.UserCause())
        assert len(house.model.requests) == 1
        # E7: the failed stream is never finalised by the cancel.
        assert anchors(house, handle) == []


@pytest.mark.holds("CE19")
async def test_a_failure_after_usage_closes_the_step_once() -> None:
    usage = records.Usage(input_tokens=5, output_tokens=0)
    empty = records.LlmFailure(message="nothing came", code="EMPTY_RESPONSE")
    async with open_test_house(replies=[ScriptEntry(usage=usage, error=empty)]) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.ErrorTurnEnd(error=empty)
        assert house.names(handle).count(ev.step.END.name) == 1
