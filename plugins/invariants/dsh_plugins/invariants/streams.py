"""The stream law: every stream that reaches its consumer follows the grammar of chunks.

What comes in: the rest of a stream's chain. What goes out: the same chunks, or a breach at the
first that breaks a rule, or at an end that comes too early. It adds no checkpoint and keeps no
chunk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, final

from typing_extensions import override

from dsh import catalog as ev
from dsh.catalog import records
from dsh.llm import ChunkGrammar

if TYPE_CHECKING:
    from types import TracebackType

    from dsh.hooks import StreamNext
    from dsh_plugins.invariants.breach import Book

__all__ = ["CheckedStream"]


@final
class CheckedStream(
    AbstractAsyncContextManager[AsyncIterator[records.StreamChunk]],
    AsyncIterator[records.StreamChunk],
):
    """One stream under the law."""

    def __init__(self, book: Book, call_next: StreamNext[records.StreamChunk]) -> None:
        self._book: Final = book
        self._call_next: Final = call_next
        self._grammar: Final = ChunkGrammar()
        self._seen = 0
        self._inner: AbstractAsyncContextManager[AsyncIterator[records.StreamChunk]] | None = None
        self._source: AsyncIterator[records.StreamChunk] | None = None

    @override
    async def __aenter__(self) -> AsyncIterator[records.StreamChunk]:
        inner = self._call_next()
        self._source = aiter(await inner.__aenter__())
        self._inner = inner
        return self

    @override
    async def __anext__(self) -> records.StreamChunk:
        source = self._source
        if source is None:
            raise StopAsyncIteration
        try:
            chunk = await anext(source)
        except StopAsyncIteration:
            self._source = None
            self._hold(self._grammar.end())
            raise
        self._hold(self._grammar.push(chunk))
        self._seen += 1
        return chunk

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        inner, self._inner, self._source = self._inner, None, None
        return None if inner is None else await inner.__aexit__(kind, error, trace)

    def _hold(self, fault: str | None) -> None:
        if fault is not None:
            told = f"chunk {self._seen}: {fault}"
            raise self._book.breach("stream", ev.llm.STREAM.name, None, told)
