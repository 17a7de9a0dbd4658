"""The scripted model: an adapter that plays a script instead of asking a server.

What comes in: a parsed script, and the requests. What goes out: for each request the chunks of the
next entry: reasoning and text word by word, each tool call in two argument deltas. It says plainly
that it is scripted, never looks at what is asked beyond an entry's `expect`, and needs no network.

Requests past the end fail with SCRIPT_EXHAUSTED; an `expect` that does not hold fails with
SCRIPT_MISMATCH; both name the script and the entry. Entries are played in the order in which
streams are entered, across all sessions that use one `ScriptedModel`.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

import trio
from typing_extensions import override

from dsh.catalog.records import (
    BlockEndChunk,
    BlockStartChunk,
    ErrorFinish,
    FinishChunk,
    LlmFailure,
    MaxTokensFinish,
    NormalRetryPolicy,
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
from dsh.errors import LlmError, UsageError
from dsh.llm.adapter import LlmAdapter, ModelInfo, ProviderInfo, ResolvedModel
from dsh.llm.script import Script, ScriptedCall, ScriptEntry, parse_script, read_script

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence

    from dsh.catalog.records import FinishReason, RetryPolicy, StreamChunk
    from dsh.hooks.live import LlmRequest

__all__ = [
    "Script",
    "ScriptEntry",
    "ScriptedCall",
    "ScriptedModel",
    "chunks_of",
    "parse_script",
    "read_script",
]

#: How much of a message that does not match is shown.
SHOWN_MAX: Final = 200


@final
class ScriptedModel(LlmAdapter):
    """Plays one script. `requests` has every request it got, `played` counts used entries.

    `seen` is called with each request before it is answered; what it raises fails the request.
    """

    def __init__(
        self,
        script: Script | Sequence[ScriptEntry],
        *,
        retry_policy: RetryPolicy | None = None,
        seen: Callable[[LlmRequest], None] | None = None,
    ) -> None:
        self.script: Final = script if isinstance(script, Script) else Script(entries=tuple(script))
        self.requests: Final[list[LlmRequest]] = []
        self.played = 0
        self._seen: Final = seen
        self._policy: Final = retry_policy if retry_policy is not None else NormalRetryPolicy()

    @override
    @asynccontextmanager
    async def stream(self, request: LlmRequest) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
        self.requests.append(request)
        if self._seen is not None:
            self._seen(request)
        number = self.played + 1
        if number > len(self.script.entries):
            raise LlmError(
                f"{self.script.name} has {len(self.script.entries)} entries and request "
                f"{len(self.requests)} wants another one; add an entry to it",
                code="SCRIPT_EXHAUSTED",
            )
        self.played = number
        entry = self.script.entries[number - 1]
        self._check(entry, number, request)
        if entry.delay:
            await trio.sleep(entry.delay)
        yield _Played(chunks_of(entry))

    @override
    async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
        return ResolvedModel(reasoning_efforts=None)

    @override
    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._policy

    @override
    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(name=provider, where=f"scripted, plays {self.script.name}")

    @override
    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return (ModelInfo(id="scripted", name="a script, not a model"),)

    @override
    def verify(self, provider: str) -> None:
        if not self.script.entries:
            raise UsageError(
                f"provider {provider!r} has no script to play; give it one with "
                "--set scripted.file=FILE, or try dsh run --profile demo"
            )

    def _check(self, entry: ScriptEntry, number: int, request: LlmRequest) -> None:
        wanted = entry.last_message_contains
        if wanted is None:
            return
        last = request.messages[-1] if request.messages else None
        said = (
            "".join(block.text for block in last.content if isinstance(block, TextBlock))
            if last is not None
            else ""
        )
        if wanted not in said:
            shown = said if len(said) <= SHOWN_MAX else f"{said[:SHOWN_MAX]}…"
            raise LlmError(
                f"{self.script.name}, entry {number}: expected the last message to contain "
                f"{wanted!r}, it says {shown!r}",
                code="SCRIPT_MISMATCH",
            )


class _Played:
    """The chunks of one entry, with a checkpoint before each: a script is no tight loop."""

    __slots__ = ("_chunks",)

    def __init__(self, chunks: Iterator[StreamChunk]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[StreamChunk]:
        return self

    async def __anext__(self) -> StreamChunk:
        await trio.lowlevel.checkpoint()
        try:
            return next(self._chunks)
        except StopIteration:
            raise StopAsyncIteration from None


def chunks_of(entry: ScriptEntry) -> Iterator[StreamChunk]:
    """The lawful chunk stream of one entry."""
    index = 0
    if entry.reasoning:
        yield BlockStartChunk(index=index, block_type="reasoning")
        for word in words(entry.reasoning):
            yield ReasoningDeltaChunk(index=index, text=word)
        yield BlockEndChunk(index=index, block=ReasoningBlock(text=entry.reasoning))
        index += 1
    if entry.text:
        yield BlockStartChunk(index=index, block_type="text")
        for word in words(entry.text):
            yield TextDeltaChunk(index=index, text=word)
        yield BlockEndChunk(index=index, block=TextBlock(text=entry.text))
        index += 1
    for call in entry.tools:
        yield from _call(index, call)
        index += 1
    if entry.usage is not None:
        yield UsageChunk(usage=entry.usage)
    yield FinishChunk(reason=_finish(entry))


def _call(index: int, call: ScriptedCall) -> Iterator[StreamChunk]:
    call_id = call.id if call.id is not None else f"call_{uuid4().hex}"
    half = len(call.arguments) // 2
    yield BlockStartChunk(index=index, block_type="tool-call")
    yield ToolCallDeltaChunk(
        index=index, id=call_id, name=call.name, arguments_delta=call.arguments[:half]
    )
    yield ToolCallDeltaChunk(index=index, id=call_id, arguments_delta=call.arguments[half:])
    yield BlockEndChunk(
        index=index, block=ToolCallBlock(id=call_id, name=call.name, arguments=call.arguments)
    )


def _finish(entry: ScriptEntry) -> FinishReason:
    if entry.error is not None:
        return ErrorFinish(failure=entry.error)
    if entry.finish == "error":
        return ErrorFinish(
            failure=LlmFailure(
                code="SCRIPTED_ERROR", message="the script says that this request fails"
            )
        )
    if entry.finish == "max-tokens":
        return MaxTokensFinish()
    return ToolCallsFinish() if entry.tools and entry.finish is None else StopFinish()


def words(text: str) -> Iterator[str]:
    """Cut text before each run of white space; the pieces joined are the text again."""
    start = 0
    for found in re.finditer(r"(?<=\S)(?=\s)", text):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]
