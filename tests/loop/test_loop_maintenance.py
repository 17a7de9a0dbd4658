"""Maintenance, and the last rules of rest: what wakes, what waits, what leaves no ghost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import AgentBusy
from dsh.testing import TestHouse, call, calls, open_test_house, says
from dsh.testing.tool_parts import simple_tool

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import Logged, live


USER = records.UserCause()


ABORTED = records.AbortedTurnEnd(reason=USER)


def prompts(house: TestHouse, handle: AgentHandle) -> list[str]:
    return [
        event.data.message.id
        for event in house.session(handle).events
        if isinstance(event.data, ev.user.Message)
    ]


@pytest.mark.holds("G9", "LP03", "LP05", "B10", "C1")
async def test_maintenance_reserves_the_agent_and_replays_what_woke_it() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        statuses: list[str] = []
        house.ctx.on(ev.agent.STATUS)(lambda n: statuses.append(n.status))
        go = trio.Event()

        async def job(signal: live.TurnSignal) -> str:
            await go.wait()
            return "result"

        async def other(signal: live.TurnSignal) -> None:
            raise AssertionError

        results: list[str] = []

        async def run() -> None:
            results.append(await handle.agent.run_maintenance(job))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await wait_all_tasks_blocked()
            assert handle.agent.status == "idle"
            with pytest.raises(AgentBusy, match="is maintenance"):
                await handle.agent.run_maintenance(other)
            handle.agent.followup(user_message("woken", id="woken"))
            await wait_all_tasks_blocked()
            assert handle.agent.turn == 0
            go.set()
        await handle.agent.when_idle()
        assert results == ["result"]
        assert prompts(house, handle) == ["woken"]
        assert statuses == ["running", "idle"]


@pytest.mark.holds("LP03", "LP05", "B10", "G9")
@pytest.mark.parametrize("how", ["cancel", "remove"])
async def test_a_wake_behind_maintenance_that_is_taken_back_runs_nothing(how: str) -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        seen: list[bool] = []

        async def job(signal: live.TurnSignal) -> None:
            with signal.scope():
                await trio.sleep_forever() if how == "cancel" else await go.wait()
            seen.append(signal.cancelled)

        go = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle.agent.run_maintenance, job)
            await wait_all_tasks_blocked()
            handle.agent.followup(user_message("woken", id="woken"))
            if how == "cancel":
                handle.agent.cancel(USER)
            else:
                handle.agent.remove("woken")
                go.set()
        await wait_all_tasks_blocked()
        assert seen == [how == "cancel"]
        assert handle.agent.turn == 0


@pytest.mark.holds("CE11", "C2")
async def test_when_idle_returns_after_a_failed_run_too() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        with trio.fail_after(5):
            await handle.agent.when_idle()
        assert [reason.kind for reason in house.ends(handle)] == ["error"]


@pytest.mark.holds("G5")
async def test_nothing_is_abandoned_the_turn_waits_for_a_body_that_shields_itself(
    autojump_clock: MockClock,
) -> None:
    finished: list[float] = []

    async def body(run: live.ToolRun) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)
        finished.append(trio.current_time())
        return "late"

    async with open_test_house(replies=[calls(call("t"))]) as house:
        house.tools.register(house.ctx, simple_tool("t", body))
        handle = await house.agent()
        started = trio.current_time()
        handle.agent.followup(user_message("go"))
        await trio.sleep(1)
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        assert finished == [started + 30]
        assert house.ends(handle) == [ABORTED]


@pytest.mark.holds("B13")
async def test_a_cancel_that_comes_with_the_turns_end_leaves_no_ghost() -> None:
    async with open_test_house(replies=[says("a"), says("b"), says("c")]) as house:
        handle = await house.agent()
        done: list[bool] = []

        @house.ctx.on(ev.turn.END)
        def late(event: Logged[ev.turn.End]) -> None:
            if not done:
                done.append(True)
                handle.agent.cancel(USER, keep_inbox=True)
                handle.agent.followup(user_message("late", id="late"))

        await handle.agent.ask(user_message("go", id="go"))
        await handle.agent.when_idle()
        assert prompts(house, handle) == ["go", "late"]
        assert [reason.kind for reason in house.ends(handle)] == ["completed", "completed"]
        await wait_all_tasks_blocked()
        assert handle.agent.turn == 2
