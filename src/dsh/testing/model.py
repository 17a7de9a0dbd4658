"""A model for tests: each request is answered by the next reply, and kept.

What comes in: replies, as script entries or as functions that stream chunks. What goes out: lawful
streams, and the requests exactly as they arrived. What it resolves to (defaults, capabilities) may
be changed between requests.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, final

import trio
from typing_extensions import override

from dsh.catalog import records
from dsh.errors import LlmError
from dsh.llm import LlmAdapter, ResolvedModel, ScriptedCall, ScriptEntry, chunks_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence

    from dsh.hooks.live import LlmRequest

__all__ = ["Reply", "ScriptedReplies", "call", "calls", "fails", "says", "stalls"]

Streaming: TypeAlias = "Callable[[LlmRequest], AsyncGenerator[records.StreamChunk, None]]"
Reply: TypeAlias = "ScriptEntry | Streaming"


def says(text: str) -> ScriptEntry:
    """A reply of text alone."""
    return ScriptEntry(text=text)


def call(name: str, arguments: str = "{}", *, call_id: str | None = None) -> ScriptedCall:
    """One call for `calls`; `arguments` is the raw text that the model writes."""
    return ScriptedCall(name=name, arguments=arguments, id=call_id)


def calls(*wanted: ScriptedCall, text: str = "") -> ScriptEntry:
    """A reply that asks for these calls."""
    return ScriptEntry(text=text, tools=wanted)


def fails(code: str = "SERVER", *, asks_ms: float | None = None) -> ScriptEntry:
    """Half a reply, and then a failure; `asks_ms` is the wait that the server asks for."""
    failure = records.LlmFailure(message="busy", code=code, provider_retry_after_ms=asks_ms)
    return ScriptEntry(text="half an answer", error=failure)


def stalls(*chunks: records.StreamChunk) -> Streaming:
    """A reply that streams these chunks and then nothing more, until it is cancelled.

    A delta whose block was not started gets its start.
    """

    async def stream(_request: LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        for chunk in _begun(chunks):
            yield chunk
        await trio.sleep_forever()

    return stream


_TYPES: Final[Mapping[type, str]] = {
    records.TextDeltaChunk: "text",
    records.ReasoningDeltaChunk: "reasoning",
    records.ToolCallDeltaChunk: "tool-call",
}


def _begun(chunks: Sequence[records.StreamChunk]) -> Iterator[records.StreamChunk]:
    started: set[int] = set()
    for chunk in chunks:
        match chunk:
            case records.BlockStartChunk(index=index):
                started.add(index)
            case (
                records.TextDeltaChunk(index=index)
                | records.ReasoningDeltaChunk(index=index)
                | records.ToolCallDeltaChunk(index=index)
            ) if index not in started:
                started.add(index)
                yield records.BlockStartChunk(index=index, block_type=_TYPES[type(chunk)])
            case _:
                pass
        yield chunk


@final
class ScriptedReplies(LlmAdapter):
    """The adapter. `replies` may be added to while it runs; running out fails the request."""

    def __init__(
        self,
        replies: Sequence[Reply] = (),
        *,
        resolved: ResolvedModel | None = None,
        policy: records.RetryPolicy | None = None,
    ) -> None:
        self.replies: Final[list[Reply]] = list(replies)
        self.requests: Final[list[LlmRequest]] = []
        self.resolved = ResolvedModel() if resolved is None else resolved
        self._policy: Final = records.NormalRetryPolicy() if policy is None else policy

    @override
    @asynccontextmanager
    async def stream(
        self, request: LlmRequest
    ) -> AsyncGenerator[AsyncIterator[records.StreamChunk], None]:
        self.requests.append(request)
        if not self.replies:
            raise LlmError(
                f"the test's model got request {len(self.requests)} and has no reply left",
                code="SCRIPT_EXHAUSTED",
            )
        reply = self.replies.pop(0)
        stream = _played(reply) if isinstance(reply, ScriptEntry) else reply(request)
        async with aclosing(stream) as chunks:
            yield chunks

    @override
    async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
        await trio.lowlevel.checkpoint()
        return self.resolved

    @override
    def retry_policy(self, provider: str) -> records.RetryPolicy:
        return self._policy


async def _played(entry: ScriptEntry) -> AsyncGenerator[records.StreamChunk, None]:
    if entry.delay:
        await trio.sleep(entry.delay)
    for chunk in chunks_of(entry):
        await trio.lowlevel.checkpoint()
        yield chunk
