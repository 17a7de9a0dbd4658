"""Cancellation: causes, the inbox, and the window between a cancel and rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.testing import TestHouse, open_test_house, says, stalls

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import Next


USER = records.UserCause()


ABORTED = records.AbortedTurnEnd(reason=USER)


def text(value: str, index: int = 0) -> records.TextDeltaChunk:
    return records.TextDeltaChunk(index=index, text=value)


def prompts(house: TestHouse, handle: AgentHandle) -> list[str]:
    return [
        event.data.message.id
        for event in house.session(handle).events
        if isinstance(event.data, ev.user.Message)
    ]


@pytest.mark.holds("CA01", "CA16", "G3", "M2")
async def test_cancelling_an_idle_agent_arms_nothing() -> None:
    async with open_test_house(replies=[stalls(text("x")), says("a"), says("b")]) as house:
        handle = await house.agent()
        handle.agent.cancel(USER)
        handle.agent.followup(user_message("hangs"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        handle.agent.cancel(USER)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)


@pytest.mark.holds("G3", "CA14", "CA29")
async def test_a_plain_cancel_discards_everything_pending() -> None:
    async with open_test_house(replies=[stalls()]) as house:
        handle = await house.agent()
        discarded: list[str] = []
        house.ctx.on(ev.agent.INBOX_DISCARDED)(lambda n: discarded.append(n.message.id))
        handle.agent.followup(user_message("hangs"))
        await wait_all_tasks_blocked()
        handle.agent.followup(user_message("tail", id="tail"))
        handle.agent.steer(user_message("steering", id="steering"))
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        assert discarded == ["steering", "tail"]
        assert house.ends(handle) == [ABORTED]


@pytest.mark.holds("CA03", "B12")
async def test_a_kept_inbox_stays_parked_until_the_next_wake() -> None:
    async with open_test_house(replies=[stalls(), says("a"), says("b")]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("hangs", id="hangs"))
        handle.agent.followup(user_message("queued", id="queued"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(USER, keep_inbox=True)
        await handle.agent.when_idle()
        await wait_all_tasks_blocked()
        assert [m.id for m in handle.agent.pending("next-turn")] == ["queued"]
        await handle.agent.ask(user_message("next", id="next"))
        assert prompts(house, handle) == ["hangs", "queued", "next"]
        assert [reason.kind for reason in house.ends(handle)] == ["aborted"] + ["completed"] * 2


@pytest.mark.holds("CA31", "G1", "GR16")
async def test_a_later_cause_or_disposal_does_not_rewrite_the_first() -> None:
    async with open_test_house(replies=[stalls()]) as house:
        handle = await house.agent()
        session = house.session(handle)
        handle.agent.followup(user_message("hangs"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(records.HookCause(reason="first"))
        handle.agent.cancel(USER)
        await handle.aclose()
        last = session.events[-1].data
        assert last == ev.turn.End(
            turn=1, reason=records.AbortedTurnEnd(reason=records.HookCause(reason="first"))
        )


@pytest.mark.holds("CA09", "G6")
async def test_two_sends_and_a_cancel_at_once_make_one_aborted_turn_without_a_step() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        handle.agent.followup(user_message("one"))
        handle.agent.followup(user_message("two"))
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        assert house.ends(handle) == [ABORTED]
        assert prompts(house, handle) == []
        assert ev.step.START.name not in house.names(handle)


@pytest.mark.holds("CA26", "G6")
async def test_a_cancel_by_a_running_listener_opens_no_turn_at_all() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        statuses: list[str] = []

        def cancel(notice: ev.agent.Status) -> None:
            statuses.append(notice.status)
            if notice.status == "running":
                handle.agent.cancel(USER, keep_inbox=True)

        house.ctx.on(ev.agent.STATUS)(cancel)
        handle.agent.followup(user_message("go", id="go"))
        assert statuses == ["running", "idle"]
        assert handle.agent.turn == 0
        assert house.names(handle) == [ev.agent.INBOX_SPLICED.name]
        assert [m.id for m in handle.agent.pending("next-turn")] == ["go"]


@pytest.mark.holds("CA27")
async def test_a_running_listener_that_cancels_the_old_and_sends_new_work() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        done: list[bool] = []

        def replace(notice: ev.agent.Status) -> None:
            if notice.status == "running" and not done:
                done.append(True)
                handle.agent.cancel(USER)
                handle.agent.followup(user_message("new", id="new"))

        house.ctx.on(ev.agent.STATUS)(replace)
        handle.agent.followup(user_message("old", id="old"))
        await handle.agent.when_idle()
        assert prompts(house, handle) == ["new"]
        assert [reason.kind for reason in house.ends(handle)] == ["completed"]


@pytest.mark.holds("CA11", "C2", "M3")
async def test_a_waiter_from_before_a_pre_step_cancel_is_released() -> None:
    async with open_test_house() as house:
        handle = await house.agent()

        async def hang(step: ev.agent.PreStep, call_next: Next[object]) -> object:
            await trio.sleep_forever()

        house.ctx.on(ev.agent.PRE_STEP)(hang)  # type: ignore[arg-type]
        handle.agent.followup(user_message("go"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle.agent.when_idle)
            await wait_all_tasks_blocked()
            handle.agent.cancel(USER)
        assert house.ends(handle) == [ABORTED]


@pytest.mark.holds("CA12", "M3")
async def test_an_idle_listener_that_sends_and_withdraws_leaves_no_waiter_behind() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        done: list[bool] = []

        def tease(notice: ev.agent.Status) -> None:
            if notice.status == "idle" and not done:
                done.append(True)
                handle.agent.followup(user_message("teased", id="teased"))
                handle.agent.cancel(USER)

        house.ctx.on(ev.agent.STATUS)(tease)
        with trio.fail_after(5):
            await handle.agent.ask(user_message("go", id="go"))
            await handle.agent.when_idle()
            await handle.agent.ask(user_message("later", id="later"))
        assert prompts(house, handle) == ["go", "later"]


@pytest.mark.holds("A16", "C2", "CA28")
async def test_an_idle_listener_that_sends_is_followed_by_whoever_waits() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        statuses: list[str] = []

        def again(notice: ev.agent.Status) -> None:
            statuses.append(notice.status)
            if notice.status == "idle" and len(statuses) == 2:
                handle.agent.followup(user_message("again", id="again"))

        house.ctx.on(ev.agent.STATUS)(again)
        handle.agent.followup(user_message("go", id="go"))
        await handle.agent.when_idle()
        assert prompts(house, handle) == ["go", "again"]
        assert statuses == ["running", "idle", "running", "idle"]


@pytest.mark.holds("B11", "CA07", "CA28", "M1")
async def test_a_wake_in_the_convergence_window_runs_when_the_agent_is_at_rest() -> None:
    async with open_test_house(replies=[stalls(), says("a")]) as house:
        handle = await house.agent()

        handle.agent.followup(user_message("hangs", id="hangs"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(USER)
        assert handle.agent.status == "running"
        handle.agent.steer(user_message("late", id="late"))
        # It cannot join what was cancelled: it became a prompt.
        assert [m.id for m in handle.agent.pending("next-turn")] == ["late"]
        await handle.agent.when_idle()
        assert prompts(house, handle) == ["hangs", "late"]
        assert [reason.kind for reason in house.ends(handle)] == ["aborted", "completed"]


@pytest.mark.holds("CA05", "B11", "G4")
async def test_a_second_cancel_drops_the_latch_with_the_inbox() -> None:
    async with open_test_house(replies=[stalls(), says("a")]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("hangs", id="hangs"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(USER)
        handle.agent.followup(user_message("late", id="late"))
        handle.agent.cancel(USER)
        await handle.agent.when_idle()
        await wait_all_tasks_blocked()
        assert prompts(house, handle) == ["hangs"]
        await handle.agent.ask(user_message("later", id="later"))
        assert prompts(house, handle) == ["hangs", "later"]


@pytest.mark.holds("B11", "M5")
async def test_a_latched_wake_whose_message_was_withdrawn_opens_no_turn() -> None:
    async with open_test_house(replies=[stalls()]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("hangs"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(USER)
        handle.agent.followup(user_message("late", id="late"))
        assert handle.agent.remove("late")
        await handle.agent.when_idle()
        assert house.ends(handle) == [ABORTED]


@pytest.mark.holds("B11", "M4")
async def test_a_listener_of_the_insertion_cannot_reclassify_it() -> None:
    async with open_test_house(replies=[stalls(), says("a")]) as house:
        handle = await house.agent()

        def cancel(notice: ev.agent.InboxInserted) -> None:
            if notice.message.id == "steer":
                handle.agent.cancel(USER, keep_inbox=True)

        house.ctx.on(ev.agent.INBOX_INSERTED)(cancel)
        handle.agent.followup(user_message("hangs", id="hangs"))
        await wait_all_tasks_blocked()
        handle.agent.steer(user_message("steer", id="steer"))
        # It was sent to a live activity: it stays where it was put, and is not run by itself.
        assert [m.id for m in handle.agent.pending("next-step")] == ["steer"]
        await handle.agent.when_idle()
        await wait_all_tasks_blocked()
        assert prompts(house, handle) == ["hangs"]


@pytest.mark.holds("G8", "CR09", "CR26", "LP47", "M6")
async def test_disposal_latches_nothing_and_the_queued_tail_never_starts() -> None:
    async with open_test_house(replies=[stalls(text("seen"))]) as house:
        handle = await house.agent()
        session = house.session(handle)
        handle.agent.followup(user_message("hangs", id="hangs"))
        handle.agent.followup(user_message("tail", id="tail"))
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle.aclose)
            await trio.lowlevel.checkpoint()
            handle.agent.followup(user_message("late", id="late"))
        kinds = [e.data.reason for e in session.events if isinstance(e.data, ev.turn.End)]
        assert kinds == [records.AbortedTurnEnd(reason=records.DisposedCause())]
        assert house.agents.get("s") is None
        assert len(house.model.requests) == 1
