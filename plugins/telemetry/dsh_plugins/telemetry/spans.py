"""Spans as data, and the ids they have.

What comes in: what happened, in epoch milliseconds. What goes out: spans with attributes, events
and links. Ids are derived from the session and the turn, not drawn: so a resumed session, in
whatever process, can link to the turn before without having kept anything. Pure.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import field, mutable

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks import AnyDurable

__all__ = ["CLIENT", "INTERNAL", "LogRecord", "Mark", "Place", "Span", "Value", "place_of"]

Value: TypeAlias = "str | bool | int | float | tuple[str, ...]"

INTERNAL: Final = 1
CLIENT: Final = 3


@frozen(slots=True)
class Place:
    """Which span of which trace."""

    trace: bytes
    span: bytes


@frozen(slots=True)
class Mark:
    """Something that happened within a span. `time` in epoch ms."""

    name: str
    time: int
    attributes: Mapping[str, Value]


@mutable(slots=True, eq=False)
class Span:
    """One stretch of work. `end` None: it is not over. Times in epoch ms."""

    name: str
    place: Place
    start: int
    parent: bytes | None = None
    kind: int = INTERNAL
    end: int | None = None
    failed: bool = False
    #: Says why it failed; only where content may be sent.
    words: str = ""
    attributes: dict[str, Value] = field(factory=dict)
    marks: list[Mark] = field(factory=list)
    links: list[Place] = field(factory=list)

    def put(self, **given: Value | None) -> None:
        """Set attributes; `__` in a name stands for a dot. None is left out."""
        for name, value in given.items():
            if value is not None:
                self.attributes[name.replace("__", ".")] = value

    def fail(self, error_type: str, words: str) -> None:
        """Say that it failed, and how."""
        self.failed = True
        self.words = words
        self.attributes["error.type"] = error_type


@frozen(slots=True)
class LogRecord:
    """One event of a session's log. `severity` is the number of the OpenTelemetry log model.

    `body` is the event's own data, which the session holds anyway; it becomes text when it is sent.
    """

    name: str
    time: int
    severity: int
    body: AnyDurable | None
    attributes: Mapping[str, Value]
    place: Place | None


def place_of(session: str, created_at: int, turn: int, *path: object) -> Place:
    """The place of a turn, or of something in it. The same facts give the same ids."""
    trace = sha256(repr((session, created_at, turn)).encode()).digest()[:16]
    return Place(trace, sha256(trace + repr(path).encode()).digest()[:8])
