"""The machine against the real loop: every edge is walked, every other is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.llm import ScriptEntry
from dsh.loop import machine
from dsh.loop.course import Course
from dsh.loop.machine import TABLE, Move, NoSuchTransition, Phase, Position, diagram
from dsh.testing import (
    LogWriting,
    broken_laws,
    call,
    calls,
    echo_tool,
    open_test_house,
    says,
    stalls,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.agent import AgentHandle
    from dsh.hooks import Logged, Next, live
    from dsh.testing import TestHouse

ROOT = Path(__file__).parents[2]
Edge: TypeAlias = tuple[Phase, Move]
EDGES = {(row.phase, row.move): row for row in TABLE}
USER = records.UserCause()
BUSY = ScriptEntry(text="half", error=records.LlmFailure(message="busy", code="SERVER"))


@given(st.lists(st.sampled_from(Move), max_size=60))
@settings(max_examples=400, deadline=None)
def test_whatever_is_tried_only_the_table_moves(moves: list[Move]) -> None:
    course = Course(LogWriting().session, last_turn=0)
    for move in moves:
        before = course.position
        row = EDGES.get((before.phase, move))
        if row is None:
            with pytest.raises(NoSuchTransition):
                course.move(move)
            assert course.position is before
            continue
        course.move(move)
        assert course.phase is row.to
        assert course.turn == before.turn + (row.turn == "next")
        assert course.step == {"keep": before.step, "next": before.step + 1, "zero": 0}[row.step]


def way_to(phase: Phase) -> list[Move]:
    """The shortest moves from idle to `phase`."""
    ways: dict[Phase, list[Move]] = {Phase.IDLE: []}
    todo = [Phase.IDLE]
    while phase not in ways:
        here = todo.pop(0)
        for row in TABLE:
            if row.phase is here and row.to not in ways:
                ways[row.to] = [*ways[here], row.move]
                todo.append(row.to)
    return ways[phase]


@given(phase=st.sampled_from(Phase), move=st.sampled_from(Move), refused=st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_move_with_an_event_moves_with_the_event_or_not_at_all(
    phase: Phase, move: Move, *, refused: bool
) -> None:
    log = LogWriting()
    course = Course(log.session, last_turn=0)
    for each in way_to(phase):
        course.move(each)
    before = course.position
    asked: list[Position] = []

    def payload(at: Position) -> ev.turn.Start:
        asked.append(at)
        if refused:
            raise ValueError("no")
        return ev.turn.Start(turn=at.turn)

    row = EDGES.get((phase, move))
    if row is None or refused:
        with pytest.raises((NoSuchTransition, ValueError)):
            course.log(move, payload)
        assert course.position == before
        assert log.session.next_seq == 0
        assert len(asked) == (row is not None)
        return
    course.log(move, payload)
    assert course.phase is row.to
    assert log.session.next_seq == 1
    assert asked == [course.position]


# -- every edge, by what happens to an agent ------------------------------------------------------

Script: TypeAlias = "Callable[[TestHouse, AgentHandle], Awaitable[None]]"


async def plain(house: TestHouse, handle: AgentHandle) -> None:
    """Two prompts in a row: the driver goes on, then parks."""
    house.model.replies.extend([says("a"), says("b")])
    handle.agent.followup(user_message("one"))
    handle.agent.followup(user_message("two"))


async def tools(house: TestHouse, handle: AgentHandle) -> None:
    """A call, results owed, an answer, a vote, another answer."""
    house.model.replies.extend([calls(call("echo", '{"text": "x"}')), says("a"), says("b")])
    voted: list[int] = []

    @house.ctx.on(ev.agent.TURN_STOPPING)
    async def vote(stop: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
        voted.append(stop.turn)
        return ev.agent.KeepGoing(message=user_message("more")) if len(voted) == 1 else None

    handle.agent.followup(user_message("go"))


async def retried(house: TestHouse, handle: AgentHandle) -> None:
    """A failed attempt, a retry, and one whose failure stands."""
    house.model.replies.extend([BUSY, BUSY])
    tried: list[int] = []

    @house.ctx.on(ev.agent.REQUEST_ERROR)
    async def again(
        failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
    ) -> ev.agent.Retry | None:
        tried.append(failed.step)
        return ev.agent.Retry() if len(tried) == 1 else None

    handle.agent.followup(user_message("go"))


async def no_route(house: TestHouse, handle: AgentHandle) -> None:
    """The step fails before its request."""

    @house.ctx.on(ev.agent.REQUEST)
    async def raises(
        payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
    ) -> records.LlmCallConfig:
        raise ValueError("no")

    handle.agent.followup(user_message("go"))


async def cut(house: TestHouse, handle: AgentHandle) -> None:
    """Cancelled while streaming."""
    house.model.replies.extend([stalls()])
    handle.agent.followup(user_message("go"))
    await wait_all_tasks_blocked()
    handle.agent.cancel(USER)


async def rejected(house: TestHouse, handle: AgentHandle) -> None:
    """Nothing of it enters a step."""

    @house.ctx.on(ev.agent.PRE_STEP)
    async def reject(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        return ev.agent.Reject()

    handle.agent.followup(user_message("go"))


async def failing_policy(house: TestHouse, handle: AgentHandle) -> None:
    """The proposal fails."""

    @house.ctx.on(ev.agent.PRE_STEP)
    async def raises(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        raise ValueError("no")

    handle.agent.followup(user_message("go"))


async def cut_at_the_boundary(house: TestHouse, handle: AgentHandle) -> None:
    """Cancelled when the step has ended and nothing is decided."""
    house.model.replies.extend([says("a")])

    @house.ctx.on(ev.step.END)
    def cancel(event: Logged[ev.step.End]) -> None:
        handle.agent.cancel(USER)

    handle.agent.followup(user_message("go"))


async def failing_vote(house: TestHouse, handle: AgentHandle) -> None:
    """The vote at the boundary fails."""
    house.model.replies.extend([says("a")])

    @house.ctx.on(ev.agent.TURN_STOPPING)
    async def raises(stop: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
        raise ValueError("no")

    handle.agent.followup(user_message("go"))


async def withdrawn(house: TestHouse, handle: AgentHandle) -> None:
    """Cancelled by a listener of `running`, before the turn opened."""

    @house.ctx.on(ev.agent.STATUS)
    def cancel(notice: ev.agent.Status) -> None:
        if notice.status == "running":
            handle.agent.cancel(USER)

    handle.agent.followup(user_message("go"))


async def maintained(house: TestHouse, handle: AgentHandle) -> None:
    """A maintenance job."""

    async def job(signal: live.TurnSignal) -> None:
        assert not signal.cancelled

    await handle.agent.run_maintenance(job)


SCRIPTS: tuple[Script, ...] = (
    plain,
    tools,
    retried,
    no_route,
    cut,
    rejected,
    failing_policy,
    cut_at_the_boundary,
    failing_vote,
    withdrawn,
    maintained,
)


@pytest.mark.holds("C1", "C19")
async def test_real_agents_walk_every_edge_of_the_table(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    walked: set[Edge] = set()
    real = machine.advance

    def noted(position: Position, move: Move) -> Position:
        after = real(position, move)
        walked.add((position.phase, move))
        return after

    monkeypatch.setattr(machine, "advance", noted)
    for script in SCRIPTS:
        async with open_test_house(tools=[echo_tool()]) as house:
            handle = await house.agent()
            await script(house, handle)
            await handle.agent.when_idle()
            assert handle.agent.status == "idle", script.__name__
            assert broken_laws(house.session(handle)) == [], script.__name__
    missing = [
        f"{phase.value}: {move.value}" for phase, move in EDGES if (phase, move) not in walked
    ]
    assert not missing, f"no script walks {missing}; add one, or take the row out of the table"


@pytest.mark.holds("C19")
async def test_another_step_follows_owed_results_or_waiting_input_and_nothing_else() -> None:
    async with open_test_house(
        replies=[
            calls(call("echo", '{"text": "x"}')),  # owed
            says("a"),  # steered
            ScriptEntry(text="b", finish="max-tokens"),  # steered, though cut
            says("c"),  # neither
        ],
        tools=[echo_tool()],
    ) as house:
        handle = await house.agent()
        stopped: list[int] = []

        @house.ctx.on(ev.assistant.MESSAGE)
        def steer(event: Logged[ev.assistant.Message]) -> None:
            if event.data.step in {2, 3}:
                handle.agent.steer(user_message("and"))

        @house.ctx.on(ev.agent.TURN_STOPPING)
        async def stopping(stop: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
            stopped.append(len(house.model.requests))
            return None

        outcome = await handle.agent.ask(user_message("go"))
        assert len(house.model.requests) == 4
        assert stopped == [4]
        assert isinstance(outcome.reason, records.MaxTokensTurnEnd)


@pytest.mark.holds("B12")
async def test_what_a_cancel_at_the_boundary_keeps_stays_parked() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        agent = handle.agent

        @house.ctx.on(ev.step.END)
        def cancel(event: Logged[ev.step.End]) -> None:
            if event.data.turn == 1:
                agent.inject(user_message("kept"))
                agent.cancel(USER, keep_inbox=True)

        await agent.ask(user_message("go"))
        assert [message.content for message in agent.pending("next-step")] == [
            (records.TextBlock(text="kept"),)
        ]
        await agent.ask(user_message("again"))
        assert [m.role for m in house.model.requests[1].messages].count("user") == 3


def test_the_drawn_diagram_is_the_table() -> None:
    text = (ROOT / "docs/loop.md").read_text(encoding="utf-8")
    drawn = text.partition("```mermaid\n")[2].partition("```")[0]
    assert drawn == diagram(), (
        "docs/loop.md shows another machine; paste `dsh.loop.machine.diagram()` between its fences"
    )


def test_the_document_explains_every_phase() -> None:
    text = (ROOT / "docs/loop.md").read_text(encoding="utf-8")
    missing = [phase.value for phase in Phase if f"| {phase.value} |" not in text]
    assert not missing, f"docs/loop.md: no row for {missing}"
