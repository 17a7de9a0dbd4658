"""A log read as a recording: which requests were made, what came back, and what differs from now.

What comes in: the events of a log, and requests as they would be made today. What goes out: the
recorded requests with their streams, the results of tools, and the first difference in words. Ids
that are minted anew in every run are no difference. Nothing here sends, runs or waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import orjson

from dsh.catalog import assistant, codec, request, step, tool, turn, user
from dsh.catalog.records import EpochHeader, FinishChunk, PluginSource
from dsh.hooks import frozen
from dsh.session.messages import Derived
from dsh.session.surface import Surface

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh.catalog.records import Message, StreamChunk, TurnEndReason, UserMessage
    from dsh.hooks.live import LlmRequest
    from dsh.wire import StoredEvent

__all__ = [
    "RecordedRequest",
    "RecordedTurn",
    "Recording",
    "first_difference",
    "first_message_difference",
    "is_regenerated",
    "same_message",
]

Step: TypeAlias = tuple[int, int]
#: How much of a text is shown on each side of the first different character.
SHOWN: Final = 40


@frozen(kw_only=True, slots=True, eq=False)
class RecordedRequest:
    """One attempt: what was sent, and the stream that came back.

    `finished` is False when the stream was cut, by a cancellation or a crash.
    """

    header: EpochHeader
    messages: Sequence[Message]
    chunks: tuple[StreamChunk, ...]

    @property
    def finished(self) -> bool:
        """Whether the model's stream came to its end."""
        return bool(self.chunks) and isinstance(self.chunks[-1], FinishChunk)


@frozen(kw_only=True, slots=True, eq=False)
class RecordedTurn:
    """One turn: the seq of its start, how often each step asked the model, how it ended.

    `messages` is the history that it left behind. `end` is None for a turn that a crash cut before
    anything closed it.
    """

    number: int
    start: int
    steps: Mapping[int, tuple[RecordedRequest, ...]]
    messages: Sequence[Message]
    end: TurnEndReason | None


@final
class Recording:
    """Everything of one log that a second run needs. `turns` are in order, by number."""

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self.turns: Final[dict[int, RecordedTurn]] = {}
        self.results: Final[dict[str, tool.Result]] = {}
        self._admitted: Final[dict[Step, list[UserMessage]]] = {}
        _Listener(self, events).listen()

    def attempt(self, turn: int, step: int, index: int) -> RecordedRequest | None:
        """The recorded request of a step, counted from 0; None if there was no such one."""
        recorded = self.turns.get(turn)
        attempts = () if recorded is None else recorded.steps.get(step, ())
        return attempts[index] if index < len(attempts) else None

    def admitted(self, turn: int, step: int) -> Sequence[UserMessage]:
        """The messages that entered the history with a step, runtime context included."""
        return self._admitted.get((turn, step), ())

    def admit(self, turn: int, step: int, message: UserMessage) -> None:
        """For the listener alone."""
        self._admitted.setdefault((turn, step), []).append(message)


class _Listener:
    """One pass over a log."""

    def __init__(self, recording: Recording, events: Sequence[StoredEvent]) -> None:
        self._recording: Final = recording
        self._events: Final = events
        self._surface: Final = Surface()
        self._derived: Final = Derived(events.__getitem__, self._surface)
        self._header: EpochHeader | None = None
        self._turn = self._step = self._start = 0
        self._steps: dict[int, tuple[RecordedRequest, ...]] = {}
        self._sent: Sequence[Message] | None = None
        self._chunks: list[StreamChunk] = []

    def listen(self) -> None:
        for event in self._events:
            match event.data:
                case assistant.Chunk(chunk=chunk):
                    self._hear(chunk)
                case assistant.Message() if event.source_event_seqs == ():
                    self._send()  # a stream without chunks
                    self._close_attempt()
                case step.Start(step=number):
                    self._close_attempt()
                    self._step = number
                case step.End():
                    self._close_attempt()
                case turn.Start(turn=number):
                    self._close_turn(None)
                    self._turn, self._start, self._step = number, event.seq, 0
                case turn.End(reason=reason):
                    self._close_turn(reason)
                case request.Header(header=header):
                    self._header = header
                case tool.Result(message=message) as result:
                    self._recording.results.setdefault(message.tool_call_id, result)
                case user.Message(message=message) if self._turn:
                    self._recording.admit(self._turn, self._step, message)
                case _:
                    pass
            if event.surface_op is not None:
                self._surface.apply(event.seq, event.surface_op)
        self._close_turn(None)

    def _send(self) -> None:
        if self._sent is None:
            self._sent = self._derived.messages()

    def _hear(self, chunk: StreamChunk) -> None:
        self._send()
        self._chunks.append(chunk)
        if isinstance(chunk, FinishChunk):
            self._close_attempt()

    def _close_attempt(self) -> None:
        if self._sent is not None and self._header is not None:
            made = RecordedRequest(
                header=self._header, messages=self._sent, chunks=tuple(self._chunks)
            )
            self._steps[self._step] = (*self._steps.get(self._step, ()), made)
        self._sent, self._chunks = None, []

    def _close_turn(self, reason: TurnEndReason | None) -> None:
        self._close_attempt()
        if self._turn:
            self._recording.turns[self._turn] = RecordedTurn(
                number=self._turn,
                start=self._start,
                steps=self._steps,
                messages=self._derived.messages(),
                end=reason,
            )
        self._turn, self._steps = 0, {}


def first_difference(
    recorded: RecordedRequest, now: LlmRequest, messages: Sequence[Message]
) -> str | None:
    """Where the request of today first differs from the recorded one, in words; None if nowhere.

    `messages` are those of the request, or what they would be without a replay's own doing.
    """
    config = recorded.header.config
    for name, then, today in (
        ("provider", config.provider, now.provider),
        ("model", config.model, now.model),
        ("reasoningEffort", config.reasoning_effort, now.reasoning_effort),
        ("temperature", config.temperature, now.temperature),
        ("maxTokens", config.max_tokens, now.max_tokens),
        ("stop", list(config.stop), list(now.stop)),
        ("tools", _plain(recorded.header.tools), _plain(now.tools)),
    ):
        found = _difference(name, then, today)
        if found is not None:
            return found
    return first_message_difference(recorded.messages, messages)


def first_message_difference(then: Sequence[Message], now: Sequence[Message]) -> str | None:
    """Where two histories first differ, in words; None if nowhere."""
    return _difference("messages", _plain(then), _plain(now))


def same_message(one: UserMessage, other: UserMessage) -> bool:
    """Whether two messages say the same, whatever their ids."""
    return _plain([one]) == _plain([other])


def is_regenerated(message: UserMessage) -> bool:
    """Whether a run makes this message itself: a snapshot of the surroundings."""
    source = message.source
    return isinstance(source, PluginSource) and source.plugin == "system-prompt"


def _plain(records: Sequence[object]) -> list[object]:
    """Records as JSON, without what is minted anew in every run."""
    shown: list[object] = []
    for record in records:
        fields = dict(cast("dict[str, object]", codec.encode_record(record)))
        if "role" in fields:
            fields.pop("id", None)
        shown.append(fields)
    return shown


def _difference(path: str, then: object, now: object) -> str | None:
    whole, other_whole = then, now
    if isinstance(then, dict) and isinstance(now, dict):
        one, other = cast("dict[str, object]", then), cast("dict[str, object]", now)
        for key in (*one, *(key for key in other if key not in one)):
            if key not in one or key not in other:
                which = "recorded, not there now" if key in one else "there now, not recorded"
                return f"{path}.{key} is {which}"
            found = _difference(f"{path}.{key}", one[key], other[key])
            if found is not None:
                return found
        return None
    if isinstance(then, list) and isinstance(now, list):
        many, others = cast("list[object]", then), cast("list[object]", now)
        for place, (one_item, other_item) in enumerate(zip(many, others, strict=False)):
            found = _difference(f"{path}[{place}]", one_item, other_item)
            if found is not None:
                return found
        if len(many) != len(others):
            return f"{path}: {len(many)} were recorded, there are {len(others)} now"
        return None
    # As JSON: in Python true equals 1.
    if orjson.dumps(whole) == orjson.dumps(other_whole):
        return None
    shown = _shown(whole, other_whole), _shown(other_whole, whole)
    return f"{path}: {shown[0]} was recorded, {shown[1]} now"


def _shown(value: object, other: object) -> str:
    """A value for a message: of long texts the part around the first different character."""
    if not isinstance(value, str):
        return orjson.dumps(value).decode()
    place = 0
    if isinstance(other, str):
        pairs = zip(value, other, strict=False)
        place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(value), len(other)))
    start = max(place - SHOWN, 0)
    text = value[start : place + SHOWN]
    head = "…" if start else ""
    tail = "…" if place + SHOWN < len(value) else ""
    return f"{head}{text!r}{tail}"
