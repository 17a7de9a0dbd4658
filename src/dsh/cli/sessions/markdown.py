"""A session as Markdown, to be read and to be pasted elsewhere: who said what, what was called.

What comes in: what of a log could be read. What goes out: lines. Everything that somebody else
wrote is contained: nothing of it becomes a heading, an image or an end of ours. Outputs are cut,
and what is left out is counted, with the command that shows it. It only looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.catalog.records import ErrorTurnEnd, TextBlock, UserSource
from dsh.cli.screen.cards import outcome_of, seconds, subject_of
from dsh.cli.screen.progress import reason_in_words
from dsh.cli.sessions.contained import code, fenced, quoted
from dsh.cli.sessions.story import moment, trajectory_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh.catalog.records import LlmFailure, Message
    from dsh.cli.sessions.looking import Found
    from dsh.hooks import AnyDurable
    from dsh.wire import UnknownEvent

__all__ = ["markdown"]

#: Lines of an output that are shown.
OUTPUT_MAX: Final = 40


def markdown(found: Found, *, turn: int | None = None) -> Iterator[str]:
    """The lines of a whole session, or of one of its turns."""
    if turn is None:
        yield from _head(found)
    teller = _Teller(found.id)
    now = 0
    for event in found.events:
        if isinstance(event.data, ev.turn.Start):
            now = event.data.turn
        if turn is None or now == turn:
            yield from teller.lines(event.data, event.seq)
    if teller.others:
        yield ""
        plugins = f"{teller.others} message{'' if teller.others == 1 else 's'} of plugins"
        yield f"*Not told: {plugins}; `dsh sessions messages {found.id}` has them.*"
    if found.torn is not None or found.damage is not None:
        yield ""
        yield f"*The log cannot be read to its end: {code(found.damage or found.torn or '')}.*"


def _head(found: Found) -> Iterator[str]:
    header, trajectory = found.header, trajectory_of(found.events)
    yield f"# Session {code(found.id)}"
    yield ""
    if trajectory.title:
        yield f"- title: {code(trajectory.title)}"
    yield f"- begun: {moment(trajectory.base if header is None else header.created_at)}"
    if header is not None and header.cwd is not None:
        yield f"- in: {code(header.cwd)}"
    for event in reversed(found.events):
        if isinstance(event.data, ev.request.Header):
            config = event.data.header.config
            yield f"- model: {code(f'{config.provider}/{config.model}')}"
            break


class _Teller:
    """Events as lines. `others`: how many messages were not told, because no person wrote them."""

    def __init__(self, session: str) -> None:
        self.others = 0
        self._session: Final = session
        self._calls: Final[dict[str, ev.tool.Call]] = {}

    def lines(self, data: AnyDurable | UnknownEvent, seq: int) -> Iterator[str]:
        """What one event says."""
        match data:
            case ev.turn.Start(turn=turn):
                yield from ("", f"## Turn {turn}")
            case ev.user.Message(message=message) if isinstance(message.source, UserSource):
                yield from ("", "**Prompt**", "", *quoted(_text(message)))
            case ev.user.Message():
                self.others += 1
            case ev.assistant.Message(message=message) as said if _text(message).strip():
                cut = " (cut off)" if said.interrupted else ""
                yield from ("", f"**Reply**{cut}", "", *quoted(_text(message)))
            case ev.tool.Call() as call:
                self._calls[call.call_id] = call
            case ev.tool.Result() as result:
                yield from self._called(result, seq)
            case ev.llm.Retry() as retry:
                waited = seconds(int(retry.delay_ms))
                yield from ("", f"*{_failure(retry.failure)}; tried again after {waited}*")
            case ev.compaction.End() if data.error is None:
                yield from ("", "*The history was compacted here.*")
            case ev.turn.End(turn=turn, reason=reason):
                if isinstance(reason, ErrorTurnEnd):
                    yield from ("", f"*{_failure(reason.error)}*")
                yield from ("", f"*Turn {turn}:* {code(reason_in_words(reason))}")
            case _:
                pass

    def _called(self, result: ev.tool.Result, seq: int) -> Iterator[str]:
        call = self._calls.pop(result.message.tool_call_id, None)
        title = "(unknown call)" if call is None else f"{call.name} {subject_of(call)}"
        outcome = outcome_of(result)
        denied = f" by {code(outcome.denied_by)}" if outcome.denied_by is not None else ""
        yield from ("", f"**Tool** {code(title)}: {code(outcome.summary)}{denied}")
        lines = _text(result.message).rstrip("\n").split("\n")
        if lines != [""]:
            yield from ("", *fenced("\n".join(lines[:OUTPUT_MAX])))
        if len(lines) > OUTPUT_MAX:
            rest = len(lines) - OUTPUT_MAX
            yield ""
            yield f"*{rest} more lines: `dsh sessions show {self._session} --seq {seq}`*"


def _failure(failure: LlmFailure) -> str:
    status = f" ({failure.status})" if failure.status is not None else ""
    return f"{code(failure.code)}{status}: {code(failure.message)}"


def _text(message: Message) -> str:
    """What a message says; what is no text is named."""
    return "".join(
        block.text if isinstance(block, TextBlock) else f"[{block.type}]"
        for block in message.content
        if block.type not in {"tool-call", "reasoning"}
    )
