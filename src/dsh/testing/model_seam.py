"""The model seam alone, for tests of adapters and of `llm/stream` listeners.

What comes in: adapters. What goes out: a kernel with the row `llm`, requests and configurations as
small as they can be, and an adapter whose every part a test may replace. No agent, no session, no
network.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import trio
from attrs import frozen
from typing_extensions import override

from dsh.catalog.records import (
    AbortedFinish,
    ErrorFinish,
    FinishChunk,
    LlmCallConfig,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDeltaChunk,
    UserMessage,
    UserSource,
)
from dsh.hooks import live
from dsh.kernel import Context, Kernel, open_kernel, plugin
from dsh.llm import LLM, LlmAdapter, LlmRuntime, ResolvedModel, llm_plugin

if TYPE_CHECKING:
    from dsh.catalog.records import Message, RetryPolicy

__all__ = [
    "STOP",
    "PartsAdapter",
    "Seam",
    "ask",
    "call_config",
    "collect",
    "failure_code",
    "open_seam",
    "saying",
    "user",
]

#: The terminal chunk of a reply that is complete.
STOP: Final = FinishChunk(reason=StopFinish())

Play: TypeAlias = Callable[[live.LlmRequest], AsyncIterator[StreamChunk]]


async def _finish_only(request: live.LlmRequest) -> AsyncIterator[StreamChunk]:
    del request
    yield STOP


def saying(words: str) -> Play:
    """The parts of a reply that says these words and stops."""

    async def play(request: live.LlmRequest) -> AsyncIterator[StreamChunk]:
        del request
        yield TextDeltaChunk(index=0, text=words)
        yield STOP

    return play


class PartsAdapter(LlmAdapter):
    """`play` makes the chunks, `model` is what resolves (an exception is raised)."""

    def __init__(
        self,
        play: Play = _finish_only,
        *,
        model: ResolvedModel | Exception | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.play = play
        self.model = model if model is not None else ResolvedModel()
        self.policy = policy
        self.requests: list[live.LlmRequest] = []
        self.resolved: list[tuple[str, str]] = []
        self.closed = 0

    @override
    def stream(self, request: live.LlmRequest) -> live.ChunkStream:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: live.LlmRequest) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
        self.requests.append(request)
        try:
            yield self.play(request)
        finally:
            self.closed += 1

    @override
    async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
        self.resolved.append((provider, model))
        await trio.lowlevel.checkpoint()
        if isinstance(self.model, Exception):
            raise self.model
        return self.model

    @override
    def retry_policy(self, provider: str) -> RetryPolicy:
        return self.policy if self.policy is not None else super().retry_policy(provider)


@frozen
class Seam:
    """The running seam. Register adapters and listeners with `ctx`, a plugin's own context."""

    kernel: Kernel
    ctx: Context
    llm: LlmRuntime

    async def run(self, request: live.LlmRequest) -> list[StreamChunk]:
        """All chunks of one unprepared call."""
        return await collect(self.llm.stream(request))


@asynccontextmanager
async def open_seam() -> AsyncGenerator[Seam]:
    """A kernel with the row `llm` and one plugin, for the length of the block."""
    held: list[Context] = []

    @plugin(name="owner")
    async def owner(ctx: Context) -> None:
        held.append(ctx)

    async with open_kernel() as kernel:
        await kernel.mount(llm_plugin).ready()
        await kernel.mount(owner).ready()
        yield Seam(kernel, held[0], kernel.root.require(LLM))


def user(text: str, message_id: str = "u1") -> UserMessage:
    """What a person said."""
    return UserMessage(id=message_id, content=(TextBlock(text=text),), source=UserSource())


def ask(
    *messages: Message,
    provider: str = "p",
    model: str = "m",
    signal: live.TurnSignal | None = None,
) -> live.LlmRequest:
    """A request as small as it can be."""
    return live.LlmRequest(provider=provider, model=model, messages=messages, signal=signal)


def call_config(provider: str = "p", model: str = "m", effort: str | None = None) -> LlmCallConfig:
    """A call configuration as small as it can be."""
    return LlmCallConfig(provider=provider, model=model, reasoning_effort=effort)


async def collect(stream: live.ChunkStream) -> list[StreamChunk]:
    """All chunks of a stream."""
    async with stream as chunks:
        return [chunk async for chunk in chunks]


def failure_code(chunks: list[StreamChunk]) -> tuple[str, str]:
    """Kind and code of the terminal finish, which must be the only one and the last."""
    assert [type(chunk) is FinishChunk for chunk in chunks].count(True) == 1
    last = chunks[-1]
    assert isinstance(last, FinishChunk)
    assert isinstance(last.reason, ErrorFinish | AbortedFinish)
    return last.reason.kind, last.reason.failure.code
