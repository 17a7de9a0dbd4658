"""Deliveries in odd moments: inside publications, from threads, after the end; and `ask`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import AgentClosed, AgentError, InboxConflict
from dsh.testing import TestHouse, broken_laws, open_test_house, says, stalls

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import Logged, Next
    from dsh.hooks.live import LlmRequest


def turns_of(house: TestHouse, handle: AgentHandle) -> list[tuple[int, str]]:
    return [
        (event.data.turn, event.data.reason.kind)
        for event in house.session(handle).events
        if isinstance(event.data, ev.turn.End)
    ]


@pytest.mark.holds("B16", "B17", "LP44", "M4")
async def test_a_delivery_inside_a_publication_is_queued_and_applied_before_control_returns() -> (
    None
):
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        nested: list[tuple[int, ...]] = []

        @house.ctx.on(ev.agent.INBOX_SPLICED)
        def again(event: Logged[ev.agent.InboxSpliced]) -> None:
            if event.data.inserted and event.data.inserted[0].id == "one":
                handle.agent.followup(user_message("two", id="two"))
                nested.append(tuple(len(handle.agent.pending(t)) for t in ("next-turn",)))

        handle.agent.send(user_message("one", id="one"), target="next-turn", wakeup=False)
        assert nested == [(1,)]
        # `two` woke the agent after the first splice was published, and before send returned.
        assert handle.agent.status == "running"
        assert [m.id for m in handle.agent.pending("next-turn")] == ["two"]
        await handle.agent.when_idle()
        assert house.texts(handle) == ["one", "two"]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("LP44", "LP45", "B17")
async def test_a_send_after_the_claim_lands_in_the_following_turn() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        sent: list[str] = []

        async def answering(request: LlmRequest):  # type: ignore[no-untyped-def]  # noqa: ANN202
            handle.agent.followup(user_message("from the adapter", id="adapter"))
            for chunk in chunks_of(says("a")):
                yield chunk

        @house.ctx.on(ev.turn.START)
        def send(event: Logged[ev.turn.Start]) -> None:
            if not sent:
                sent.append("x")
                handle.agent.followup(user_message("from a listener", id="listener"))

        from dsh.llm import chunks_of

        house.model.replies[:] = [answering, says("b"), says("c")]
        handle.agent.followup(user_message("go"))
        await handle.agent.when_idle()
        assert house.texts(handle) == ["go", "from a listener", "from the adapter"]
        assert [turn for turn, _ in turns_of(house, handle)] == [1, 2, 3]


@pytest.mark.holds("NEW-4", "B2")
async def test_observers_of_a_splice_see_the_lists_after_it() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()
        seen: list[int] = []
        house.ctx.on(ev.agent.INBOX_SPLICED)(
            lambda event: seen.append(len(handle.agent.pending("next-step")))
        )
        handle.agent.inject(user_message("one"))
        handle.agent.inject(user_message("two"))
        handle.agent.clear()
        assert seen == [1, 2, 0]


@pytest.mark.holds("AG03", "B4", "GR02")
async def test_each_change_tells_exactly_what_happened() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        agent = handle.agent
        told: list[str] = []
        house.ctx.on(ev.agent.INBOX_INSERTED)(lambda n: told.append(f"+{n.message.id}"))
        house.ctx.on(ev.agent.INBOX_DISCARDED)(lambda n: told.append(f"-{n.message.id}"))
        agent.inject(user_message("one", id="one"))
        agent.send(user_message("two", id="two"), target="next-turn", wakeup=False)
        assert agent.replace("two", user_message("three", id="three"))
        assert not agent.replace("two", user_message("four"))
        assert agent.remove("one")
        assert not agent.remove("one")
        assert told == ["+one", "+two", "-two", "+three", "-one"]


@pytest.mark.holds("B6", "GR04")
async def test_clear_takes_back_step_input_first_then_prompts() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        handle.agent.inject(user_message("a", id="a"))
        handle.agent.send(user_message("b", id="b"), target="next-turn", wakeup=False)
        told: list[str] = []
        house.ctx.on(ev.agent.INBOX_DISCARDED)(lambda n: told.append(n.message.id))
        handle.agent.clear()
        assert told == ["a", "b"]
        last = [
            (event.data.target, event.data.outcome)
            for event in house.session(handle).events[-2:]
            if isinstance(event.data, ev.agent.InboxSpliced)
        ]
        assert last == [("next-step", "canceled"), ("next-turn", "canceled")]
        before = house.names(handle)
        handle.agent.clear()
        assert house.names(handle) == before


@pytest.mark.holds("AG2")
async def test_a_call_from_another_thread_is_refused_with_the_remedy() -> None:
    async with open_test_house() as house:
        handle = await house.agent()

        def call() -> None:
            handle.agent.followup(user_message("x"))

        with pytest.raises(AgentError, match=r"trio\.from_thread\.run_sync"):
            await trio.to_thread.run_sync(call)


@pytest.mark.holds("G8")
async def test_a_closed_agent_refuses_messages_naming_the_remedy() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        await handle.aclose()
        with pytest.raises(AgentClosed, match="resume session 's'"):
            handle.agent.followup(user_message("x"))


@pytest.mark.holds("AG1", "M29")
async def test_ask_reports_its_own_turn_and_a_withdrawn_message() -> None:
    async with open_test_house(replies=[stalls(), says("later")]) as house:
        handle = await house.agent()
        failures: list[str] = []

        async def ask(message_id: str) -> None:
            try:
                await handle.agent.ask(user_message("x", id=message_id))
            except AgentError as error:
                failures.append(f"{message_id} {error.code}")

        async with trio.open_nursery() as nursery:
            handle.agent.followup(user_message("busy"))
            nursery.start_soon(ask, "taken back")
            nursery.start_soon(ask, "gone")
            await trio.testing.wait_all_tasks_blocked()
            handle.agent.remove("taken back")
            await trio.testing.wait_all_tasks_blocked()
            assert failures == ["taken back WITHDRAWN"]
            await handle.aclose()
        assert failures == ["taken back WITHDRAWN", "gone AGENT_CLOSED"]


async def test_two_asks_for_one_message_are_refused() -> None:
    async with open_test_house(replies=[stalls()]) as house:
        handle = await house.agent()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle.agent.ask, user_message("x", id="x"))
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(InboxConflict, match="waits for message 'x'"):
                await handle.agent.ask(user_message("x", id="x"))
            handle.agent.cancel(records.UserCause())


@pytest.mark.holds("IN11", "IN03", "IN01", "IN02", "LP30")
async def test_pre_step_sees_exactly_the_claimed_messages_with_right_coordinates() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        seen: list[tuple[int, int, tuple[records.UserMessage, ...]]] = []
        message = user_message("go")

        @house.ctx.on(ev.agent.PRE_STEP)
        async def watch(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            seen.append((step.turn, step.step, step.messages))
            if len(seen) == 1:
                handle.agent.inject(user_message("late", id="late"))
            return await call_next()

        await handle.agent.ask(message)
        assert seen[0] == (1, 1, (message,))
        assert seen[0][2][0] is message
        assert [(turn, step) for turn, step, _ in seen] == [(1, 1), (1, 2)]
        assert [m.id for m in seen[1][2]] == ["late"]
        assert house.texts(handle) == ["go", "late"]
