"""Turns: decisions at the boundaries, votes, and outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import BadAnswer
from dsh.llm import ScriptEntry
from dsh.testing import TestHouse, broken_laws, call, calls, open_test_house, says
from dsh.testing.tool_parts import acting_tool

if TYPE_CHECKING:
    from dsh.hooks import Next, live


def errors_of(house: TestHouse) -> list[ev.agent.Error]:
    told: list[ev.agent.Error] = []
    house.ctx.on(ev.agent.ERROR)(told.append)
    return told


@pytest.mark.holds("C8", "IN04", "IN05")
async def test_the_decision_is_exactly_what_the_step_admits() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        extra = user_message("extra", source=records.PluginSource(plugin="x", form="instructions"))

        @house.ctx.on(ev.agent.PRE_STEP)
        async def rewrite(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            return ev.agent.Enter(messages=(user_message("rewritten"), extra))

        await handle.agent.ask(user_message("go"))
        assert house.texts(handle) == ["rewritten", "extra"]
        assert house.model.requests[0].messages[-1] is extra


@pytest.mark.holds("C5", "IN07", "IN22")
async def test_a_reject_blocks_the_turn_and_names_who_decided() -> None:
    async with open_test_house() as house:
        handle = await house.agent()

        @house.ctx.on(ev.agent.PRE_STEP)
        async def guard(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            return ev.agent.Reject(reason="over budget")

        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.BlockedTurnEnd(reason="over budget", plugin="kernel")
        assert ev.step.START.name not in house.names(handle)
        assert house.texts(handle) == []
        assert house.model.requests == []
        assert handle.agent.status == "idle"


@pytest.mark.holds("IN09", "IN10", "IN13", "C5")
async def test_what_waits_behind_a_blocked_turn_stays_parked_in_order() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        blocked = True

        @house.ctx.on(ev.agent.PRE_STEP)
        async def guard(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            if blocked:
                handle.agent.inject(user_message("staged"))
                return ev.agent.Reject()
            return await call_next()

        handle.agent.followup(user_message("one"))
        handle.agent.followup(user_message("two"))
        handle.agent.followup(user_message("three"))
        await handle.agent.when_idle()
        assert len(handle.agent.pending("next-turn")) == 2
        assert len(handle.agent.pending("next-step")) == 1
        blocked = False
        handle.agent.wake()
        await handle.agent.when_idle()
        assert house.texts(handle) == ["staged", "two", "three"]


@pytest.mark.holds("C6", "CR04")
async def test_entering_with_nothing_completes_a_turn_without_a_step() -> None:
    async with open_test_house() as house:
        handle = await house.agent()

        @house.ctx.on(ev.agent.PRE_STEP)
        async def drop(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            return ev.agent.Enter(messages=())

        handle.agent.followup(user_message("one"))
        handle.agent.followup(user_message("two"))
        await handle.agent.when_idle()
        assert house.ends(handle) == [records.CompletedTurnEnd()]
        assert ev.step.START.name not in house.names(handle)
        assert len(handle.agent.pending("next-turn")) == 1


@pytest.mark.holds("C7")
async def test_entering_a_later_step_with_nothing() -> None:
    async with open_test_house(replies=[calls(call("t")), says("b")]) as house:
        handle = await house.agent()
        house.tools.register(house.ctx, acting_tool("t", lambda run: None))
        stopping: list[int] = []

        @house.ctx.on(ev.agent.PRE_STEP)
        async def drop_later(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            return await call_next() if step.step == 1 else ev.agent.Enter(messages=())

        @house.ctx.on(ev.agent.TURN_STOPPING)
        async def keep(vote: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
            stopping.append(vote.turn)
            return ev.agent.KeepGoing(message=user_message("more"))

        await handle.agent.ask(user_message("go"))
        # Step 2 was owed to the tool and opened without messages; step 3 was only steered, and the
        # empty decision ended the turn with its outcome, without a second vote.
        steps = [
            e.data.step for e in house.session(handle).events if isinstance(e.data, ev.step.Start)
        ]
        assert steps == [1, 2]
        assert stopping == [1]
        assert house.ends(handle) == [records.CompletedTurnEnd()]
        assert house.texts(handle) == ["go"]


@pytest.mark.holds("NEW-1", "IN14", "LP21", "LP32", "C23")
async def test_an_unknown_decision_fails_the_turn_and_the_loop_lives_on() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        told = errors_of(house)
        answers: list[object] = ["stop"]

        async def odd(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            if answers:
                handle.agent.inject(user_message("kept"))
                return answers.pop()  # type: ignore[return-value]
            return await call_next()

        house.ctx.on(ev.agent.PRE_STEP)(odd)
        outcome = await handle.agent.ask(user_message("go", id="lost"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert isinstance(told[0].error, BadAnswer)
        assert (told[0].turn, told[0].step) == (1, 0)
        assert [m.id for m in told[0].messages] == ["lost"]
        assert len(handle.agent.pending("next-step")) == 1
        outcome = await handle.agent.ask(user_message("again"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)
        assert house.texts(handle) == ["kept", "again"]


@pytest.mark.holds("C17", "CR07", "LP26")
async def test_votes_are_steered_in_order_after_the_last_listener() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        ran: list[str] = []

        def voter(name: str) -> None:
            async def vote(stopping: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
                ran.append(f"{name} sees {len(handle.agent.pending('next-step'))}")
                if len(ran) > 2:
                    return None
                return ev.agent.KeepGoing(message=user_message(name))

            house.ctx.on(ev.agent.TURN_STOPPING)(vote)

        voter("first")
        voter("second")
        await handle.agent.ask(user_message("go"))
        assert ran == ["first sees 0", "second sees 0", "first sees 0", "second sees 0"]
        assert house.texts(handle) == ["go", "first", "second"]
        assert house.ends(handle) == [records.CompletedTurnEnd()]


@pytest.mark.holds("LP26")
async def test_a_stopping_listener_may_also_steer_by_itself() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()

        @house.ctx.on(ev.agent.TURN_STOPPING)
        async def steer(stopping: ev.agent.TurnStopping) -> None:
            if len(house.model.requests) == 1:
                handle.agent.steer(user_message("once more"))

        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.turn == 1
        assert outcome.text == "b"
        assert house.texts(handle) == ["go", "once more"]


@pytest.mark.holds("CR08", "C23", "G7")
async def test_a_raising_stopping_listener_fails_the_turn_only() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        told = errors_of(house)

        async def fail(stopping: ev.agent.TurnStopping) -> None:
            if stopping.turn == 1:
                raise ValueError("no")

        house.ctx.on(ev.agent.TURN_STOPPING)(fail)
        first = await handle.agent.ask(user_message("go"))
        assert isinstance(first.reason, records.ErrorTurnEnd)
        assert first.reason.error.code == "UNKNOWN"
        assert "no" in first.reason.error.message
        assert isinstance(told[0].error, ValueError)
        second = await handle.agent.ask(user_message("again"))
        assert isinstance(second.reason, records.CompletedTurnEnd)


@pytest.mark.holds("C14", "F19")
async def test_a_concluding_tool_ends_the_turn_after_its_batch() -> None:
    async with open_test_house(replies=[calls(call("t"), call("t"))]) as house:
        house.tools.register(house.ctx, acting_tool("t", lambda run: run.conclude_turn()))
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)
        assert len(house.model.requests) == 1
        assert house.names(handle).count(ev.tool.RESULT.name) == 2


@pytest.mark.holds("C18", "F7")
async def test_a_concluding_tool_does_not_drop_what_waits_for_the_next_step() -> None:
    def act(run: live.ToolRun) -> None:
        run.conclude_turn()
        run.defer_context(user_message("context"))

    async with open_test_house(replies=[calls(call("t")), says("b")]) as house:
        house.tools.register(house.ctx, acting_tool("t", act))
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.text == "b"
        assert house.texts(handle) == ["go", "context"]


@pytest.mark.holds("C16", "LP34", "LP36", "M12")
async def test_max_tokens_is_sticky_for_the_turn_and_not_for_the_next() -> None:
    cut = ScriptEntry(text="half", finish="max-tokens")
    async with open_test_house(replies=[cut, says("b"), says("c")]) as house:
        handle = await house.agent()

        @house.ctx.on(ev.agent.TURN_STOPPING)
        async def keep(stopping: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
            if len(house.model.requests) > 1:
                return None
            return ev.agent.KeepGoing(message=user_message("go on"))

        first = await handle.agent.ask(user_message("go"))
        assert isinstance(first.reason, records.MaxTokensTurnEnd)
        assert len(house.model.requests) == 2
        second = await handle.agent.ask(user_message("again"))
        assert isinstance(second.reason, records.CompletedTurnEnd)


@pytest.mark.holds("E5", "LP37", "C14", "M12")
async def test_a_truncated_step_dispatches_no_tools() -> None:
    cut = ScriptEntry(text="half", tools=(call("t"),), finish="max-tokens")
    ran: list[str] = []
    async with open_test_house(replies=[cut]) as house:
        house.tools.register(house.ctx, acting_tool("t", lambda run: ran.append("x")))
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.MaxTokensTurnEnd)
        assert ran == []
        assert ev.tool.CALL.name not in house.names(handle)
        assert broken_laws(house.session(handle)) == []
