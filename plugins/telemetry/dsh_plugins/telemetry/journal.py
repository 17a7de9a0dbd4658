"""The events of a session's log as log records.

What comes in: committed events. What goes out: a record each, with the span that was open.
The event's data is its body, if texts may be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.catalog import records
from dsh_plugins.telemetry.spans import LogRecord

if TYPE_CHECKING:
    from dsh_plugins.telemetry.spans import Place

__all__ = ["record_of"]

INFO: Final = 9
WARN: Final = 13
ERROR: Final = 17


def record_of(event: ev.session.Event, place: Place | None, *, content: bool) -> LogRecord:
    """The record of one event."""
    logged, data = event.event, event.event.data
    return LogRecord(
        name=data.TOKEN.name,
        time=logged.time,
        severity=_severity(data),
        body=data if content else None,
        attributes={"gen_ai.conversation.id": event.session.id, "dsh.seq": logged.seq},
        place=place,
    )


def _severity(data: object) -> int:
    match data:
        case ev.turn.End(reason=records.ErrorTurnEnd()):
            return ERROR
        case (
            ev.llm.Retry()
            | ev.turn.End(
                reason=records.BlockedTurnEnd()
                | records.MaxTokensTurnEnd()
                | records.InterruptedTurnEnd()
            )
        ):
            return WARN
        case ev.tool.Result(message=message) if message.is_error:
            return WARN
        case _:
            return INFO
