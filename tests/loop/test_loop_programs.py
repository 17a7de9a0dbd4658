"""Programs for a turn: what a loop of another kind may do inside the frame, and what it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import LOOPS, OpenTurn, StepDone, TurnCancelled, TurnProgram, user_message
from dsh.catalog import records
from dsh.catalog.config import AgentLoopConfig
from dsh.errors import AgentError, LlmError, ServiceConflict
from dsh.kernel import Context, FiberState, Plugin, plugin, required
from dsh.llm import ScriptEntry
from dsh.loop import agent_loop
from dsh.testing import broken_laws, call, calls, echo_tool, open_test_house, says, stalls

if TYPE_CHECKING:
    from dsh.agent import AgentHandle, Loops
    from dsh.testing import TestHouse


def loop_of(program: TurnProgram, name: str = "agent-loop") -> Plugin:
    """A loop's plugin with this program."""

    @frozen
    class Deps:
        loops: Loops = required(LOOPS)

    @plugin(name=name, config=AgentLoopConfig, deps=Deps)
    async def loop(ctx: Context, config: AgentLoopConfig, deps: Deps) -> None:
        await deps.loops.serve(ctx, config, program)

    return loop


def last_end(house: TestHouse, handle: AgentHandle) -> records.TurnEndReason:
    events = house.session(handle).events
    return [event.data.reason for event in events if isinstance(event.data, ev.turn.End)][-1]


@pytest.mark.holds("LO1")
async def test_a_program_sees_the_turn_and_gets_what_its_steps_came_to() -> None:
    seen: list[object] = []
    done: list[StepDone | None] = []

    async def program(turn: OpenTurn) -> None:
        seen.extend((turn.agent.id, turn.number, turn.steps, turn.waiting, turn.signal.cancelled))
        done.append(await turn.step(user_message("by the way")))
        seen.extend((turn.steps, turn.waiting))
        done.append(await turn.step())

    async with open_test_house(
        replies=[calls(call("echo", '{"text": "x"}'), text="look"), says("seen")],
        tools=[echo_tool()],
        runner=loop_of(program),
    ) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)
        assert seen == ["s", 1, 0, True, False, 1, False]
        assert done == [
            StepDone(owes=True, cut=False, text="look"),
            StepDone(owes=False, cut=False, text="seen"),
        ]
        texts = [
            block.text
            for message in house.model.requests[0].messages
            for block in message.content
            if isinstance(block, records.TextBlock)
        ]
        assert texts == ["go", "by the way"]


@pytest.mark.holds("LO2")
async def test_a_program_that_returns_without_a_step_fails_the_turn_and_not_the_loop() -> None:
    lazy = [True]

    async def program(turn: OpenTurn) -> None:
        if not lazy:
            await turn.step()

    async with open_test_house(replies=[says("a")], runner=loop_of(program)) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "returned without a step" in outcome.reason.error.message
        lazy.clear()
        assert (await handle.agent.ask(user_message("again"))).text == "a"
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("LO2")
async def test_after_a_step_that_came_to_nothing_no_other_is_run() -> None:
    async def program(turn: OpenTurn) -> None:
        assert await turn.step() is None
        await turn.step()

    async with open_test_house(runner=loop_of(program)) as house:

        @house.ctx.on(ev.agent.PRE_STEP)
        async def reject(step: ev.agent.PreStep, call_next: object) -> ev.agent.PreStepDecision:
            return ev.agent.Reject(reason="no")

        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "after a step that came to None, return" in outcome.reason.error.message
        assert house.names(handle).count(ev.step.START.name) == 0


@pytest.mark.holds("LO2", "C21")
async def test_a_program_that_swallows_a_cancel_is_aborted_all_the_same() -> None:
    async def program(turn: OpenTurn) -> None:
        try:
            await turn.step()
        except TurnCancelled:
            return

    async with open_test_house(replies=[stalls()], runner=loop_of(program)) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()
        assert last_end(house, handle) == records.AbortedTurnEnd(reason=records.UserCause())


@pytest.mark.holds("LO1")
async def test_a_program_may_go_on_after_a_step_that_failed() -> None:
    failures: list[str] = []

    async def program(turn: OpenTurn) -> None:
        try:
            await turn.step()
        except LlmError as error:
            failures.append(error.code)
            await turn.step(user_message("once more"))

    busy = ScriptEntry(error=records.LlmFailure(message="busy", code="SERVER"))
    async with open_test_house(replies=[busy, says("b")], runner=loop_of(program)) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert failures == ["SERVER"]
        assert (outcome.reason, outcome.text) == (records.CompletedTurnEnd(), "b")
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("LO1", "C17")
async def test_input_that_waits_when_it_returns_calls_the_program_again_in_the_same_turn() -> None:
    runs: list[int] = []

    async def program(turn: OpenTurn) -> None:
        runs.append(turn.number)
        await turn.step()
        if len(runs) == 1:
            turn.agent.inject(user_message("aside"))

    votes: list[int] = []
    async with open_test_house(
        replies=[says("a"), says("b"), says("c")], runner=loop_of(program)
    ) as house:

        @house.ctx.on(ev.agent.TURN_STOPPING)
        async def vote(stop: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
            votes.append(len(runs))
            return ev.agent.KeepGoing(message=user_message("go on")) if len(votes) == 1 else None

        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert (runs, votes) == ([1, 1, 1], [2, 3])
        assert outcome.text == "c"


@pytest.mark.holds("LO3")
async def test_a_second_loop_beside_the_first_is_refused_and_one_in_its_place_serves() -> None:
    async def program(turn: OpenTurn) -> None:
        await turn.step()

    async with open_test_house(replies=[says("a")]) as house:
        other = house.kernel.mount(loop_of(program, "other-loop"))
        await other.settled()
        assert other.state is FiberState.FAILED
        assert isinstance(other.error, ServiceConflict)
        await other.dispose()
        first = await house.agent()
        await house.loop.dispose()
        assert house.agents.live() == ()
        again = house.kernel.mount(loop_of(program, "other-loop"))
        await again.ready()
        second = await house.agent()
        assert second.agent is not first.agent
        assert (await second.agent.ask(user_message("go"))).text == "a"


@pytest.mark.holds("LO2")
async def test_a_step_inside_a_step_is_refused_and_the_outer_one_unharmed() -> None:
    asked: list[int] = []
    turns: list[OpenTurn] = []

    async def program(turn: OpenTurn) -> None:
        turns.append(turn)
        await turn.step()

    async with open_test_house(replies=[says("a")], runner=loop_of(program)) as house:

        @house.ctx.on(ev.agent.REQUEST)
        async def inside(payload: ev.agent.Request, call_next: object) -> records.LlmCallConfig:
            with pytest.raises(AgentError, match="was asked for while its turn is requesting"):
                await turns[0].step()
            asked.append(payload.step)
            await trio.lowlevel.checkpoint()
            return records.LlmCallConfig(provider="test", model="m")

        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "a"
        assert asked == [1]


@pytest.mark.holds("ST06", "A10")
async def test_a_loop_that_unloads_leaves_its_place_its_variables_and_its_config_free() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        first = await house.agent()
        await first.agent.ask(user_message("go"))
        await house.loop.dispose()
        again = house.kernel.mount(agent_loop, AgentLoopConfig(max_parallel_tool_calls=1))
        await again.ready()
        house.prompt.section(house.ctx, "route", "{{provider}}/{{model}} in {{cwd}}")
        second = await house.agent()
        assert (await second.agent.ask(user_message("go"))).text == "b"
        [prompt] = [m for m in house.model.requests[1].messages if m.role == "system"]
        assert prompt.content == (records.TextBlock(text="test/model-1 in /work"),)
