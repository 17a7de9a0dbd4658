"""One streamed reply, decoded: from the data of its events to lawful chunks.

What comes in: the bytes of single events, in order. What goes out: chunks, appended to a queue; a
server's in-band error, or a reply that cannot be understood, is raised as `LlmError`. Pure.

The wire numbers its blocks and ends each; a block that it forgets to end is ended with the reply.
Signatures of thinking are kept for the adapter alone, as the reply's replay state.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import orjson

from dsh.catalog.records import (
    BlockEndChunk,
    BlockStartChunk,
    ErrorFinish,
    FinishChunk,
    LlmFailure,
    MaxTokensFinish,
    ReasoningBlock,
    ReasoningDeltaChunk,
    ReplayEnvelope,
    StopFinish,
    TextBlock,
    TextDeltaChunk,
    ToolCallBlock,
    ToolCallDeltaChunk,
    ToolCallsFinish,
    Usage,
    UsageChunk,
)
from dsh.errors import LlmError
from dsh.llm import http

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from dsh.catalog.records import ContentBlock, FinishReason, StreamChunk
    from dsh.hooks import JsonValue

__all__ = ["ReplyDecoder"]

_STOP: Final = frozenset({"end_turn", "stop_sequence", "stop"})
_KINDS: Final = {"text": "text", "thinking": "reasoning", "redacted_thinking": "reasoning"}
#: Reasons that are failures with a code of their own.
_FAILURES: Final = {
    "model_context_window_exceeded": "CONTEXT_WINDOW_EXCEEDED",
    "refusal": "CONTENT_FILTER",
}
_REASON: Final = re.compile(r"[A-Za-z][A-Za-z_]{0,47}")
_COUNT_MAX: Final = 2**53 - 1


class _Block:
    """One block as far as it is known."""

    __slots__ = ("call_id", "ended", "index", "kind", "name", "parts", "redacted", "signature")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.parts: list[str] = []
        self.call_id = ""
        self.name = ""
        self.signature = ""
        self.redacted: str | None = None
        self.ended = False

    def built(self) -> ContentBlock:
        text = "".join(self.parts)
        match self.kind:
            case "text":
                return TextBlock(text=text)
            case "tool-call":
                return ToolCallBlock(id=self.call_id, name=self.name, arguments=text)
            case _:
                return ReasoningBlock(text=text)

    def replay(self) -> JsonValue:
        if self.redacted is not None:
            return {"redacted": self.redacted}
        return {"signature": self.signature} if self.signature else None


class ReplyDecoder:
    """The state of one reply. `done` is true once the server said that it is over.

    `scrub` takes secrets out of a server's words before they become a failure's message.
    """

    def __init__(
        self, out: deque[StreamChunk], scrub: Callable[[str], str] = lambda text: text
    ) -> None:
        self.done = False
        self._out: Final = out
        self._scrub: Final = scrub
        self._blocks: Final[dict[int, _Block]] = {}
        self._ids: Final[set[str]] = set()
        self._reason = ""
        self._usage: Final[dict[str, int]] = {}

    def decode(self, data: bytes) -> None:
        """Take one event. Raises LlmError MALFORMED_RESPONSE, or the server's own error."""
        try:
            value: JsonValue = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise http.malformed(data) from None
        if not isinstance(value, dict):
            raise http.malformed(data)
        self._take(value)

    def take_whole(self, value: JsonValue) -> bool:
        """Take a message that came without streaming. False: it is none."""
        if not isinstance(value, dict):
            return False
        content = value.get("content")
        if not isinstance(content, list):
            if value.get("type") == "error" or value.get("error"):
                raise http.in_band(value)
            return False
        self._count(value.get("usage"))
        for index, block in enumerate(content):
            if isinstance(block, dict):
                self._start(index, block)
                self._stop(index)
        self._set_reason(value.get("stop_reason"))
        return True

    def complete_at(self, tail: bytes) -> bool:
        """Whether a body that ends with this unfinished event is a whole reply."""
        try:
            value: JsonValue = orjson.loads(tail)
        except orjson.JSONDecodeError:
            return False
        return isinstance(value, dict) and value.get("type") == "message_stop"

    def _take(self, event: dict[str, JsonValue]) -> None:
        kind = event.get("type")
        match kind:
            case "content_block_delta" | "content_block_start" | "content_block_stop":
                self._take_block(str(kind), event)
            case "message_start":
                message = event.get("message")
                if isinstance(message, dict):
                    self._count(message.get("usage"))
            case "message_delta":
                delta = event.get("delta")
                if isinstance(delta, dict):
                    self._set_reason(delta.get("stop_reason"))
                self._count(event.get("usage"))
            case "message_stop":
                self.done = True
            case _ if kind == "error" or event.get("error"):
                raise http.in_band(event)
            case _:
                # Pings, and whatever the wire gets later.
                pass

    def _take_block(self, kind: str, event: dict[str, JsonValue]) -> None:
        said = event.get("delta" if kind == "content_block_delta" else "content_block")
        if kind == "content_block_stop":
            self._stop(self._at(event))
        elif not isinstance(said, dict):
            raise http.malformed(orjson.dumps(event), "a block without content")
        elif kind == "content_block_start":
            self._start(self._at(event), said)
        else:
            self._delta(self._at(event), said)

    @staticmethod
    def _at(event: dict[str, JsonValue]) -> int:
        index = event.get("index")
        return index if type(index) is int else 0

    def _set_reason(self, reason: JsonValue) -> None:
        if isinstance(reason, str) and reason:
            self._reason = reason

    def _start(self, place: int, said: dict[str, JsonValue]) -> None:
        if place in self._blocks:
            raise http.malformed(orjson.dumps(said), f"block {place} starts twice")
        kind = said.get("type")
        if kind == "tool_use":
            self._start_call(place, said)
        elif isinstance(kind, str) and kind in _KINDS:
            block = self._open(place, _KINDS[kind])
            data, text = said.get("data"), said.get("text") or said.get("thinking")
            if kind == "redacted_thinking" and isinstance(data, str):
                block.redacted = data
            if isinstance(text, str) and text:
                self._say(block, text)
            signature = said.get("signature")
            block.signature = signature if isinstance(signature, str) else ""
        else:
            raise http.malformed(orjson.dumps(said), "a block of a kind that was not asked for")

    def _start_call(self, place: int, said: dict[str, JsonValue]) -> None:
        name, call_id, given = said.get("name"), said.get("id"), said.get("input")
        if not isinstance(name, str) or not name:
            raise http.malformed(orjson.dumps(said), "a call without a name")
        block = self._open(place, "tool-call")
        block.name = name
        known = isinstance(call_id, str) and call_id and call_id not in self._ids
        block.call_id = str(call_id) if known else f"call_{uuid4().hex}"
        self._ids.add(block.call_id)
        text = orjson.dumps(given).decode() if isinstance(given, dict) and given else ""
        if text:
            block.parts.append(text)
        self._out.append(
            ToolCallDeltaChunk(index=block.index, id=block.call_id, name=name, arguments_delta=text)
        )

    def _open(self, place: int, kind: str) -> _Block:
        block = self._blocks[place] = _Block(len(self._blocks), kind)
        self._out.append(BlockStartChunk(index=block.index, block_type=kind))
        return block

    def _delta(self, place: int, delta: dict[str, JsonValue]) -> None:
        kind = delta.get("type")
        block = self._blocks.get(place)
        if block is None:
            # A gateway that forgot the start; a call could not be named.
            opened = {"text_delta": "text", "thinking_delta": "reasoning"}
            if not isinstance(kind, str) or kind not in opened:
                raise http.malformed(orjson.dumps(delta), f"block {place} was never started")
            block = self._open(place, opened[kind])
        if block.ended:
            return
        match kind:
            case "text_delta" if block.kind == "text":
                self._say(block, delta.get("text"))
            case "thinking_delta" if block.kind == "reasoning":
                self._say(block, delta.get("thinking"))
            case "signature_delta":
                signature = delta.get("signature")
                block.signature += signature if isinstance(signature, str) else ""
            case "input_json_delta" if block.kind == "tool-call":
                self._argue(block, delta.get("partial_json"))
            case _:
                pass

    def _say(self, block: _Block, text: JsonValue) -> None:
        if not isinstance(text, str) or not text:
            return
        block.parts.append(text)
        if block.kind == "text":
            self._out.append(TextDeltaChunk(index=block.index, text=text))
        else:
            self._out.append(ReasoningDeltaChunk(index=block.index, text=text))

    def _argue(self, block: _Block, text: JsonValue) -> None:
        if not isinstance(text, str) or not text:
            return
        block.parts.append(text)
        self._out.append(
            ToolCallDeltaChunk(index=block.index, id=block.call_id, arguments_delta=text)
        )

    def _stop(self, place: int) -> None:
        block = self._blocks.get(place)
        if block is not None and not block.ended:
            block.ended = True
            self._out.append(BlockEndChunk(index=block.index, block=block.built()))

    def _count(self, usage: JsonValue) -> None:
        if not isinstance(usage, dict):
            return
        for key in _COUNTS:
            value = usage.get(key)
            if type(value) is int and 0 <= value <= _COUNT_MAX:
                self._usage[key] = value

    def finish(self) -> None:
        """The reply is over: end its blocks, then usage, then the one finish.

        Raises LlmError STREAM_CLOSED when the server never said why it ended, EMPTY_RESPONSE when
        there is nothing in it.
        """
        reason = self._finish_reason()
        for place in tuple(self._blocks):
            self._stop(place)
        usage = self._counted()
        if usage is not None:
            self._out.append(UsageChunk(usage=usage))
        replays = tuple(block.replay() for block in self._blocks.values())
        state = None
        if any(replay is not None for replay in replays):
            state = ReplayEnvelope(response=None, blocks=replays)
        self._out.append(FinishChunk(reason=reason, replay_state=state))

    def _counted(self) -> Usage | None:
        read, wrote = self._usage.get("input_tokens"), self._usage.get("output_tokens")
        if read is None or wrote is None:
            return None
        cached, made = (self._usage.get(key) for key in _COUNTS[2:])
        if read + wrote + (cached or 0) + (made or 0) == 0:
            return None
        return Usage(
            input_tokens=read,
            output_tokens=wrote,
            cache_read_tokens=cached,
            cache_write_tokens=made,
        )

    def _finish_reason(self) -> FinishReason:
        word = self._reason
        if not word:
            raise LlmError("the server ended its reply without a stop reason", code="STREAM_CLOSED")
        if word == "max_tokens":
            return MaxTokensFinish()
        calls = any(block.kind == "tool-call" for block in self._blocks.values())
        if word in _STOP or word == "tool_use":
            if not self._blocks:
                raise LlmError(
                    f"the server's reply has no content (stop_reason {word!r})",
                    code="EMPTY_RESPONSE",
                )
            return ToolCallsFinish() if calls else StopFinish()
        code = _FAILURES.get(word) or (word.upper() if _REASON.fullmatch(word) else "UNKNOWN")
        message = self._scrub(f"the server ended its reply with stop_reason {word!r}")
        return ErrorFinish(failure=LlmFailure(message=message, code=code))


_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
