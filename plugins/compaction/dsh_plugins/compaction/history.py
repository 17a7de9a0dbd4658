"""What compaction has to know of a session's log, folded so that each event is looked at once.

What comes in: the events since the last look. What goes out: which messages are pinned, whether a
compaction is open, and the surface as nodes that can be selected. The log is only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from dsh import catalog as ev
from dsh.catalog import records
from dsh.session import message_of
from dsh_plugins.compaction.selection import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.seams.token_meter import NodePrice
    from dsh.session import Session

__all__ = ["NAME", "SessionHistory", "is_checkpoint", "kept_by", "nodes_of", "pinned_by_plugin"]

#: The plugin that is named as the source of checkpoints.
NAME: Final = "compaction"


@final
class SessionHistory:
    """What is known of one session. `advance` first, then read."""

    def __init__(self) -> None:
        self._position = 0
        self._first: int | None = None
        self._newest: int | None = None
        self._marked: Final[list[int]] = []
        #: The compaction that is open, by its id.
        self.open: str | None = None
        #: Whether the log begins with an earlier life.
        self.resumed = False

    def advance(self, session: Session) -> None:
        """Look at what was logged since the last time."""
        end = session.next_seq
        if self._position == end:
            return
        for event in session.events[self._position : end]:
            data = event.data
            if type(data) is ev.assistant.Chunk:
                continue
            match data:
                case ev.user.Message(message=message):
                    self._take_message(event.seq, message)
                case ev.compaction.Start(compaction_id=opened):
                    self.open = opened
                case ev.compaction.End(compaction_id=closed) if closed == self.open:
                    self.open = None
                case ev.session.EndSeed():
                    # Whoever held the lock belongs to another life of this log.
                    self.open, self.resumed = None, True
                case _:
                    pass
        self._position = end

    def _take_message(self, seq: int, message: records.UserMessage) -> None:
        if isinstance(message.source, records.UserSource):
            if self._first is None:
                self._first = seq
            self._newest = seq
        elif pinned_by_plugin(message):
            self._marked.append(seq)

    def pins(self) -> tuple[int, ...]:
        """The seqs of pinned messages, in order: first prompt, marked ones, newest prompt."""
        found = {*self._marked}
        if self._first is not None and self._newest is not None:
            found |= {self._first, self._newest}
        return tuple(sorted(found))


def pinned_by_plugin(message: records.UserMessage) -> bool:
    """Whether a plugin marked this message with `data={"pinned": True}`."""
    source = message.source
    return (
        isinstance(source, records.PluginSource)
        and isinstance(source.data, Mapping)
        and source.data.get("pinned") is True
    )


def is_checkpoint(message: records.Message) -> bool:
    """Whether this message stands for what an earlier compaction took away."""
    source = message.source
    return (
        isinstance(source, records.PluginSource)
        and source.plugin == NAME
        and isinstance(source.data, Mapping)
        and "compactionId" in source.data
    )


def kept_by(message: records.Message | None) -> tuple[str, ...]:
    """The ids of the messages that a checkpoint holds word for word; () for other messages."""
    if message is None or not is_checkpoint(message):
        return ()
    source = message.source
    data = source.data if isinstance(source, records.PluginSource) else None
    kept = data.get("kept") if isinstance(data, Mapping) else None
    return tuple(str(name) for name in kept) if isinstance(kept, list | tuple) else ()


def nodes_of(session: Session, prices: Sequence[NodePrice]) -> list[Node]:
    """The surface, ready for selection."""
    events = session.events
    found: list[Node] = []
    for price in prices:
        data = events[price.seq].data
        if isinstance(data, ev.system.Message):
            # Also one without content, which derives no message.
            found.append(Node(seq=price.seq, tokens=price.tokens, system=True))
        else:
            found.append(_node(message_of(events[price.seq]), price))
    return found


def _node(message: records.Message | None, price: NodePrice) -> Node:
    match message:
        case records.AssistantMessage(content=content):
            calls = tuple(b.id for b in content if isinstance(b, records.ToolCallBlock))
            return Node(seq=price.seq, tokens=price.tokens, calls=calls)
        case records.ToolResultMessage(tool_call_id=call_id):
            return Node(seq=price.seq, tokens=price.tokens, answers=call_id)
        case records.UserMessage():
            return Node(seq=price.seq, tokens=price.tokens, checkpoint=is_checkpoint(message))
        case _:
            return Node(seq=price.seq, tokens=price.tokens)
