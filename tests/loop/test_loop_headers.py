"""Headers that must be written although little changed: what a kept one would hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.llm import ResolvedModel
from dsh.testing import call, calls, echo_tool, open_test_house, says

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import Logged, Next
    from dsh.testing import TestHouse


def headers(house: TestHouse, handle: AgentHandle) -> list[ev.request.Header]:
    events = house.session(handle).events
    return [event.data for event in events if isinstance(event.data, ev.request.Header)]


@pytest.mark.holds("D8", "D7")
async def test_a_tool_in_the_place_of_another_is_in_the_next_header_and_request() -> None:
    async with open_test_house(replies=[says("a"), says("b"), says("c")]) as house:
        handle = await house.agent()
        first = house.tools.register(house.ctx, echo_tool(name="one"))
        await handle.agent.ask(user_message("go"))
        first.dispose()
        house.tools.register(house.ctx, echo_tool(name="two"))
        await handle.agent.ask(user_message("go"))
        await handle.agent.ask(user_message("go"))
        named = [[tool.name for tool in request.tools] for request in house.model.requests]
        assert named == [["one"], ["two"], ["two"]]
        told = [(h.reason, [t.name for t in h.header.tools]) for h in headers(house, handle)]
        assert told == [("initial", ["one"]), ("change", ["two"])]


@pytest.mark.holds("D2", "D8")
async def test_an_explicit_value_that_equals_the_default_before_is_no_default_any_more() -> None:
    async with open_test_house(replies=[says("a"), says("b"), says("c")]) as house:
        house.model.resolved = ResolvedModel(max_tokens=5)
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        asked: list[int] = []

        @house.ctx.on(ev.agent.REQUEST)
        async def explicit(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            asked.append(payload.turn)
            config = await call_next()
            return evolve(config, max_tokens=5) if payload.turn == 2 else config

        await handle.agent.ask(user_message("go"))
        house.model.resolved = ResolvedModel(max_tokens=9)
        await handle.agent.ask(user_message("go"))
        assert asked == [2, 3]
        assert [request.max_tokens for request in house.model.requests] == [5, 5, 5]
        marks = [h.header.adapter_defaults for h in headers(house, handle)]
        assert marks == [records.LlmCallConfigAdapterDefaults(max_tokens=True), None]


@pytest.mark.holds("D8", "D9")
async def test_a_stop_sequence_alone_changes_the_header() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))

        @house.ctx.on(ev.agent.REQUEST)
        async def stop(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            return evolve(await call_next(), stop=("END",))

        await handle.agent.ask(user_message("go"))
        assert [h.reason for h in headers(house, handle)] == ["initial", "change"]
        assert house.model.requests[1].stop == ("END",)


@pytest.mark.holds("C27")
@pytest.mark.parametrize(("given", "missing"), [("provider", "model"), ("model", "provider")])
async def test_half_a_route_is_no_route(given: str, missing: str) -> None:
    async with open_test_house(replies=[says("never")]) as house:
        options = (
            records.AgentOptions(provider="test")
            if given == "provider"
            else records.AgentOptions(model="model-1")
        )
        handle = await house.agent(options=options)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert f"has no {missing} for this request" in outcome.reason.error.message
        assert house.model.requests == []


@pytest.mark.holds("H1", "C7")
async def test_a_step_that_is_owed_brings_the_changed_context_along() -> None:
    words = ["one"]
    replies = [calls(call("echo", '{"text": "x"}')), says("a")]
    async with open_test_house(replies=replies, tools=[echo_tool()]) as house:
        house.prompt.context(house.ctx, "word", lambda context: words[0])
        handle = await house.agent()

        @house.ctx.on(ev.tool.RESULT)
        def change(event: Logged[ev.tool.Result]) -> None:
            words[0] = "two"

        await handle.agent.ask(user_message("go"))
        last = house.model.requests[1].messages[-1]
        assert isinstance(last, records.UserMessage)
        assert "two" in str(last.content)
