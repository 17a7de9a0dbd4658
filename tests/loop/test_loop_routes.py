"""Routes and requests: preparation, adapter defaults, growth, prompts in the history."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.agent import is_loop_request, user_message
from dsh.catalog import records
from dsh.errors import LlmError
from dsh.llm import ResolvedModel, ScriptEntry
from dsh.testing import ScriptedReplies, open_test_house, says

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.hooks import Next
    from dsh.hooks.live import LlmRequest


BUSY = records.LlmFailure(message="busy", code="SERVER", status=503, request_id="r-1")


FAILS = ScriptEntry(text="half an answer", error=BUSY)


@pytest.mark.holds("D4", "E17")
async def test_a_route_without_an_adapter_fails_at_dispatch_with_no_policy() -> None:
    async with open_test_house() as house:
        options = records.AgentOptions(provider="nobody", model="m", reasoning_effort="high")
        handle = await house.agent(options=options)
        seen = house.retrying(times=0)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == "NO_ADAPTER"
        assert seen[0].retry_policy is None
        header = house.session(handle).request_header()
        assert header is not None
        assert header.config.reasoning_effort == "high"


@pytest.mark.holds("RR09", "D3")
async def test_a_rejected_preparation_keeps_structured_facts_and_admits_nothing() -> None:
    model = ScriptedReplies([says("a")], resolved=ResolvedModel(reasoning_efforts=("low",)))
    async with open_test_house(model=model) as house:
        options = records.AgentOptions(provider="test", model="m", reasoning_effort="huge")
        handle = await house.agent(options=options)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == "UNSUPPORTED_REASONING_EFFORT"
        names = house.names(handle)
        assert ev.user.MESSAGE.name not in names
        assert ev.system.MESSAGE.name not in names
        assert ev.request.HEADER.name not in names
        assert names.count(ev.step.START.name) == names.count(ev.step.END.name) == 1


@pytest.mark.holds("C11", "C12", "NEW-6")
@pytest.mark.parametrize("fails", [True, False], ids=["raise", "cancel"])
@pytest.mark.parametrize("where", ["request", "prepare"])
async def test_before_admission_nothing_becomes_history(where: str, *, fails: bool) -> None:
    async with open_test_house(replies=[says("later")]) as house:
        handle = await house.agent()
        errors: list[ev.agent.Error] = []
        house.ctx.on(ev.agent.ERROR)(errors.append)
        broken = [True]

        async def trouble() -> None:
            if not broken:
                return
            broken.clear()
            if fails:
                raise ValueError("no")
            handle.agent.cancel(records.UserCause())
            await trio.lowlevel.checkpoint()

        async def request(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            if where == "request":
                await trouble()
            return await call_next()

        house.ctx.on(ev.agent.REQUEST)(request)
        if where == "prepare":
            resolve = house.model.resolve_model

            async def troubled(provider: str, model: str) -> ResolvedModel:
                await trouble()
                return await resolve(provider, model)

            house.model.resolve_model = troubled  # type: ignore[method-assign]
        outcome = await handle.agent.ask(user_message("go", id="lost"))
        expected = records.ErrorTurnEnd if fails else records.AbortedTurnEnd
        assert isinstance(outcome.reason, expected)
        names = house.names(handle)
        assert names[-3:] == [ev.step.START.name, ev.step.END.name, ev.turn.END.name]
        for token in (ev.system.MESSAGE, ev.user.MESSAGE, ev.request.HEADER, ev.request.CONTEXT):
            assert token.name not in names
        # Q5: what was claimed and not admitted is lost to the history, and told.
        assert [[m.id for m in e.messages] for e in errors] == ([["lost"]] if fails else [])
        assert handle.agent.pending("next-turn") == ()
        outcome = await handle.agent.ask(user_message("again"))
        assert outcome.text == "later"


@pytest.mark.holds("RR03", "RR04", "RR05", "RR06", "D2", "LP02", "LP29", "M11")
async def test_adapter_defaults_are_marked_and_resolved_again_for_another_route() -> None:
    first = ScriptedReplies(
        [says("a"), says("b")], resolved=ResolvedModel(max_tokens=100, reasoning_effort="low")
    )
    second = ScriptedReplies([says("c")], resolved=ResolvedModel(max_tokens=200))
    async with open_test_house(model=first) as house:
        house.llm.register(house.ctx, second, ("other",))
        handle = await house.agent()
        route = ["test"]

        async def switch(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            config = await call_next()
            return evolve(config, provider=route[0])

        house.ctx.on(ev.agent.REQUEST)(switch)
        await handle.agent.ask(user_message("one"))
        header = house.session(handle).request_header()
        assert header is not None
        assert (header.config.max_tokens, header.config.reasoning_effort) == (100, "low")
        assert header.adapter_defaults == records.LlmCallConfigAdapterDefaults(
            max_tokens=True, reasoning_effort=True
        )
        assert first.requests[0].max_tokens == 100
        route[0] = "other"
        await handle.agent.ask(user_message("two"))
        assert second.requests[0].max_tokens == 200
        assert second.requests[0].reasoning_effort is None
    explicit = records.AgentOptions(provider="test", model="m", max_tokens=7)
    async with open_test_house(model=ScriptedReplies([says("a")])) as house:
        other = ScriptedReplies([says("b")], resolved=ResolvedModel(max_tokens=200))
        house.llm.register(house.ctx, other, ("other",))
        handle = await house.agent(options=explicit)
        await handle.agent.ask(user_message("one"))
        assert house.model.requests[0].max_tokens == 7

        async def moved(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            return evolve(await call_next(), provider="other")

        house.ctx.on(ev.agent.REQUEST)(moved)
        await handle.agent.ask(user_message("two"))
        assert other.requests[0].max_tokens == 7


@pytest.mark.holds("RR16", "D18", "RR14", "D12")
async def test_neither_the_seed_nor_a_request_can_be_changed_in_place() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        mutating = [True]

        async def mutate(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            config = await call_next()
            if mutating:
                mutating.clear()
                config.model = "sneaky"  # type: ignore[misc]
            return config

        house.ctx.on(ev.agent.REQUEST)(mutate)
        outcome = await handle.agent.ask(user_message("one"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "FrozenInstanceError" in outcome.reason.error.message
        await handle.agent.ask(user_message("two"))
        assert house.model.requests[0].model == "model-1"
        now = handle.agent.session.derive_messages()
        with pytest.raises(AttributeError):
            house.model.requests[0].messages = now  # type: ignore[misc]


@pytest.mark.holds("RR01", "RR02", "D11", "D14", "NEW-15", "D13", "D15", "LC06")
async def test_requests_of_a_series_extend_each_other_with_the_same_objects() -> None:
    async with open_test_house(replies=[says("a"), says("b"), says("c")]) as house:
        handle = await house.agent()
        for number in range(3):
            await handle.agent.ask(user_message(f"prompt {number}"))
        requests = house.model.requests
        for before, after in pairwise(requests):
            kept = after.messages[: len(before.messages)]
            assert all(old is new for old, new in zip(before.messages, kept, strict=True))
            assert before.tools == after.tools
        assert house.names(handle).count(ev.request.HEADER.name) == 1
        assert all(is_loop_request(request) for request in requests)
        assert not is_loop_request(evolve(requests[0]))
        assert all(request.session_id == "s" and request.system is None for request in requests)


@pytest.mark.holds("RR18", "RR19", "RR20")
async def test_route_facts_are_logged_when_they_change() -> None:
    model = ScriptedReplies([says(c) for c in "abcd"], resolved=ResolvedModel(context_window=1000))
    async with open_test_house(model=model) as house:
        handle = await house.agent()

        def facts() -> list[int | None]:
            return [
                event.data.context_window
                for event in house.session(handle).events
                if isinstance(event.data, ev.request.RouteContext)
            ]

        await handle.agent.ask(user_message("one"))
        await handle.agent.ask(user_message("two"))
        assert facts() == [1000]
        model.resolved = ResolvedModel()
        await handle.agent.ask(user_message("three"))
        await handle.agent.ask(user_message("four"))
        assert facts() == [1000, None]


def prompt_texts(requests: Sequence[LlmRequest]) -> list[list[str]]:
    return [
        [
            block.text
            for message in request.messages
            if isinstance(message, records.SystemMessage)
            for block in message.content
            if isinstance(block, records.TextBlock)
        ]
        for request in requests
    ]


@pytest.mark.holds("RR12", "LP12", "D6")
async def test_a_changed_prompt_on_a_plain_route_is_rewritten_in_place_with_one_header() -> None:
    async with open_test_house(replies=[says(c) for c in "abc"]) as house:
        prompts = ["one"]
        house.prompt.section(house.ctx, "persona", lambda context: prompts[0])
        handle = await house.agent()
        await handle.agent.ask(user_message("1"))
        prompts[0] = "two"
        await handle.agent.ask(user_message("2"))
        await handle.agent.ask(user_message("3"))
        assert prompt_texts(house.model.requests) == [["one"], ["two"], ["two"]]
        reasons = [
            event.data.reason
            for event in house.session(handle).events
            if isinstance(event.data, ev.request.Header)
        ]
        assert reasons == ["initial", "series"]


@pytest.mark.holds("NEW-5", "C9", "D6")
async def test_a_declared_series_consolidates_once_and_a_retry_does_not_repeat_it() -> None:
    model = ScriptedReplies(
        [says("a"), says("b"), FAILS, says("c")],
        resolved=ResolvedModel(system_prompt_update="in-history"),
    )
    async with open_test_house(model=model) as house:
        prompts = ["one"]
        house.prompt.section(house.ctx, "persona", lambda context: prompts[0])
        handle = await house.agent()
        house.retrying()
        await handle.agent.ask(user_message("1"))
        prompts[0] = "two"
        await handle.agent.ask(user_message("2"))

        async def series(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            decision = await call_next()
            assert isinstance(decision, ev.agent.Enter)
            return evolve(decision, starts_request_series=True)

        house.ctx.on(ev.agent.PRE_STEP)(series)
        await handle.agent.ask(user_message("3"))
        assert prompt_texts(house.model.requests) == [["one"], ["one", "two"], ["two"], ["two"]]
        reasons = [
            event.data.reason
            for event in house.session(handle).events
            if isinstance(event.data, ev.request.Header)
        ]
        assert reasons == ["initial", "series"]


@pytest.mark.holds("RR11", "RR02")
async def test_a_replacement_between_turns_rewrites_the_next_request_with_a_header() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("1"))
        session = house.session(handle)
        nodes = list(session.surface.nodes)
        session.append(
            ev.user.Message(message=user_message("summary")),
            surface=records.Replace(start_seq=nodes[1], end_seq=nodes[2]),
            sources=tuple(nodes[1:3]),
        )
        await handle.agent.ask(user_message("2"))
        assert [m.role for m in house.model.requests[1].messages] == ["user", "user"]
        headers = [
            event.data.reason
            for event in session.events
            if isinstance(event.data, ev.request.Header)
        ]
        assert headers == ["initial", "series"]


@pytest.mark.holds("CR11")
async def test_a_second_adapter_for_a_route_is_refused_and_the_first_goes_on_serving() -> None:
    async with open_test_house(replies=[says("first")]) as house:
        other = ScriptedReplies([says("second")])
        with pytest.raises(LlmError, match="already has an adapter"):
            house.llm.register(house.ctx, other, ("test",))
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "first"
        assert other.requests == []


@pytest.mark.holds("CR16")
async def test_an_event_of_the_feed_is_narrowed_by_its_class_and_read_by_its_fields() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        read: list[tuple[int, str]] = []

        @house.ctx.on(ev.session.EVENT)
        def note(notice: ev.session.Event) -> None:
            data = notice.event.data
            if isinstance(data, ev.assistant.Message):
                source = data.message.source
                assert isinstance(source, records.ModelSource)
                read.append((data.step, source.model))  # mypy knows both
            elif isinstance(data, ev.turn.End):
                read.append((data.turn, data.reason.kind))

        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        assert read == [(1, "model-1"), (1, "completed")]
