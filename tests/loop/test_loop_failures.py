"""Failures that end the turn and not the loop: vetoes, observers, errors and their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import HarnessError, InvalidAppend
from dsh.session import Projection
from dsh.testing import TestHouse, broken_laws, call, calls, open_test_house, says
from dsh.testing.tool_parts import acting_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import Next
    from dsh.wire import StoredEvent


def errors_of(house: TestHouse) -> list[ev.agent.Error]:
    told: list[ev.agent.Error] = []
    house.ctx.on(ev.agent.ERROR)(told.append)
    return told


def veto(house: TestHouse, refuses: Callable[[StoredEvent], bool]) -> None:
    """Refuse events before they are committed, as an invariant companion does."""

    def apply(state: int, event: StoredEvent) -> int:
        if refuses(event):
            raise InvalidAppend(f"vetoed {event.type}")
        return state

    house.sessions.project(house.ctx, Projection(key="veto", init=lambda: 0, apply=apply))


@pytest.mark.holds("C27", "CR12", "CR13")
async def test_a_request_without_a_route_fails_clearly_unless_a_listener_gives_one() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent(options=records.AgentOptions())
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "has no provider and model" in outcome.reason.error.message
        assert house.names(handle).count(ev.step.END.name) == 1
        assert house.texts(handle) == []

        @house.ctx.on(ev.agent.REQUEST)
        async def supply(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            return records.LlmCallConfig(provider="test", model="model-9")

        outcome = await handle.agent.ask(user_message("again"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)
        assert house.model.requests[0].model == "model-9"


@pytest.mark.holds("C3")
async def test_a_vetoed_turn_start_opens_nothing_and_parks_the_prompt() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        told = errors_of(house)
        statuses: list[str] = []
        house.ctx.on(ev.agent.STATUS)(lambda n: statuses.append(n.status))
        refusing = [True]
        veto(house, lambda e: bool(refusing) and isinstance(e.data, ev.turn.Start))
        handle.agent.followup(user_message("go"))
        assert handle.agent.status == "idle"
        assert statuses == ["running", "idle"]
        assert [(n.turn, n.step) for n in told] == [(1, 0)]
        assert house.names(handle) == [ev.agent.INBOX_SPLICED.name]
        refusing.clear()
        handle.agent.wake()
        await handle.agent.when_idle()
        assert house.texts(handle) == ["go"]
        assert handle.agent.turn == 1


@pytest.mark.holds("C10")
async def test_a_vetoed_step_start_invents_no_step_end() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        veto(house, lambda e: isinstance(e.data, ev.step.Start))
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert ev.step.END.name not in house.names(handle)


@pytest.mark.holds("C15", "CR24", "C24", "M22")
async def test_a_vetoed_step_end_is_the_turns_error_and_status_returns_to_idle() -> None:
    async with open_test_house(replies=[says("a")], watched=False) as house:
        handle = await house.agent()
        veto(house, lambda e: isinstance(e.data, ev.step.End))
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "vetoed step/end" in outcome.reason.error.message
        assert handle.agent.status == "idle"


@pytest.mark.holds("NEW-17")
async def test_a_failed_step_whose_closing_fails_too_reports_both() -> None:
    async with open_test_house(watched=False) as house:
        handle = await house.agent()
        told = errors_of(house)
        veto(house, lambda e: isinstance(e.data, ev.step.End))
        await handle.agent.ask(user_message("go"))
        error: Exception = told[0].error
        assert isinstance(error, ExceptionGroup)
        both = cast("ExceptionGroup[Exception]", error)
        texts = [str(each) for each in both.exceptions]
        assert any("no reply left" in text for text in texts)
        assert any("vetoed step/end" in text for text in texts)


@pytest.mark.holds("C20", "CE14", "M22")
async def test_a_vetoed_turn_end_is_reported_once_and_not_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        told = errors_of(house)
        tried: list[int] = []

        def refuse(event: StoredEvent) -> bool:
            if isinstance(event.data, ev.turn.End):
                tried.append(event.seq)
                return True
            return False

        veto(house, refuse)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)
        assert len(tried) == 1
        assert len(told) == 1
        assert handle.agent.status == "idle"
        assert "turn/end was refused" in caplog.text


@pytest.mark.holds("C24", "CR21", "CR28", "CR30", "CR31", "LP41")
async def test_raising_observers_of_boundary_events_change_nothing() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()

        def fail(event: object) -> None:
            raise RuntimeError("observer")

        house.ctx.on(ev.turn.START)(fail)
        house.ctx.on(ev.step.START)(fail)
        house.ctx.on(ev.step.END)(fail)
        house.ctx.on(ev.turn.END)(fail)
        for _ in range(2):
            outcome = await handle.agent.ask(user_message("go"))
            assert isinstance(outcome.reason, records.CompletedTurnEnd)
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("C21", "CE05", "CE16", "LP46")
async def test_errors_are_rendered_with_their_causes_and_hostile_ones_too() -> None:
    class HostileError(Exception):
        @override
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raising: list[Exception] = [
        HarnessError("coded", code="MY_CODE"),
        HostileError(),
        ValueError("outer"),
    ]
    raising[2].__cause__ = KeyError("inner")
    async with open_test_house() as house:
        handle = await house.agent()

        async def fail(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            raise raising.pop(0)

        house.ctx.on(ev.agent.PRE_STEP)(fail)
        reasons = [(await handle.agent.ask(user_message(str(n)))).reason for n in range(3)]
        failures = [r.error for r in reasons if isinstance(r, records.ErrorTurnEnd)]
        assert [f.code for f in failures] == ["MY_CODE", "UNKNOWN", "UNKNOWN"]
        assert failures[0].message == "coded"
        assert "HostileError" in failures[1].message
        assert "outer" in failures[2].message
        assert "inner" in failures[2].message


@pytest.mark.holds("CR25")
async def test_a_raising_error_listener_cannot_break_the_closing() -> None:
    async with open_test_house() as house:
        handle = await house.agent()

        def fail(notice: ev.agent.Error) -> None:
            raise RuntimeError("worse")

        house.ctx.on(ev.agent.ERROR)(fail)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == "SCRIPT_EXHAUSTED"
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("LP10", "D17", "TO04")
async def test_a_prompt_that_cannot_be_rendered_fails_the_turn_before_any_step() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        section = house.prompt.section(house.ctx, "persona", "Hello {{nobody}}.")
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "{{nobody}}" in outcome.reason.error.message
        assert ev.step.START.name not in house.names(handle)
        section.dispose()
        outcome = await handle.agent.ask(user_message("again"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)


@pytest.mark.holds("IN23")
async def test_a_disposed_listener_hears_nothing_more() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        heard: list[int] = []

        async def watch(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            heard.append(step.turn)
            return await call_next()

        listener = house.ctx.on(ev.agent.PRE_STEP)(watch)
        await handle.agent.ask(user_message("one"))
        await listener.aclose()
        await handle.agent.ask(user_message("two"))
        assert heard == [1]


@pytest.mark.holds("LP50", "J5")
async def test_a_log_replayed_into_a_new_session_derives_the_same_history() -> None:
    async with open_test_house(replies=[calls(call("t")), says("b")]) as house:
        house.tools.register(house.ctx, acting_tool("t", lambda run: None))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        session = house.session(handle)
        copy = house.sessions.prepare(session.header, seed=session.events)
        assert copy.derive_messages() == session.derive_messages()


@pytest.mark.holds("CE03", "CE04", "C23")
@pytest.mark.parametrize("where", ["request", "veto"])
async def test_a_plugin_that_exits_the_process_fails_its_turn_only(where: str) -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        told = errors_of(house)
        exits = [SystemExit(3)]

        async def request(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            if exits and where == "request":
                raise exits.pop()
            return await call_next()

        def refuse(event: StoredEvent) -> bool:
            if exits and where == "veto" and isinstance(event.data, ev.step.Start):
                raise exits.pop()
            return False

        house.ctx.on(ev.agent.REQUEST)(request)
        veto(house, refuse)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "SystemExit" in outcome.reason.error.message
        assert isinstance(told[0].error.__cause__, SystemExit)
        assert broken_laws(house.session(handle)) == []
        assert (await handle.agent.ask(user_message("again"))).text == "a"
