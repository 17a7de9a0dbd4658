"""The inbox: two ordered lists of pending messages, kept as durable splices of the session's log.

What comes in: insertions, edits, removals and claims. What goes out: one `agent/inbox/spliced` for
each real change, then one notice for each message that came, went or was claimed. The lists are a
projection of the log, so they are current when the append returns, and come back on resume. The
inbox never wakes anybody; that is the driver's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from attrs import evolve

from dsh import catalog as ev
from dsh.errors import InboxConflict, InvalidAppend
from dsh.hooks import frozen
from dsh.session import Projection, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.catalog import records
    from dsh.wire import StoredEvent

__all__ = ["INBOX", "TARGETS", "Inbox", "InboxLists", "InboxNotices"]

TARGETS: Final[tuple[records.InboxTarget, ...]] = ("next-step", "next-turn")


@frozen
class InboxLists:
    """Both lists, oldest first."""

    next_turn: tuple[records.UserMessage, ...] = ()
    next_step: tuple[records.UserMessage, ...] = ()

    def of(self, target: records.InboxTarget) -> tuple[records.UserMessage, ...]:
        """One of the two lists."""
        return self.next_turn if target == "next-turn" else self.next_step

    def with_list(
        self, target: records.InboxTarget, messages: tuple[records.UserMessage, ...]
    ) -> InboxLists:
        """The same lists with one of them replaced."""
        if target == "next-turn":
            return evolve(self, next_turn=messages)
        return evolve(self, next_step=messages)

    def ids(self) -> frozenset[str]:
        """The ids of all pending messages."""
        return frozenset(message.id for message in (*self.next_step, *self.next_turn))


def _folded(state: InboxLists, event: StoredEvent) -> InboxLists:
    """The lists after `event`. Raises InvalidAppend, naming its seq, if it cannot apply.

    A fork does not inherit what its parent had pending.
    """
    data = event.data
    if isinstance(data, ev.session.EndSeed):
        return InboxLists() if data.inherited else state
    if not isinstance(data, ev.agent.InboxSpliced):
        return state
    before = state.of(data.target)
    end = data.start + data.removed_count
    if end > len(before):
        raise InvalidAppend(
            f"event {event.seq} removes messages {data.start} to {end} of an inbox list "
            f"({data.target}) that holds {len(before)}; this is no log that dsh wrote"
        )
    after = state.with_list(data.target, (*before[: data.start], *data.inserted, *before[end:]))
    if len(after.ids()) != len(after.next_step) + len(after.next_turn):
        raise InvalidAppend(
            f"event {event.seq} makes two pending messages with one id "
            f"(one of {', '.join(message.id for message in data.inserted)})"
        )
    return after


#: The inbox as a fold of `agent/inbox/spliced`.
INBOX: Final[Projection[InboxLists]] = Projection(
    key="inbox",
    init=InboxLists,
    apply=_folded,
    events=(ev.agent.INBOX_SPLICED, ev.session.END_SEED),
)


@frozen
class InboxNotices:
    """Whom the inbox tells, after the append: of an insertion, a withdrawal, a claim."""

    inserted: Callable[[records.UserMessage], None]
    discarded: Callable[[records.UserMessage], None]
    claimed: Callable[[records.UserMessage, int], None]


class Inbox:
    """The pending messages of one agent. Every method is synchronous and leaves no half state."""

    def __init__(self, session: Session, notices: InboxNotices) -> None:
        self._session = session
        self._notices = notices

    @property
    def lists(self) -> InboxLists:
        """Both lists as they are now."""
        return self._session.projection(INBOX)

    @property
    def empty(self) -> bool:
        """Whether nothing at all is pending."""
        lists = self.lists
        return not lists.next_step and not lists.next_turn

    def append(self, target: records.InboxTarget, message: records.UserMessage) -> None:
        """Add at the end. Raises InboxConflict (the id is pending already), or what append does."""
        self.splice(target, len(self.lists.of(target)), 0, (message,))

    def prepend(self, target: records.InboxTarget, message: records.UserMessage) -> None:
        """Add at the front."""
        self.splice(target, 0, 0, (message,))

    def splice(
        self,
        target: records.InboxTarget,
        start: int,
        remove: int = 0,
        insert: Sequence[records.UserMessage] = (),
    ) -> tuple[records.UserMessage, ...]:
        """Remove `remove` messages from `start` on and put `insert` there; return the removed.

        A negative start counts from the end; both numbers are clamped to the list. Raises
        InboxConflict before anything changed when an id would be pending twice.
        """
        size = len(self.lists.of(target))
        first = max(size + start, 0) if start < 0 else min(start, size)
        count = max(0, min(remove, size - first))
        # One batch: what a listener asks for comes after the notices of what it heard of.
        with self._session.batch():
            gone = self._commit(target, first, count, tuple(insert), "canceled" if count else None)
            for message in gone:
                self._notices.discarded(message)
            for message in insert:
                self._notices.inserted(message)
        return gone

    def replace(self, message_id: str, message: records.UserMessage) -> bool:
        """Put `message` in the place of a pending one. False: that id is not pending."""
        place = self._find(message_id)
        if place is None:
            return False
        self.splice(*place, 1, (message,))
        return True

    def remove(self, message_id: str) -> bool:
        """Take a pending message back. False: it is not pending."""
        place = self._find(message_id)
        if place is None:
            return False
        self.splice(*place, 1)
        return True

    def clear(self) -> None:
        """Take everything back: the next step's input first, then the prompts."""
        for target in TARGETS:
            self.splice(target, 0, len(self.lists.of(target)))

    def claim(self, *, prompt: bool, turn: int) -> tuple[records.UserMessage, ...]:
        """Hand over all input for the next step and, at a turn's start, one prompt.

        Claimed messages are gone from the lists; they never come back to them.
        """
        with self._session.batch():
            claimed = self._commit("next-step", 0, len(self.lists.next_step), (), None)
            if prompt:
                claimed += self._commit("next-turn", 0, min(1, len(self.lists.next_turn)), (), None)
            for message in claimed:
                self._notices.claimed(message, turn)
        return claimed

    def _find(self, message_id: str) -> tuple[records.InboxTarget, int] | None:
        lists = self.lists
        for target in reversed(TARGETS):
            for index, message in enumerate(lists.of(target)):
                if message.id == message_id:
                    return target, index
        return None

    def _commit(
        self,
        target: records.InboxTarget,
        start: int,
        count: int,
        insert: tuple[records.UserMessage, ...],
        outcome: Literal["canceled"] | None,
    ) -> tuple[records.UserMessage, ...]:
        if not count and not insert:
            return ()
        lists = self.lists
        gone = lists.of(target)[start : start + count]
        kept = lists.ids() - {message.id for message in gone}
        for message in insert:
            if message.id in kept:
                raise InboxConflict(
                    f"a message with id {message.id!r} is already pending in this inbox; "
                    "give every message an id of its own (user_message() does)"
                )
            kept |= {message.id}
        self._session.append(
            ev.agent.InboxSpliced(
                target=target,
                start=start,
                removed_count=count,
                inserted=insert,
                outcome=outcome,
            )
        )
        return gone
