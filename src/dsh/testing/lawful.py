"""What must be true of every agent at rest, however it came there.

What comes in: a live session at rest. What goes out: the laws it breaks, in words; none is the only
good answer. It reads the log and never repairs it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.catalog import records
from dsh.session import verify
from dsh.wire import StoredLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.session import Session
    from dsh.wire import StoredEvent

__all__ = ["broken_laws", "unanswered_on_the_wire"]


def broken_laws(session: Session) -> list[str]:
    """Every law of a resting log that `session` breaks."""
    events = tuple(session.events)
    broken = [
        f"seq {problem.seq}: {problem.text}"
        for problem in verify(StoredLog(header=session.header, events=events))
    ]
    opened = [event.data.turn for event in events if isinstance(event.data, ev.turn.Start)]
    closed = [event.data.turn for event in events if isinstance(event.data, ev.turn.End)]
    if opened != closed:
        broken.append(f"turns opened {opened}, closed {closed}")
    steps = sum(isinstance(event.data, ev.step.Start) for event in events)
    ends = sum(isinstance(event.data, ev.step.End) for event in events)
    if steps != ends:
        broken.append(f"{steps} steps opened, {ends} closed")
    called = Counter(event.data.call_id for event in events if isinstance(event.data, ev.tool.Call))
    asked = Counter(
        block.id
        for event in events
        if isinstance(event.data, ev.assistant.Message)
        for block in event.data.message.content
        if isinstance(block, records.ToolCallBlock)
    )
    answered = Counter(
        event.data.message.tool_call_id
        for event in events
        if isinstance(event.data, ev.tool.Result) and isinstance(event.surface_op, records.Append)
    )
    if asked != answered:
        broken.append(f"calls asked {dict(asked)}, results {dict(answered)}")
    if called - asked:
        broken.append(f"tool/call without a request of the model: {dict(called - asked)}")
    broken += _lost_text(events)
    broken += unanswered_on_the_wire(session.derive_messages())
    return broken


def _lost_text(events: Sequence[StoredEvent]) -> list[str]:
    """Text of a cancelled reply that somebody could read, and that the history has not."""
    broken: list[str] = []
    readable = ""
    for event in events:
        match event.data:
            case ev.assistant.Chunk(chunk=records.TextDeltaChunk(text=text)):
                readable += text
            case ev.assistant.Chunk(chunk=records.FinishChunk()) | ev.assistant.Message():
                readable = ""
            case ev.turn.End(reason=reason, turn=turn):
                if isinstance(reason, records.AbortedTurnEnd) and readable.strip():
                    broken.append(f"turn {turn} was cancelled, and {readable!r} is lost")
                readable = ""
            case _:
                pass
    return broken


def unanswered_on_the_wire(messages: Sequence[records.Message]) -> list[str]:
    """What a strict provider would refuse: a call without its result directly after its message."""
    broken: list[str] = []
    owed: list[str] = []
    for message in messages:
        if isinstance(message, records.ToolResultMessage):
            if owed[:1] != [message.tool_call_id]:
                broken.append(f"result of {message.tool_call_id!r} where {owed} are due")
            owed = [call for call in owed if call != message.tool_call_id]
            continue
        if owed:
            broken.append(f"{message.role} message while {owed} are unanswered")
        owed = []
        if isinstance(message, records.AssistantMessage):
            owed = [
                block.id for block in message.content if isinstance(block, records.ToolCallBlock)
            ]
    if owed:
        broken.append(f"the history ends with {owed} unanswered")
    return broken
