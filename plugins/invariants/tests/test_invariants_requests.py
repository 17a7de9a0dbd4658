"""The request law: what a loop sends is what its log derives, to the last message and field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from dsh import catalog as ev
from dsh.agent import mark_loop_request, user_message
from dsh.catalog import records
from dsh.hooks import live
from dsh.testing import call, calls, open_test_house, says
from dsh.testing.tool_parts import simple_tool
from dsh_plugins.invariants import INVARIANTS, LawBroken, invariants

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.hooks import Next
    from dsh.testing import TestHouse


def seen(house: TestHouse) -> list[str]:
    return [each.seen for each in house.ctx.require(INVARIANTS).breaches]


async def sent(house: TestHouse, request: live.LlmRequest, *, marked: bool = True) -> str | None:
    """What a request runs into on its way; None if it gets through."""
    if marked:
        mark_loop_request(request)
    house.model.replies.insert(0, says("served"))
    try:
        async with house.llm.stream(request) as chunks:
            async for _ in chunks:
                pass
    except LawBroken as broken:
        house.model.replies.pop(0)
        return f"{broken.law} at {broken.event}: {broken.seen}"
    return None


async def inside_a_step(
    probe: Callable[[TestHouse, live.LlmRequest], Awaitable[None]],
) -> None:
    """Run `probe` while a step is open, with a request that is right at that moment."""
    async with open_test_house(
        replies=[calls(call("probe")), says("a")], plugins=[invariants], watched=False
    ) as house:
        failures: list[BaseException] = []

        async def body(_run: live.ToolRun) -> str:
            session = house.sessions.get("s")
            assert session is not None
            try:
                await probe(
                    house, evolve(house.model.requests[0], messages=session.derive_messages())
                )
            except BaseException as error:
                failures.append(error)
                raise
            return "done"

        house.tools.register(house.ctx, simple_tool("probe", body))
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        if failures:
            raise failures[0]
        assert isinstance(outcome.reason, records.CompletedTurnEnd)


@pytest.mark.holds("J1", "IV01", "IV02")
async def test_a_request_that_equals_its_log_passes_as_often_as_it_is_sent() -> None:
    async def probe(house: TestHouse, request: live.LlmRequest) -> None:
        assert await sent(house, request) is None
        assert await sent(house, evolve(request)) is None
        assert await sent(house, evolve(request)) is None

    await inside_a_step(probe)


CHANGES: dict[str, tuple[Callable[[live.LlmRequest], live.LlmRequest], str]] = {
    "one message less": (lambda r: evolve(r, messages=r.messages[:-1]), "is missing at its end"),
    "one message more": (
        lambda r: evolve(r, messages=(*r.messages, r.messages[0])),
        "the log derives",
    ),
    "another last message": (
        lambda r: evolve(r, messages=(*r.messages[:-1], r.messages[0])),
        "is not that of seq",
    ),
    "another first message": (
        lambda r: evolve(r, messages=(user_message("hidden"), *r.messages[1:])),
        "does not begin with",
    ),
    "a model": (lambda r: evolve(r, model="other"), "model is 'other'"),
    "a provider": (lambda r: evolve(r, provider="other"), "provider is 'other'"),
    "an effort": (lambda r: evolve(r, reasoning_effort="high"), "reasoningEffort is 'high'"),
    "a cap": (lambda r: evolve(r, max_tokens=5), "maxTokens is 5"),
    "a temperature": (lambda r: evolve(r, temperature=0.5), "temperature is 0.5"),
    "a stop": (lambda r: evolve(r, stop=("x",)), "stop is ('x',)"),
    "no tools": (lambda r: evolve(r, tools=()), "tools is ()"),
    "a system field": (lambda r: evolve(r, system="hidden"), "system field"),
    "no session": (lambda r: evolve(r, session_id=None), "which is not live"),
    "another session": (lambda r: evolve(r, session_id="t"), "'t', which is not live"),
}


@pytest.mark.holds("J1", "IV04", "IV06", "IV07", "RR17", "IV03")
@pytest.mark.parametrize("name", CHANGES)
async def test_a_marked_request_that_differs_from_its_log_does_not_leave(name: str) -> None:
    change, told = CHANGES[name]

    async def probe(house: TestHouse, request: live.LlmRequest) -> None:
        if name == "another first message":
            # The law trusts what it compared once by the identity of the last message it saw.
            request = evolve(request, messages=request.messages[:1])
            first = evolve(request, messages=(user_message("hidden"),))
            found = await sent(house, first)
            assert found is not None
            assert told in found
            return
        found = await sent(house, change(request))
        assert found is not None
        assert told in found
        assert len(house.model.requests) == 1

    await inside_a_step(probe)


@pytest.mark.holds("IV06")
async def test_a_foreign_request_is_none_of_its_business() -> None:
    async def probe(house: TestHouse, request: live.LlmRequest) -> None:
        other = evolve(request, messages=(user_message("summarise"),), purpose="compaction")
        assert await sent(house, other, marked=False) is None

    await inside_a_step(probe)


@pytest.mark.holds("J1", "IV05")
async def test_a_marked_request_needs_an_open_step_and_a_logged_header() -> None:
    async with open_test_house(replies=[says("a")], plugins=[invariants], watched=False) as house:
        handle = await house.agent()
        found: list[str | None] = []

        @house.ctx.on(ev.agent.REQUEST)
        async def early(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            request = live.LlmRequest(provider="test", model="m", messages=(), session_id="s")
            found.append(await sent(house, request))
            return await call_next()

        await handle.agent.ask(user_message("go"))
        found.append(await sent(house, evolve(house.model.requests[0])))
        assert found[0] is not None
        assert "no request/header" in found[0]
        assert found[1] is not None
        assert "no turn is open (the last was 1)" in found[1]


@pytest.mark.holds("J1")
async def test_after_a_replacement_everything_is_compared_again() -> None:
    async with open_test_house(
        replies=[says("a"), calls(call("probe")), says("b")], plugins=[invariants], watched=False
    ) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("one"))
        session = house.session(handle)
        found: list[str | None] = []

        async def body(_run: live.ToolRun) -> str:
            first = session.surface.nodes[1]
            session.append(
                ev.user.Message(message=user_message("shorter")),
                surface=records.Replace(start_seq=first, end_seq=first),
                sources=(first,),
            )
            right = evolve(house.model.requests[1], messages=session.derive_messages())
            stale = evolve(
                right, messages=(house.model.requests[0].messages[0], *right.messages[1:])
            )
            found.append(await sent(house, stale))
            found.append(await sent(house, right))
            return "done"

        house.tools.register(house.ctx, simple_tool("probe", body))
        await handle.agent.ask(user_message("two"))
        assert found[0] is not None
        assert "message 0 is not that of seq" in found[0]
        assert found[1] is None
        assert len(seen(house)) == 1


async def test_the_price_of_a_request_is_what_came_since_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dsh_plugins.invariants import requests

    looked: list[int] = []

    def counted(event: object) -> records.Message | None:
        looked.append(1)
        from dsh.session import message_of

        return message_of(event)  # type: ignore[arg-type]

    monkeypatch.setattr(requests, "message_of", counted)
    async with open_test_house(replies=[says(str(n)) for n in range(20)]) as house:
        handle = await house.agent()
        each: list[int] = []
        for _ in range(20):
            looked.clear()
            await handle.agent.ask(user_message("go"))
            each.append(len(looked))
        assert each[0] == 2  # the reserved prompt and the message
        assert set(each[1:]) == {2}  # the reply before and the message
