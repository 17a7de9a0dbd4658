"""Which work a log has consumed: the question of whoever restarts or supervises an agent.

What comes in: the events of a log. What goes out: the newest turn that took work upon itself, and
the prompts that were taken back since. Pure; the same log always gives the same answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.agent.inbox import INBOX
from dsh.catalog import records
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh.wire import StoredEvent

__all__ = ["ConsumedWork", "consumed_work"]


@frozen
class ConsumedWork:
    """`turn`: the newest one that consumed work, None without one.

    `dropped`: ids of messages taken back unrun after the newest turn, oldest first. A replaced
    message does not count: another one took its place.
    """

    turn: int | None = None
    dropped: tuple[str, ...] = ()


def consumed_work(events: Iterable[StoredEvent]) -> ConsumedWork:
    """Fold a log.

    A turn consumed work if a step began in it, or if it claimed input and then failed, was
    cancelled or was blocked. One whose input was emptied before a step, and that completed, did
    not; nor does a claim outside of turns count.
    """
    fold = _Fold()
    for event in events:
        fold.see(event)
    return ConsumedWork(fold.credited(), tuple(fold.dropped))


class _Fold:
    def __init__(self) -> None:
        self._lists = INBOX.init()
        self._open: int | None = None
        self._claimed = False
        self._entered = False
        self._newest: int | None = None
        self.dropped: list[str] = []

    def credited(self) -> int | None:
        """The newest turn with work; an open one counts as soon as it took some."""
        taken = self._claimed or self._entered
        return self._open if self._open is not None and taken else self._newest

    def see(self, event: StoredEvent) -> None:
        before = self._lists
        self._lists = INBOX.apply(before, event)
        match event.data:
            case ev.turn.Start(turn=turn):
                self._open, self._claimed, self._entered = turn, False, False
                self.dropped = []
            case ev.step.Start():
                self._entered = True
            case ev.turn.End(reason=reason):
                emptied = isinstance(reason, records.CompletedTurnEnd) and not self._entered
                if not emptied:
                    self._newest = self.credited()
                self._open = None
            case ev.agent.InboxSpliced(outcome=None, removed_count=count):
                self._claimed = self._claimed or (self._open is not None and count > 0)
            case ev.agent.InboxSpliced(inserted=()) as splice:
                end = splice.start + splice.removed_count
                gone = before.of(splice.target)[splice.start : end]
                if self._open is None:
                    self.dropped += [message.id for message in gone]
            case _:
                pass
