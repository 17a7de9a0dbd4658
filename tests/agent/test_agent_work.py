"""Consumed work: the newest turn that took something upon itself, and what was dropped since."""

from __future__ import annotations

import pytest

from dsh import catalog as ev
from dsh.agent import INBOX, ConsumedWork, Inbox, InboxNotices, consumed_work, user_message
from dsh.catalog import records
from dsh.session import ProjectionSet, Session
from dsh.testing import LogWriting

FAILED = records.ErrorTurnEnd(error=records.LlmFailure(message="x", code="UNKNOWN"))
ABORTED = records.AbortedTurnEnd(reason=records.UserCause())


class Written:
    """A log with an inbox."""

    def __init__(self) -> None:
        units = ProjectionSet()
        units.add(INBOX)
        self.log = LogWriting(units=units)
        notices = InboxNotices(
            inserted=lambda m: None, discarded=lambda m: None, claimed=lambda m, turn: None
        )
        self.inbox = Inbox(self.session, notices)

    @property
    def session(self) -> Session:
        return self.log.session

    def send(self, name: str) -> None:
        self.inbox.append("next-turn", user_message(name, id=name))

    def turn(
        self, reason: records.TurnEndReason | None = None, *, claim: bool = True, step: bool = True
    ) -> None:
        self.log.turn_start()
        if claim:
            self.inbox.claim(prompt=True, turn=self.log.turn)
        if step:
            self.log.step_start()
            self.log.step_end()
        self.log.turn_end(reason)

    def work(self) -> ConsumedWork:
        return consumed_work(self.session.events)


@pytest.mark.holds("GW01", "C12")
def test_a_log_without_work_has_consumed_none() -> None:
    assert consumed_work(()) == ConsumedWork()
    written = Written()
    written.send("a")
    assert written.work() == ConsumedWork()


@pytest.mark.holds("GW02")
def test_the_newest_turn_that_entered_a_step_counts() -> None:
    written = Written()
    for name in "ab":
        written.send(name)
        written.turn()
    assert written.work().turn == 2


@pytest.mark.holds("GW03", "GW04", "GW06", "C12")
@pytest.mark.parametrize("reason", [FAILED, ABORTED, records.BlockedTurnEnd()])
def test_a_turn_that_claimed_and_ended_before_a_step_consumed_its_work(
    reason: records.TurnEndReason,
) -> None:
    written = Written()
    written.send("a")
    written.turn()
    written.send("b")
    written.turn(reason, step=False)
    assert written.work().turn == 2


@pytest.mark.holds("GW07")
def test_a_claim_that_its_turn_emptied_is_ignored() -> None:
    written = Written()
    written.send("a")
    written.turn()
    written.send("b")
    written.turn(records.CompletedTurnEnd(), step=False)
    assert written.work().turn == 1


@pytest.mark.holds("GW08")
def test_a_claim_outside_of_turns_is_credited_to_none() -> None:
    written = Written()
    written.send("a")
    written.inbox.claim(prompt=True, turn=1)
    assert written.work() == ConsumedWork()
    written.turn(ABORTED, claim=False, step=False)
    assert written.work().turn is None


@pytest.mark.holds("GW09", "GW10")
def test_what_was_taken_back_after_the_last_turn_is_dropped_and_a_replacement_is_not() -> None:
    written = Written()
    for name in "abcd":
        written.send(name)
    written.inbox.remove("d")
    written.turn()
    written.inbox.replace("b", user_message("e", id="e"))
    assert written.work() == ConsumedWork(turn=1)
    written.inbox.clear()
    assert written.work() == ConsumedWork(turn=1, dropped=("e", "c"))
    written.send("f")
    written.turn()
    assert written.work() == ConsumedWork(turn=2)


def test_an_open_turn_counts_as_soon_as_it_took_something() -> None:
    written = Written()
    written.send("a")
    written.log.turn_start()
    assert written.work().turn is None
    written.inbox.claim(prompt=True, turn=1)
    assert written.work().turn == 1
    assert isinstance(written.session.events[1].data, ev.turn.Start)
