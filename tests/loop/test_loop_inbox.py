"""Deliveries through a live agent: who wakes, what is claimed when, what stays parked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import AgentError, InboxConflict, InvalidAppend
from dsh.testing import TestHouse, open_test_house, says, stalls

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import Logged


def turns_of(house: TestHouse, handle: AgentHandle) -> list[tuple[int, str]]:
    return [
        (event.data.turn, event.data.reason.kind)
        for event in house.session(handle).events
        if isinstance(event.data, ev.turn.End)
    ]


@pytest.mark.holds("B14", "AG01", "LP22")
async def test_an_idle_injection_is_durable_and_opens_no_turn() -> None:
    async with open_test_house(replies=[says("yes")]) as house:
        handle = await house.agent()
        handle.agent.inject(user_message("fact"))
        await trio.testing.wait_all_tasks_blocked()
        assert handle.agent.status == "idle"
        assert [m.content for m in handle.agent.pending("next-step")] == [
            (records.TextBlock(text="fact"),)
        ]
        assert house.names(handle) == [ev.agent.INBOX_SPLICED.name]
        await handle.agent.ask(user_message("go"))
        assert house.texts(handle) == ["fact", "go"]


@pytest.mark.holds("AG02", "CR14", "LP23")
async def test_sources_and_structured_content_arrive_verbatim() -> None:
    async with open_test_house(replies=[says("yes")]) as house:
        handle = await house.agent()
        source = records.PluginSource(plugin="", form="notice", data={"a": [1, None]})
        message = user_message(
            (records.TextBlock(text="one"), records.TextBlock(text="two")), source=source, id="x"
        )
        handle.agent.steer(message)
        await handle.agent.when_idle()
        admitted = [
            event.data.message
            for event in house.session(handle).events
            if isinstance(event.data, ev.user.Message)
        ]
        assert admitted == [message]
        assert admitted[0].source == source


@pytest.mark.holds("AG05", "AG06", "B1")
async def test_an_idle_steer_wakes_and_status_is_told_once_each_way() -> None:
    async with open_test_house(replies=[says("yes")]) as house:
        handle = await house.agent()
        told: list[str] = []
        house.ctx.on(ev.agent.STATUS)(lambda notice: told.append(notice.status))
        handle.agent.steer(user_message("go"))
        await handle.agent.when_idle()
        assert told == ["running", "idle"]
        assert turns_of(house, handle) == [(1, "completed")]


@pytest.mark.holds("AG07", "AG08", "C2")
async def test_when_idle_returns_at_once_and_else_after_the_activity() -> None:
    async with open_test_house(replies=[stalls()]) as house:
        handle = await house.agent()
        with trio.fail_after(1):
            await handle.agent.when_idle()
        handle.agent.followup(user_message("go"))
        await trio.testing.wait_all_tasks_blocked()
        returned: list[str] = []

        async def wait() -> None:
            await handle.agent.when_idle()
            returned.append(handle.agent.status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert returned == []
            handle.agent.cancel(records.UserCause())
        assert returned == ["idle"]


@pytest.mark.holds("B15", "AG04")
async def test_what_cannot_be_sent_changes_nothing() -> None:
    async with open_test_house(replies=[says("yes")]) as house:
        handle = await house.agent()
        agent = handle.agent
        agent.inject(user_message("one", id="same"))
        before = house.names(handle)
        with pytest.raises(InboxConflict, match="'same' is already pending"):
            agent.followup(user_message("two", id="same"))
        with pytest.raises(AgentError, match="send a UserMessage"):
            agent.send("text", target="next-turn", wakeup=True)  # type: ignore[arg-type]
        with pytest.raises(InvalidAppend):
            agent.followup(user_message("lone \ud800 surrogate"))
        assert house.names(handle) == before
        assert agent.status == "idle"
        assert agent.pending("next-turn") == ()


@pytest.mark.holds("PR01", "PR02", "B7", "LP43")
async def test_a_burst_of_prompts_runs_one_turn_each() -> None:
    async with open_test_house(replies=[says(str(n)) for n in range(5)]) as house:
        handle = await house.agent()
        for number in range(3):
            handle.agent.followup(user_message(f"prompt {number}"))
        await handle.agent.when_idle()
        assert turns_of(house, handle) == [(n, "completed") for n in (1, 2, 3)]
        for number in (3, 4):
            outcome = await handle.agent.ask(user_message(f"prompt {number}"))
            assert outcome.turn == number + 1
            assert outcome.text == str(number)
        assert house.texts(handle) == [f"prompt {n}" for n in range(5)]


@pytest.mark.holds("C22")
async def test_between_turns_of_one_driver_the_status_stays_running() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        told: list[str] = []
        house.ctx.on(ev.agent.STATUS)(lambda notice: told.append(notice.status))
        handle.agent.followup(user_message("one"))
        handle.agent.followup(user_message("two"))
        await handle.agent.when_idle()
        assert told == ["running", "idle"]
        assert len(house.model.requests) == 2
        first, second = house.model.requests
        assert first.signal is not second.signal


@pytest.mark.holds("B7", "LP19", "LP20")
async def test_steering_joins_the_next_step_and_prompts_wait_for_their_turn() -> None:
    async with open_test_house(replies=[says("a"), says("b"), says("c")]) as house:
        handle = await house.agent()
        steered = False

        @house.ctx.on(ev.assistant.MESSAGE)
        def steer(event: Logged[ev.assistant.Message]) -> None:
            nonlocal steered
            if not steered:
                steered = True
                handle.agent.steer(user_message("steer"))

        handle.agent.steer(user_message("first"))
        handle.agent.followup(user_message("prompt"))
        handle.agent.inject(user_message("fact"))
        await handle.agent.when_idle()
        assert house.texts(handle) == ["first", "fact", "steer", "prompt"]
        assert turns_of(house, handle) == [(1, "completed"), (2, "completed")]
        starts = [
            (event.data.turn, event.data.step)
            for event in house.session(handle).events
            if isinstance(event.data, ev.step.Start)
        ]
        assert starts == [(1, 1), (1, 2), (2, 1)]


@pytest.mark.holds("B7")
async def test_a_turn_claims_all_steering_and_one_prompt_in_that_order() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        claimed: list[tuple[str, int]] = []
        house.ctx.on(ev.agent.INBOX_CLAIMED)(lambda n: claimed.append((n.message.id, n.turn)))
        agent = handle.agent
        agent.send(user_message("p1", id="p1"), target="next-turn", wakeup=False)
        agent.send(user_message("p2", id="p2"), target="next-turn", wakeup=False)
        agent.inject(user_message("s1", id="s1"))
        agent.inject(user_message("s2", id="s2"))
        agent.wake()
        await agent.when_idle()
        assert claimed == [("s1", 1), ("s2", 1), ("p1", 1), ("p2", 2)]
        splices = [
            (event.data.target, event.data.removed_count, event.data.outcome)
            for event in house.session(handle).events
            if isinstance(event.data, ev.agent.InboxSpliced) and not event.data.inserted
        ]
        assert splices == [("next-step", 2, None), ("next-turn", 1, None), ("next-turn", 1, None)]


@pytest.mark.holds("B9")
async def test_a_wake_while_running_adds_nothing() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("one"))
        handle.agent.wake()
        handle.agent.wake()
        await handle.agent.when_idle()
        assert turns_of(house, handle) == [(1, "completed")]


async def test_wake_without_anything_pending_opens_no_turn() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        handle.agent.wake()
        assert handle.agent.status == "idle"
        assert house.names(handle) == []
