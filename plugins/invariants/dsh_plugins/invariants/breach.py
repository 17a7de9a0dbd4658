"""Breaches: how a broken law is said, and the book that keeps every one of them.

What comes in: a law's name, the event at which it broke, what was seen. What goes out: an error
with those facts, and the list of all breaches of this plugin's life. Nothing here decides whether a
law is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dsh.errors import InvariantError
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    import logging

__all__ = ["INVARIANTS", "Book", "Law", "LawBroken"]

Law: TypeAlias = Literal["log", "retry", "request", "stream", "stages", "assembly", "status"]


class LawBroken(InvariantError):
    """A law of the harness does not hold. Remedy: report it with the session's log.

    `event` is the name of the event at which it broke. `seq` is where in the log that is: the seq
    of the event, or the seq the next event would get; None where no log is concerned.
    """

    def __init__(self, law: Law, event: str, seq: int | None, seen: str) -> None:
        place = event if seq is None else f"{event} (seq {seq})"
        super().__init__(f"the law {law!r} is broken at {place}: {seen}")
        self.law: Final = law
        self.event: Final = event
        self.seq: Final = seq
        self.seen: Final = seen


class Book:
    """Every breach since the plugin was loaded, oldest first."""

    def __init__(self, log: logging.Logger) -> None:
        self._log: Final = log
        self.breaches: Final[list[LawBroken]] = []

    def breach(self, law: Law, event: str, seq: int | None, seen: str) -> LawBroken:
        """Write a breach down and give the error to raise."""
        error = LawBroken(law, event, seq, seen)
        self.breaches.append(error)
        self._log.warning("%s", error.message)
        return error


#: The book of the loaded plugin, for tests that want to see breaches nothing could stop.
INVARIANTS: Final[ServiceKey[Book]] = ServiceKey("invariants")
