"""Somebody who writes down what happens to messages, and says what went missing.

What comes in: an agent, watched from its publication on. What goes out: the laws of the inbox that
were broken: each message is pending, claimed or taken back, once; and what should have run did.
It only listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.catalog import records

if TYPE_CHECKING:
    from dsh.hooks import Logged, live
    from dsh.testing.chance import Cancel, Chance
    from dsh.testing.house import TestHouse

__all__ = ["Witness"]


class Witness:
    """Of one life, over all agents that live it one after the other."""

    def __init__(self, chance: Chance) -> None:
        self._chance: Final = chance
        self._agent: live.Agent | None = None
        self._house: TestHouse | None = None
        self._inserted: set[str] = set()
        self._gone: set[str] = set()
        self._status: records.AgentStatus = "idle"
        # Of the newest turn: the cancels before it, its steps, how it ended.
        self._cancels = 0
        self._steps = 0
        self._ended: records.TurnEndReason | None = None
        # The cancels before a turn that must come.
        self._expected: int | None = None
        # Of the open turn: its number, the first cause, and what a cancel found pending and kept.
        self._turn: int | None = None
        self._cause: records.CancelCause | None = None
        self._kept: set[str] = set()
        self._claiming = False
        self._admitted: set[str] = set()
        chance.before_cancel = self._keeps
        chance.after_cancel = self._cancelled

    def watch(self, house: TestHouse, agent: live.Agent) -> None:
        """Watch this agent from now on; what an earlier one left pending counts on."""
        self._agent, self._status = agent, "idle"
        self._ended = self._expected = self._turn = None
        self._inserted |= set(self.pending())
        if self._house is house:
            return
        self._house = house
        on = house.ctx.on
        on(ev.agent.INBOX_INSERTED, prepend=True)(self._came)
        on(ev.agent.INBOX_CLAIMED, prepend=True)(self._claimed)
        on(ev.agent.INBOX_DISCARDED, prepend=True)(lambda n: self._left(n.message, "taken back"))
        on(ev.agent.STATUS, prepend=True)(self._changed)
        on(ev.agent.INBOX_SPLICED, prepend=True)(self._spliced)
        on(ev.turn.START, prepend=True)(self._began)
        on(ev.step.START, prepend=True)(self._stepped)
        on(ev.turn.END, prepend=True)(self._closed)
        on(ev.user.MESSAGE, prepend=True)(self._was_admitted)

    def pending(self) -> list[str]:
        """The ids of all pending messages, in order."""
        agent = self._agent
        assert agent is not None
        both = (*agent.pending("next-step"), *agent.pending("next-turn"))
        return [message.id for message in both]

    def expects_a_turn(self) -> None:
        """Something wakes the agent now; unless it is cancelled again, a turn begins."""
        self._expected = self._chance.cancels

    def at_rest(self) -> None:
        """Say what is wrong with an agent at rest."""
        left = set(self.pending())
        if lost := self._inserted - self._gone - left:
            self._broken(f"{len(lost)} messages are neither pending nor gone")
        if back := left & self._gone:
            self._broken(f"{len(back)} messages came back")
        assert self._agent is not None
        if self._agent.status != self._status:
            self._broken(f"it is {self._agent.status} and told {self._status}")
        if self._expected == self._chance.cancels:
            self._broken("a wake after a cancel opened no turn")

    def _broken(self, text: str) -> None:
        self._chance.life.broken.append(text)

    def _came(self, notice: ev.agent.InboxInserted) -> None:
        if notice.message.id in self._inserted:
            self._broken(f"message {notice.message.id} was inserted twice")
        self._inserted.add(notice.message.id)

    def _left(self, message: records.UserMessage, how: str) -> None:
        if message.id not in self._inserted or message.id in self._gone:
            self._broken(f"message {message.id} was {how} and not there")
        self._gone.add(message.id)

    def _spliced(self, event: Logged[ev.agent.InboxSpliced]) -> None:
        splice = event.data
        claim = splice.outcome is None and splice.removed_count
        self._claiming = bool(claim)
        if claim and splice.target == "next-turn" and splice.removed_count != 1:
            self._broken(f"{splice.removed_count} prompts were claimed for one turn")

    def _keeps(self, cancel: Cancel) -> None:
        # A claim is one act; what a listener between its two splices asks for comes after it.
        if self._turn is not None and cancel.keep_inbox and not self._claiming:
            self._kept |= set(self.pending())

    def _cancelled(self, cancel: Cancel) -> None:
        # Afterwards: a listener of what it takes back may cancel, and comes first then.
        if self._turn is not None:
            self._cause = self._cause or cancel.cause

    def _claimed(self, notice: ev.agent.InboxClaimed) -> None:
        self._claiming = False
        self._left(notice.message, "claimed")
        if notice.message.id in self._kept and notice.turn == self._turn:
            self._broken("a cancelled turn claimed what its cancel had kept")

    def _was_admitted(self, event: Logged[ev.user.Message]) -> None:
        message = event.data.message.id
        if message in self._admitted & self._gone:
            self._broken("a message was admitted twice")
        self._admitted.add(message)

    def _began(self, event: Logged[ev.turn.Start]) -> None:
        self._turn, self._cause, self._kept = event.data.turn, None, set()
        self._expected = None
        self._cancels, self._steps, self._ended = self._chance.cancels, 0, None

    def _stepped(self, event: Logged[ev.step.Start]) -> None:
        self._steps = event.data.step

    def _closed(self, event: Logged[ev.turn.End]) -> None:
        self._ended = reason = event.data.reason
        lawful = [records.AbortedTurnEnd(reason=records.DisposedCause())]
        if self._cause is not None:
            lawful.append(records.AbortedTurnEnd(reason=self._cause))
            if reason not in lawful:
                self._broken(f"a turn was cancelled ({self._cause.kind}) and ended {reason}")
        elif isinstance(reason, records.AbortedTurnEnd) and reason not in lawful:
            self._broken(f"a turn that nobody cancelled ended {reason}")
        self._turn = None

    def _changed(self, notice: ev.agent.Status) -> None:
        if notice.status == self._status:
            self._broken(f"{notice.status} was told twice")
        self._status = notice.status
        if notice.status == "running" or self._chance.cancels != self._cancels:
            return
        normal = isinstance(self._ended, records.CompletedTurnEnd | records.MaxTokensTurnEnd)
        if normal and self._steps and notice.agent.pending("next-turn"):
            self._broken("a prompt was left behind a turn that ended well")
