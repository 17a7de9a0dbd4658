"""The initiator: whose work runs, through nested boundaries, tasks, and the service's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import Sequencer, wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import Initiators, initiator, require_initiator, user_message
from dsh.errors import AgentClosed, AgentError
from dsh.testing import call, calls, open_test_house, says
from dsh.tools import CallInput, define_tool

if TYPE_CHECKING:
    from dsh.hooks import Next, live


class Named:
    """Stands for an agent where only its identity matters."""

    def __init__(self, name: str) -> None:
        self.name = name


def named(name: str) -> live.Agent:
    return Named(name)  # type: ignore[return-value]


@pytest.mark.holds("L1", "GI01")
def test_without_a_boundary_there_is_none() -> None:
    assert initiator() is None
    with pytest.raises(AgentError, match="no agent is running this code"):
        require_initiator()


@pytest.mark.holds("L2", "GI06", "GI07", "GI02")
def test_nested_and_clearing_boundaries_give_back_what_was_before() -> None:
    home = Initiators()
    one, two = named("one"), named("two")
    with home.boundary(one):
        assert require_initiator() is one
        with home.boundary(two):
            assert initiator() is two
            with home.nobody():
                assert initiator() is None
            assert initiator() is two
        with pytest.raises(ValueError, match="x"), home.boundary(two):
            raise ValueError("x")
        assert initiator() is one
    assert initiator() is None


@pytest.mark.holds("L1", "AI01")
async def test_overlapping_tasks_each_see_their_own() -> None:
    home = Initiators()
    seen: list[tuple[str, object]] = []
    steps = Sequencer()
    agents = {name: named(name) for name in ("one", "two")}

    async def work(name: str, first: int, second: int) -> None:
        with home.boundary(agents[name]):
            async with steps(first):
                seen.append((name, initiator()))
            async with steps(second):
                seen.append((name, initiator()))

            async def child() -> None:
                seen.append((name, initiator()))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(child)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, "one", 0, 2)
        nursery.start_soon(work, "two", 1, 3)
    assert len(seen) == 6
    assert all(agent is agents[name] for name, agent in seen)


@pytest.mark.holds("L3")
async def test_shutdown_waits_for_boundaries_takes_no_new_ones_and_then_reading_fails() -> None:
    home = Initiators()
    go = trio.Event()
    after: list[str] = []

    async def work() -> None:
        with home.boundary(named("one")):
            await go.wait()
            assert initiator() is not None
            inner = trio.Event()

            async def outlives() -> None:
                await inner.wait()
                with pytest.raises(AgentClosed, match="has shut down"):
                    initiator()
                after.append("refused")

            nursery.start_soon(outlives)
            events.append(inner)

    events: list[trio.Event] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await wait_all_tasks_blocked()

        async def close() -> None:
            await home.aclose()
            after.append("closed")

        nursery.start_soon(close)
        await wait_all_tasks_blocked()
        assert after == []
        with pytest.raises(AgentClosed, match="takes no new work"), home.boundary(named("two")):
            pass
        go.set()
        await wait_all_tasks_blocked()
        assert after == ["closed"]
        assert home.disposed
        events[0].set()
    assert after == ["closed", "refused"]


@pytest.mark.holds("L3", "GI10", "GI11", "GI12")
async def test_a_boundary_that_shuts_the_service_down_does_not_wait_for_itself() -> None:
    home = Initiators()
    go = trio.Event()
    order: list[str] = []

    async def unrelated() -> None:
        with home.boundary(named("other")):
            await go.wait()
            order.append("other done")

    async def closing() -> None:
        with home.boundary(named("outer")), home.boundary(named("inner")):
            await home.aclose()
            order.append("closed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(unrelated)
        await wait_all_tasks_blocked()
        nursery.start_soon(closing)
        await wait_all_tasks_blocked()
        assert order == []
        go.set()
    assert order == ["other done", "closed"]


@pytest.mark.holds("L1", "L2", "AI02")
async def test_a_child_agents_work_runs_on_behalf_of_the_child() -> None:
    from attrs import frozen

    @frozen
    class NoArgs:
        pass

    seen: dict[str, str | None] = {}
    async with open_test_house(
        replies=[calls(call("delegate")), says("from child"), says("done")]
    ) as house:
        parent = await house.agent("parent")

        async def delegate(args: NoArgs, run: live.ToolRun) -> str:
            child = await house.agent("child", parent=run.agent)
            seen["tool"] = require_initiator().id
            outcome = await child.agent.ask(user_message("work"))
            seen["tool after"] = require_initiator().id
            return outcome.text

        async def watch(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            seen[f"pre-step of {step.agent.id}"] = require_initiator().id
            return await call_next()

        house.ctx.on(ev.agent.PRE_STEP)(watch)
        house.tools.register(
            house.ctx,
            define_tool(
                name="delegate", description="d", args=NoArgs, output=str, execute=delegate
            ),
        )
        outcome = await parent.agent.ask(user_message("go"))
        assert outcome.text == "done"
        assert seen == {
            "pre-step of parent": "parent",
            "tool": "parent",
            "pre-step of child": "child",
            "tool after": "parent",
        }


@pytest.mark.holds("L4", "AI04")
async def test_a_direct_tool_call_has_no_initiator() -> None:
    from attrs import frozen

    from dsh.agent import ActivitySignal

    @frozen
    class NoArgs:
        pass

    seen: list[object] = []

    async def body(args: NoArgs, run: live.ToolRun) -> str:
        seen.append(initiator())
        return "x"

    async with open_test_house() as house:
        house.tools.register(
            house.ctx,
            define_tool(name="t", description="t", args=NoArgs, output=str, execute=body),
        )
        given = CallInput(call_id="c", name="t", arguments={}, signal=ActivitySignal())
        await house.tools.execute(given)
    assert seen == [None]


@pytest.mark.holds("L3")
async def test_everybody_who_closes_the_boundaries_returns_when_the_last_one_is_left() -> None:
    initiators = Initiators()
    leave = trio.Event()
    closed: list[int] = []

    async def work() -> None:
        with initiators.nobody():
            await leave.wait()

    async def close(number: int) -> None:
        await initiators.aclose()
        closed.append(number)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await wait_all_tasks_blocked()
            nursery.start_soon(close, 1)
            nursery.start_soon(close, 2)
            await wait_all_tasks_blocked()
            assert closed == []
            leave.set()
    assert sorted(closed) == [1, 2]
