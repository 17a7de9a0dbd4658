"""What an adapter makes of a conversation, kept while it grows: a request costs what it adds.

What comes in: the histories of requests, and how to fold one message. What goes out: the fold of
each history, which only has to take the messages that came since the last request of its line. A
line that is no more is forgotten; nothing is kept alive beyond that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.catalog.records import Message
    from dsh.hooks import History

__all__ = ["HistoryFolds", "MessageFold"]


class MessageFold(Protocol):
    """What was made of the messages so far."""

    def add(self, message: Message) -> None:
        """Take the next message. What it raises ends the request; the fold is not used again."""
        ...


F = TypeVar("F", bound=MessageFold)


@final
class HistoryFolds(Generic[F]):
    """The folds of running conversations, each begun by `begin`."""

    __slots__ = ("_begin", "_folds")

    def __init__(self, begin: Callable[[], F]) -> None:
        self._begin: Final = begin
        #: By line, with the number of messages that the fold has taken.
        self._folds: Final[WeakKeyDictionary[object, tuple[F, int]]] = WeakKeyDictionary()

    def of(self, history: History[Message]) -> F:
        """The fold of exactly these messages. It changes with the next call for the same line."""
        # Taken out first: a fold that could not take a message is not used again.
        fold, taken = self._folds.pop(history.line, (None, 0))
        if fold is None or taken > len(history):
            fold, taken = self._begin(), 0
        for message in history[taken:]:
            fold.add(message)
        self._folds[history.line] = (fold, len(history))
        return fold
