"""Who waits for which message's turn: the bookkeeping behind `agent.ask`.

What comes in: message ids to wait for, and what the driver tells of claims, replies, endings and
withdrawals. What goes out: one `TurnOutcome` per waiter, or the reason why there will be none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from dsh.errors import AgentClosed, AgentError, InboxConflict
from dsh.hooks import live

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh.catalog import records

__all__ = ["Asks"]


class _Waiter:
    __slots__ = ("answered", "failure", "outcome", "turn")

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.turn: int | None = None
        self.outcome: live.TurnOutcome | None = None
        self.failure: AgentError | None = None


class Asks:
    """The waiters of one agent. All methods but `outcome_of` are synchronous."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._waiting: dict[str, _Waiter] = {}
        self._text = ""

    def expect(self, message_id: str) -> None:
        """Begin to wait for the turn that claims this message. Raises InboxConflict."""
        if message_id in self._waiting:
            raise InboxConflict(
                f"somebody waits for message {message_id!r} already; give each message its own id"
            )
        self._waiting[message_id] = _Waiter()

    def forget(self, message_id: str) -> None:
        """Nobody waits any more."""
        self._waiting.pop(message_id, None)

    async def outcome_of(self, message_id: str) -> live.TurnOutcome:
        """Wait for it. Raises AgentError when the message was withdrawn, AgentClosed at the end.

        Cancellable: the turn goes on, only the waiting ends.
        """
        waiter = self._waiting[message_id]
        try:
            await waiter.answered.wait()
        finally:
            self.forget(message_id)
        if waiter.outcome is None:
            raise waiter.failure or AgentClosed(f"agent {self._session_id!r} was closed")
        return waiter.outcome

    def claimed(self, messages: Iterable[records.UserMessage], turn: int) -> None:
        """`turn` claimed these; a new turn's first claim also begins its text anew."""
        for message in messages:
            waiter = self._waiting.get(message.id)
            if waiter is not None:
                waiter.turn = turn

    def began(self) -> None:
        """A turn started: it has said nothing yet."""
        self._text = ""

    def said(self, text: str) -> None:
        """The model's newest text in the open turn."""
        if text:
            self._text = text

    def ended(self, turn: int, reason: records.TurnEndReason) -> None:
        """`turn` is closed."""
        outcome = live.TurnOutcome(
            session_id=self._session_id, turn=turn, reason=reason, text=self._text
        )
        for waiter in self._waiting.values():
            if waiter.turn == turn:
                waiter.outcome = outcome
                waiter.answered.set()

    def withdrawn(self, message_id: str) -> None:
        """A pending message was taken back; no turn will claim it."""
        waiter = self._waiting.get(message_id)
        if waiter is not None and waiter.turn is None:
            waiter.failure = AgentError(
                f"message {message_id!r} was taken back before any turn claimed it "
                "(a cancel clears the inbox unless it says keep_inbox); send it again",
                code="WITHDRAWN",
            )
            waiter.answered.set()

    def close(self) -> None:
        """The agent is gone; whoever still waits is told so."""
        for message_id, waiter in self._waiting.items():
            if not waiter.answered.is_set():
                waiter.failure = AgentClosed(
                    f"agent {self._session_id!r} was closed before a turn answered {message_id!r}"
                )
                waiter.answered.set()
