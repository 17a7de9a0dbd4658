"""A model for tests of long conversations: it answers turns and summaries apart.

What comes in: answers for the loop's requests and for those of a compaction, and the size of the
context. What goes out: lawful streams, and both kinds of requests as they arrived.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, final

import trio
from typing_extensions import override

from dsh.llm import LlmAdapter, ResolvedModel, ScriptEntry, chunks_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from dsh.catalog import records
    from dsh.hooks.live import LlmRequest

__all__ = ["Answer", "Talker"]

Answer: TypeAlias = (
    "ScriptEntry | Callable[[LlmRequest], AsyncGenerator[records.StreamChunk, None]]"
)


@final
class Talker(LlmAdapter):
    """Answers the loop from `replies`, compactions from `summaries` (whose last one stays).

    `window` is the context's size that it resolves to, in tokens; it may be changed.
    """

    def __init__(
        self,
        *replies: Answer,
        window: int | None,
        summaries: tuple[Answer, ...] = (),
    ) -> None:
        self.replies: Final = list(replies)
        self.summaries: Final = list(summaries)
        self.window = window
        self.asked: Final[list[LlmRequest]] = []
        self.summarised: Final[list[LlmRequest]] = []

    @override
    @asynccontextmanager
    async def stream(
        self, request: LlmRequest
    ) -> AsyncGenerator[AsyncIterator[records.StreamChunk]]:
        if request.purpose == "compaction":
            self.summarised.append(request)
            answer = self.summaries.pop(0) if len(self.summaries) > 1 else self.summaries[0]
        else:
            self.asked.append(request)
            answer = self.replies.pop(0)
        stream = _played(answer) if isinstance(answer, ScriptEntry) else answer(request)
        async with aclosing(stream) as chunks:
            yield chunks

    @override
    async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
        await trio.lowlevel.checkpoint()
        return ResolvedModel(context_window=self.window)


async def _played(entry: ScriptEntry) -> AsyncGenerator[records.StreamChunk, None]:
    for chunk in chunks_of(entry):
        await trio.lowlevel.checkpoint()
        yield chunk
