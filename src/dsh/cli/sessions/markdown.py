"""A session as Markdown: what was said, what was called, how each turn ended.

What comes in: a stored log. What goes out: lines for a file. Replies are as the model wrote them,
outputs stand in fences that they cannot close. It only looks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.catalog.records import Message, TextBlock, UserSource
from dsh.cli.screen.cards import outcome_of, subject_of
from dsh.cli.screen.inert import inert, one_line
from dsh.cli.screen.progress import reason_in_words
from dsh.cli.sessions.story import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh.wire import StoredLog

__all__ = ["markdown"]

TICKS: Final = re.compile(r"`+")


def markdown(log: StoredLog) -> Iterator[str]:
    """The lines of the file."""
    yield f"# Session {log.header.id}"
    yield ""
    where = f" in `{one_line(log.header.cwd)}`" if log.header.cwd is not None else ""
    yield f"Begun {moment(log.header.created_at)}{where}."
    calls: dict[str, ev.tool.Call] = {}
    for event in log.events:
        match event.data:
            case ev.user.Message(message=message) if isinstance(message.source, UserSource):
                yield from ("", "## You", "", inert(_text(message)))
            case ev.assistant.Message(message=message) if _text(message).strip():
                yield from ("", "## Reply", "", inert(_text(message)))
            case ev.tool.Call() as call:
                calls[call.call_id] = call
            case ev.tool.Result() as result:
                yield from _called(calls.pop(result.message.tool_call_id, None), result)
            case ev.turn.End() as end:
                yield from ("", f"*Turn {end.turn} {reason_in_words(end.reason)}.*")
            case _:
                pass


def _called(call: ev.tool.Call | None, result: ev.tool.Result) -> Iterator[str]:
    name = one_line(call.name) if call is not None else "(unknown call)"
    subject = subject_of(call) if call is not None else ""
    text = inert(_text(result.message)).rstrip("\n")
    longest = max((len(found) for found in TICKS.findall(text)), default=0)
    fence = "`" * max(longest + 1, 3)
    title = f"{name} {subject}".rstrip().replace("`", "'")
    yield from ("", f"**`{title}`**: {outcome_of(result).summary}", "", fence, text, fence)


def _text(message: Message) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))
