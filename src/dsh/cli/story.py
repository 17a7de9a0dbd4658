"""A session told in plain text: turns, replies, tool calls, retries, how each turn ended.

What comes in: a stored log. What goes out: lines, inert and cut to a width, each record on one of
its own; `#n` is the seq everywhere. It only looks: unknown events are counted, not skipped in
silence.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from dsh import catalog as ev
from dsh.catalog.records import TextBlock, UserSource
from dsh.cli.cards import outcome_of, seconds, subject_of
from dsh.cli.inert import cells, clipped, one_line
from dsh.cli.progress import Spent, reason_in_words
from dsh.wire import UnknownEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dsh.catalog.records import Message
    from dsh.wire import StoredEvent, StoredLog

__all__ = ["moment", "size_in_words", "story"]

TURN_INDENT: Final = 2
BODY_INDENT: Final = 9
KILO: Final = 1000


def moment(epoch_ms: int) -> str:
    """A time as the reader's clock shows it: `2026-03-02 14:01`."""
    return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def size_in_words(count: int) -> str:
    """`71 kB`, `1.2 MB`."""
    if count < KILO:
        return f"{count} B"
    if count < KILO * KILO:
        return f"{count / KILO:.0f} kB"
    return f"{count / KILO / KILO:.1f} MB"


def story(log: StoredLog, *, width: int, turn: int | None = None) -> Iterator[str]:
    """The lines of a session, or of one of its turns."""
    if turn is None:
        yield from _head(log, width)
    told = _Story(width)
    for event in log.events:
        for number, line in told.lines(event):
            if turn is None or number == turn:
                yield line
    if turn is None and log.torn is not None:
        yield f"the last line is unfinished: {one_line(log.torn)}; the next resume cuts it off"
    if turn is None and told.unknown:
        yield f"events of types unknown to this installation, not shown: {told.unknown}"


def _head(log: StoredLog, width: int) -> Iterator[str]:
    header = log.header
    where = one_line(header.cwd) if header.cwd is not None else "(no workspace)"
    yield clipped(f"session  {header.id}   {where}   {moment(header.created_at)}", width)
    yield f"model    {_model(log.events)}   {len(log.events)} events"


def _model(events: Sequence[StoredEvent]) -> str:
    for event in reversed(events):
        if isinstance(event.data, ev.request.Header):
            config = event.data.header.config
            return f"{one_line(config.provider)}/{one_line(config.model)}"
    return "(never asked)"


def _text(message: Message) -> str:
    return one_line(
        " ".join(block.text for block in message.content if isinstance(block, TextBlock))
    )


@final
class _Story:
    """What is told so far. Lines come with the number of the turn they belong to."""

    def __init__(self, width: int) -> None:
        self.unknown = 0
        self._width: Final = width
        self._turn = 0
        self._began = 0
        self._step_began = 0
        self._spent = Spent()
        self._pending: list[str] = []
        self._calls: dict[str, tuple[ev.tool.Call, int]] = {}

    def lines(self, event: StoredEvent) -> Iterator[tuple[int, str]]:
        """What this event adds. A turn is told when it ends: its head line says how it went."""
        match event.data:
            case UnknownEvent():
                self.unknown += 1
            case ev.turn.Start(turn=turn):
                self._turn, self._began, self._spent = turn, event.time, Spent()
                self._pending = []
            case ev.turn.End() as end:
                yield from self._told(end, event.time)
            case ev.step.Start():
                self._step_began = event.time
            case ev.user.Message(message=message):
                who = "you" if isinstance(message.source, UserSource) else "context"
                self._row(who, _text(message), "", event.seq)
            case ev.assistant.Message() as reply:
                self._replied(reply, event)
            case ev.tool.Call() as call:
                self._calls[call.call_id] = (call, event.time)
            case ev.tool.Result() as result:
                self._returned(result, event)
            case ev.llm.Retry() as retry:
                wait = seconds(int(retry.delay_ms))
                by = f" ({one_line(retry.plugin)})" if retry.plugin is not None else ""
                text = f"try {retry.retry} {one_line(retry.failure.code)}, waited {wait}{by}"
                self._row(f"{retry.turn}.{retry.step}", text, "", event.seq)
            case _:
                pass

    def _told(self, end: ev.turn.End, time: int) -> Iterator[tuple[int, str]]:
        took = seconds(time - self._began)
        parts = [f"turn {end.turn}", reason_in_words(end.reason), took, *self._spent.in_words()]
        yield end.turn, ""
        yield end.turn, "   ".join(parts)
        if isinstance(end.reason, ev.records.ErrorTurnEnd):
            failure = end.reason.error
            self._row("!!", f"{one_line(failure.code)}: {one_line(failure.message)}", "", None)
        for line in self._pending:
            yield end.turn, line
        self._pending = []

    def _row(self, label: str, text: str, right: str, seq: int | None) -> None:
        tail = f"{right}  {f'#{seq}':>5}" if seq is not None else right
        room = self._width - BODY_INDENT - cells(tail) - 2
        body = clipped(text, max(room, 20))
        gap = " " * max(self._width - BODY_INDENT - cells(body) - cells(tail), 2)
        head = f"{' ' * TURN_INDENT}{label}".ljust(BODY_INDENT)
        self._pending.append(f"{head}{body}{gap}{tail}".rstrip())

    def _replied(self, reply: ev.assistant.Message, event: StoredEvent) -> None:
        if reply.usage is not None:
            self._spent.add(reply.usage)
        text = _text(reply.message) or "(no text)"
        cut = " (cut off)" if reply.interrupted else ""
        took = seconds(event.time - self._step_began)
        self._row(f"{reply.turn}.{reply.step}", text + cut, took, event.seq)

    def _returned(self, result: ev.tool.Result, event: StoredEvent) -> None:
        call, began = self._calls.pop(result.message.tool_call_id, (None, event.time))
        name = one_line(call.name) if call is not None else "(unknown call)"
        subject = subject_of(call) if call is not None else ""
        outcome = outcome_of(result)
        took = seconds(event.time - began)
        self._row("", f"{name} {subject}", f"{outcome.summary}   {took}", event.seq)
