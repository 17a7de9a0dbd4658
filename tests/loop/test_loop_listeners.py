"""What a synchronous listener may do in a narrow place: cancel, speak up, ask for maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import AgentBusy
from dsh.llm import ScriptEntry
from dsh.testing import broken_laws, open_test_house, says

if TYPE_CHECKING:
    from dsh.hooks import Logged, live

USER = records.UserCause()
ABORTED = records.AbortedTurnEnd(reason=USER)


@pytest.mark.holds("C17", "G6", "M9")
@pytest.mark.parametrize("keep_inbox", [False, True])
async def test_a_cancel_by_a_listener_of_a_vote_aborts_the_turn(*, keep_inbox: bool) -> None:
    """Taking the vote back with the inbox must not look like nobody having voted."""
    async with open_test_house(replies=[says("one"), says("two")]) as house:
        handle = await house.agent()

        @house.ctx.on(ev.agent.TURN_STOPPING)
        async def vote(stop: ev.agent.TurnStopping) -> ev.agent.KeepGoing:
            return ev.agent.KeepGoing(message=user_message("more", id="vote"))

        @house.ctx.on(ev.agent.INBOX_INSERTED)
        def cancel(notice: ev.agent.InboxInserted) -> None:
            if notice.message.id == "vote":
                notice.agent.cancel(USER, keep_inbox=keep_inbox)

        handle.agent.followup(user_message("go"))
        await handle.agent.when_idle()
        assert house.ends(handle) == [ABORTED]
        pending = [message.id for message in handle.agent.pending("next-step")]
        assert pending == (["vote"] if keep_inbox else [])
        assert len(house.model.requests) == 1


@pytest.mark.holds("B12", "G6")
@pytest.mark.parametrize("keep_inbox", [False, True])
async def test_what_a_cancel_by_a_listener_of_turn_start_keeps_is_not_claimed(
    *, keep_inbox: bool
) -> None:
    async with open_test_house(replies=[says("one")]) as house:
        handle = await house.agent()

        @house.ctx.on(ev.turn.START)
        def cancel(event: Logged[ev.turn.Start]) -> None:
            if event.data.turn == 1:
                handle.agent.cancel(USER, keep_inbox=keep_inbox)

        handle.agent.followup(user_message("go", id="prompt"))
        await handle.agent.when_idle()
        assert house.ends(handle) == [ABORTED]
        pending = [message.id for message in handle.agent.pending("next-turn")]
        assert pending == (["prompt"] if keep_inbox else [])
        handle.agent.wake()
        await handle.agent.when_idle()
        assert len(house.model.requests) == len(pending)
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("C11", "G6")
@pytest.mark.parametrize("token", [ev.user.MESSAGE, ev.request.HEADER], ids=["message", "header"])
async def test_a_cancel_inside_admission_dispatches_nothing(token: object) -> None:
    """What was admitted stays; no attempt begins, so no frame tells of one."""
    async with open_test_house(replies=[says("never"), says("next")]) as house:
        handle = await house.agent()
        frames: list[str] = []
        house.ctx.on(ev.agent.ASSISTANT_STREAM)(lambda notice: frames.append(notice.frame.type))

        @house.ctx.on(ev.session.EVENT)
        def cancel(notice: ev.session.Event) -> None:
            if notice.event.data.TOKEN is token and handle.agent.turn == 1:
                handle.agent.cancel(USER)

        handle.agent.followup(user_message("go"))
        await handle.agent.when_idle()
        assert house.ends(handle) == [ABORTED]
        assert frames == []
        assert house.model.requests == []
        assert broken_laws(house.session(handle)) == []
        roles = [message.role for message in house.session(handle).derive_messages()]
        assert roles == ["user"]
        assert (await handle.agent.ask(user_message("and now?"))).text == "never"


@pytest.mark.holds("C21", "G7")
async def test_a_turn_that_was_told_to_have_failed_stays_failed() -> None:
    """`agent/error` and the end of the turn must not contradict each other."""
    failing = ScriptEntry(error=records.LlmFailure(message="no", code="AUTH"))
    async with open_test_house(replies=[failing, says("next")]) as house:
        handle = await house.agent()
        house.ctx.on(ev.agent.ERROR)(lambda notice: notice.agent.cancel(USER))
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert (await handle.agent.ask(user_message("and now?"))).text == "next"


@pytest.mark.holds("G9", "C2")
async def test_maintenance_is_refused_while_the_agent_tells_that_it_is_idle() -> None:
    """What was latched meanwhile has the next claim on the agent; maintenance comes after it."""
    async with open_test_house(replies=[says("one"), says("two")]) as house:
        handle = await house.agent()
        refusals: list[str] = []

        async def job(signal: live.TurnSignal) -> None:
            raise AssertionError("it ran")

        @house.ctx.on(ev.agent.STATUS)
        def idle(notice: ev.agent.Status) -> None:
            if notice.status == "idle" and not refusals:
                notice.agent.followup(user_message("and this"))
                asked = handle.agent.run_maintenance(job)
                with pytest.raises(AgentBusy) as refused:
                    asked.send(None)
                refusals.append(str(refused.value))

        handle.agent.followup(user_message("go"))
        await handle.agent.when_idle()
        assert len(refusals) == 1
        assert "when_idle" in refusals[0]
        assert house.ends(handle) == [records.CompletedTurnEnd()] * 2


@pytest.mark.holds("B4", "M4")
async def test_a_message_is_told_of_before_what_becomes_of_it() -> None:
    """A listener of the splice takes a message back, or wakes it, before its notice was told."""
    async with open_test_house(replies=[says("one")]) as house:
        handle = await house.agent()
        told: list[tuple[str, str]] = []
        on = house.ctx.on
        on(ev.agent.INBOX_INSERTED)(lambda n: told.append(("inserted", n.message.id)))
        on(ev.agent.INBOX_DISCARDED)(lambda n: told.append(("discarded", n.message.id)))
        on(ev.agent.INBOX_CLAIMED)(lambda n: told.append(("claimed", n.message.id)))

        @on(ev.agent.INBOX_SPLICED)
        def react(event: Logged[ev.agent.InboxSpliced]) -> None:
            for message in event.data.inserted:
                if message.id == "unwanted":
                    handle.agent.clear()
                if message.id == "urgent":
                    handle.agent.wake()

        handle.agent.inject(user_message("no", id="unwanted"))
        assert told == [("inserted", "unwanted"), ("discarded", "unwanted")]
        told.clear()
        handle.agent.inject(user_message("yes", id="urgent"))
        assert told == [("inserted", "urgent"), ("claimed", "urgent")]
        await handle.agent.when_idle()
        assert house.ends(handle) == [records.CompletedTurnEnd()]


@pytest.mark.holds("B4", "B7")
async def test_a_claim_is_told_of_before_what_its_listeners_ask_for() -> None:
    async with open_test_house(replies=[says("one")]) as house:
        handle = await house.agent()
        told: list[tuple[str, str]] = []
        house.ctx.on(ev.agent.INBOX_INSERTED)(lambda n: told.append(("inserted", n.message.id)))
        house.ctx.on(ev.agent.INBOX_CLAIMED)(lambda n: told.append(("claimed", n.message.id)))

        @house.ctx.on(ev.agent.INBOX_SPLICED)
        def react(event: Logged[ev.agent.InboxSpliced]) -> None:
            if event.data.removed_count and len(told) == 1:
                handle.agent.inject(user_message("aside", id="aside"))

        handle.agent.followup(user_message("go", id="prompt"))
        assert told == [("inserted", "prompt"), ("claimed", "prompt"), ("inserted", "aside")]
        await handle.agent.when_idle()
