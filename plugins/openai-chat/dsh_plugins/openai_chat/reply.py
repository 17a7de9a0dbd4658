"""One streamed reply, decoded: from the data of its events to lawful chunks.

What comes in: the bytes of single events, in order. What goes out: chunks, appended to a queue; a
server's in-band error, or a reply that cannot be understood, is raised as `LlmError`. Pure.

A reply has at most one text block and one reasoning block, and one block for each tool call.
Blocks end, and usage and the finish come, only when the reply is over, because servers send more
after a finish reason: late text, a second reason, the usage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

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
    StopFinish,
    TextBlock,
    TextDeltaChunk,
    ToolCallBlock,
    ToolCallDeltaChunk,
    ToolCallsFinish,
    UsageChunk,
)
from dsh.errors import LlmError
from dsh.llm import http
from dsh_plugins.openai_chat.calls import CallFragments
from dsh_plugins.openai_chat.usage import usage_of

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from dsh.catalog.records import FinishReason, StreamChunk
    from dsh.hooks import JsonValue
    from dsh_plugins.openai_chat.calls import PartialCall

__all__ = ["ReplyDecoder"]

DONE: Final = b"[DONE]"

#: Words for "the model was done". Any other word is a failure whose code is the word.
_STOP: Final = frozenset(
    {"stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed"}
)
_CALLS: Final = frozenset({"tool_calls", "tool_call", "function_call", "tool_use"})
_LENGTH: Final = frozenset({"length", "max_tokens", "max_length", "model_length"})
#: A finish reason that can be a failure's code.
_REASON: Final = re.compile(r"[A-Za-z][A-Za-z_]{0,47}")
_FIELDS_OF_AN_ERROR: Final = ("message", "detail", "error_msg")


class ReplyDecoder:
    """The state of one reply. `done` is true once `[DONE]` was seen.

    `scrub` takes secrets out of a server's words before they become a failure's message.
    `done_required`: a reply that has its finish reason and no `[DONE]` counts as cut off.
    """

    def __init__(
        self,
        out: deque[StreamChunk],
        scrub: Callable[[str], str] = lambda text: text,
        *,
        done_required: bool = True,
    ) -> None:
        self.done = False
        self._done_required: Final = done_required
        self._scrub: Final = scrub
        self._out: Final = out
        self._blocks = 0
        self._choice: JsonValue = None
        self._text_index = -1
        self._texts: list[str] = []
        self._reasoning_index = -1
        self._thoughts: list[str] = []
        self._calls: Final = CallFragments()
        self._reason = ""
        self._usage: JsonValue = None

    def complete_at(self, tail: bytes) -> bool:
        """Whether a body that ends with this unfinished event is a whole reply."""
        return tail.strip() == DONE or (bool(self._reason) and not self._done_required)

    def take_whole(self, value: JsonValue) -> bool:
        """Take a completion that came without streaming. False: it is none."""
        if not isinstance(value, dict) or not (value.get("choices") or value.get("error")):
            return False
        self.take(value)
        return True

    def decode(self, data: bytes) -> None:
        """Take one event. Raises LlmError MALFORMED_RESPONSE, or the server's own error."""
        try:
            value: JsonValue = orjson.loads(data)
        except orjson.JSONDecodeError:
            self._decode_odd(data)
            return
        self.take(value)

    def _decode_odd(self, data: bytes) -> None:
        if data.strip() == DONE:
            self.done = True
            return
        lines = data.split(b"\n")
        if len(lines) == 1:
            raise http.malformed(data) from None
        # Some gateways forget the empty line between events.
        for line in lines:
            if not self.done:
                self.decode(line)

    def take(self, value: JsonValue) -> None:
        """Take one decoded event, or a whole completion that came without streaming."""
        if not isinstance(value, dict):
            raise http.malformed(orjson.dumps(value))
        error = value.get("error")
        if error:
            raise http.in_band(value)
        choices = value.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict):
                    self._take_choice(choice)
        elif value.get("object") == "error" or any(value.get(key) for key in _FIELDS_OF_AN_ERROR):
            raise http.in_band(value)
        usage = value.get("usage")
        if isinstance(usage, dict):
            self._usage = usage

    def _take_choice(self, choice: dict[str, JsonValue]) -> None:
        index = choice.get("index")
        if index is not None:
            # Only one choice is ever asked for; what else comes is not mixed into it.
            if self._choice is None:
                self._choice = index
            elif index != self._choice:
                return
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = choice.get("message")
        if isinstance(delta, dict):
            content = delta.get("content")
            if type(content) is str and content and len(delta) == 1 and self._text_index >= 0:
                # The shape of nearly every chunk of a reply; the same as `_take_delta` does.
                self._texts.append(content)
                self._out.append(TextDeltaChunk(index=self._text_index, text=content))
            else:
                self._take_delta(delta)
        if choice.get("error"):
            raise http.in_band(choice)
        reason = choice.get("finish_reason")
        # The first word counts, unless it was only "stop" and a later one says more.
        if isinstance(reason, str) and reason and self._reason in {"", "stop"}:
            self._reason = reason

    def _take_delta(self, delta: dict[str, JsonValue]) -> None:
        content = delta.get("content")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and isinstance(thought, str):
            self._think(thought)
        if content:
            if isinstance(content, str):
                self._say(content)
            elif isinstance(content, list):
                self._take_parts(content)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._say(refusal)
        calls = delta.get("tool_calls")
        if calls:
            for fragment in calls if isinstance(calls, list) else (calls,):
                if isinstance(fragment, dict):
                    self._tell(self._calls.add(fragment))
        legacy = delta.get("function_call")
        if legacy and isinstance(legacy, dict):
            self._tell(self._calls.add({"index": 0, "function": legacy}))

    def _take_parts(self, parts: list[JsonValue]) -> None:
        """Content as a list of typed parts; thinking parts are lists of text parts again."""
        for part in parts:
            if not isinstance(part, dict):
                continue
            text, thinking = part.get("text"), part.get("thinking")
            if isinstance(text, str) and text:
                self._say(text)
            for thought in thinking if isinstance(thinking, list) else (thinking,):
                words = thought.get("text") if isinstance(thought, dict) else thought
                if isinstance(words, str) and words:
                    self._think(words)

    def _say(self, text: str) -> None:
        index = self._text_index
        if index < 0:
            index = self._text_index = self._start("text")
        self._texts.append(text)
        self._out.append(TextDeltaChunk(index=index, text=text))

    def _think(self, text: str) -> None:
        index = self._reasoning_index
        if index < 0:
            index = self._reasoning_index = self._start("reasoning")
        self._thoughts.append(text)
        self._out.append(ReasoningDeltaChunk(index=index, text=text))

    def _start(self, kind: str) -> int:
        index = self._blocks
        self._blocks += 1
        self._out.append(BlockStartChunk(index=index, block_type=kind))
        return index

    def _tell(self, call: PartialCall) -> None:
        """Say what is new of a call. Held back until its name is known."""
        if not call.name:
            return
        opened = call.block_index >= 0
        if not opened:
            call.block_index = self._start("tool-call")
        added = "".join(call.parts[call.told :])
        renamed = call.name != call.shown_name
        if opened and not added and not renamed:
            return
        call.told = len(call.parts)
        call.shown_name = call.name
        self._out.append(
            ToolCallDeltaChunk(
                index=call.block_index,
                id=self._calls.identify(call),
                name=call.name if renamed else None,
                arguments_delta=added,
            )
        )

    def finish(self) -> None:
        """The reply is over: end its blocks, then usage, then the one finish.

        Raises LlmError STREAM_CLOSED when the server never said why it ended, EMPTY_RESPONSE when
        there is nothing in it, MALFORMED_RESPONSE for a call without a name.
        """
        reason = self._finish_reason()
        ends: dict[int, BlockEndChunk] = {}
        for index, block in (
            (self._text_index, TextBlock(text="".join(self._texts))),
            (self._reasoning_index, ReasoningBlock(text="".join(self._thoughts))),
        ):
            if index >= 0:
                ends[index] = BlockEndChunk(index=index, block=block)
        for call in self._calls.calls:
            made = ToolCallBlock(
                id=self._calls.identify(call), name=call.name, arguments=call.arguments
            )
            ends[call.block_index] = BlockEndChunk(index=call.block_index, block=made)
        self._out.extend(ends[index] for index in sorted(ends))
        usage = usage_of(self._usage)
        if usage is not None:
            self._out.append(UsageChunk(usage=usage))
        self._out.append(FinishChunk(reason=reason))

    def _finish_reason(self) -> FinishReason:
        word = self._reason
        if not word:
            raise LlmError(
                "the server ended its reply without a finish reason", code="STREAM_CLOSED"
            )
        if word in _LENGTH:
            # The calls of a cut reply are dropped later; a nameless one must not fail it.
            self._calls.calls[:] = [call for call in self._calls.calls if call.name]
            return MaxTokensFinish()
        if word in _STOP or word in _CALLS:
            nameless = next((call for call in self._calls.calls if not call.name), None)
            if nameless is not None:
                raise LlmError(
                    f"the server called a tool without naming it (arguments "
                    f"{nameless.arguments[:120]!r})",
                    code="MALFORMED_RESPONSE",
                )
            if not self._blocks:
                raise LlmError(
                    f"the server's reply has no text, no reasoning and no tool call "
                    f"(finish_reason {word!r})",
                    code="EMPTY_RESPONSE",
                )
            # Some gateways say "stop" although there are calls, and the other way round.
            return ToolCallsFinish() if self._calls.calls else StopFinish()
        self._calls.calls[:] = [call for call in self._calls.calls if call.name]
        return ErrorFinish(
            failure=LlmFailure(
                message=self._scrub(f"the server ended its reply with finish_reason {word!r}"),
                code=word.upper() if _REASON.fullmatch(word) else "UNKNOWN",
            )
        )
