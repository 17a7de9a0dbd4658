"""From the log to the messages a model reads: one pure projection per node, kept incrementally.

What comes in: the events of a log and its surface. What goes out: shared, frozen messages in
order; a node keeps its message object for ever. Turns, chunks and calls are not messages, and an
assistant or system node without content has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dsh.catalog import assistant, system, tool, user
from dsh.catalog.records import TextBlock
from dsh.hooks import History, Line
from dsh.session.surface import Surface

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh.catalog.records import Message
    from dsh.wire import StoredEvent

__all__ = ["Derived", "SurfacePayload", "derive", "message_of"]

SurfacePayload: TypeAlias = user.Message | system.Message | assistant.Message | tool.Result


def message_of(event: StoredEvent) -> Message | None:
    """The message of one event, or None if it has none."""
    match event.data:
        case user.Message(message=message) | tool.Result(message=message):
            return message
        case assistant.Message(message=message):
            return message if message.content else None
        case system.Message(message=message):
            blank = all(
                isinstance(block, TextBlock) and not block.text for block in message.content
            )
            return None if blank else message
        case _:
            return None


def derive(events: Iterable[StoredEvent]) -> History[Message]:
    """The messages of a whole log, from scratch. `events` begins at seq 0."""
    surface = Surface()
    nodes: dict[int, StoredEvent] = {}
    for event in events:
        if event.surface_op is not None:
            surface.apply(event.seq, event.surface_op)
            nodes[event.seq] = event
    found = (message_of(nodes[seq]) for seq in surface.nodes)
    return Line(message for message in found if message is not None).so_far()


class Derived:
    """The derived messages of one growing log: a derivation costs what was added since the last."""

    __slots__ = ("_event_at", "_generation", "_line", "_messages", "_seen", "_surface")

    def __init__(self, event_at: Callable[[int], StoredEvent], surface: Surface) -> None:
        self._event_at = event_at
        self._surface = surface
        self._begin()

    def _begin(self) -> None:
        self._generation = self._surface.generation
        self._seen = 0
        self._line: Line[Message] = Line()
        self._messages = self._line.so_far()

    def messages(self) -> History[Message]:
        """The messages now, in the line of those before unless a node was replaced.

        The same object as before, if no node came or went.
        """
        if self._generation != self._surface.generation:
            self._begin()
        nodes = self._surface.nodes
        if self._seen < len(nodes):
            for place in range(self._seen, len(nodes)):
                message = message_of(self._event_at(nodes[place]))
                if message is not None:
                    self._line.add(message)
            self._seen = len(nodes)
            if len(self._line) != len(self._messages):
                self._messages = self._line.so_far()
        return self._messages
