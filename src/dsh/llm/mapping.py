"""The usual listener of `llm/stream`: change or drop chunks on their way, nothing else.

What comes in: a function of one chunk. What goes out: a listener for `ctx.on(ev.llm.STREAM)`. The
stream it wraps is entered when its own is, and left with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeAlias, final

from typing_extensions import override

from dsh.catalog.records import StreamChunk

if TYPE_CHECKING:
    from types import TracebackType

    from dsh import catalog as ev
    from dsh.hooks import StreamNext

    ChunkMap: TypeAlias = Callable[[StreamChunk], StreamChunk | None]
    StreamListener: TypeAlias = Callable[
        [ev.llm.Stream, StreamNext[StreamChunk]],
        AbstractAsyncContextManager[AsyncIterator[StreamChunk]],
    ]

__all__ = ["map_chunks"]


def map_chunks(fn: ChunkMap) -> StreamListener:
    """A listener that passes every chunk through `fn`; None drops the chunk.

    `ctx.on(ev.llm.STREAM)(map_chunks(fn))`. What `fn` raises is raised to the consumer. Keep the
    finish: a stream without one counts as cut off.
    """

    def listener(
        stream: ev.llm.Stream, call_next: StreamNext[StreamChunk]
    ) -> AbstractAsyncContextManager[AsyncIterator[StreamChunk]]:
        del stream
        return _Mapped(call_next, fn)

    return listener


@final
class _Mapped(AbstractAsyncContextManager[AsyncIterator[StreamChunk]], AsyncIterator[StreamChunk]):
    __slots__ = ("_call_next", "_fn", "_inner", "_source")

    def __init__(self, call_next: StreamNext[StreamChunk], fn: ChunkMap) -> None:
        self._call_next = call_next
        self._fn = fn
        self._inner: AbstractAsyncContextManager[AsyncIterator[StreamChunk]] | None = None
        self._source: AsyncIterator[StreamChunk] | None = None

    @override
    async def __aenter__(self) -> AsyncIterator[StreamChunk]:
        inner = self._call_next()
        self._source = aiter(await inner.__aenter__())
        self._inner = inner
        return self

    @override
    async def __anext__(self) -> StreamChunk:
        source = self._source
        if source is None:
            raise StopAsyncIteration
        while True:
            chunk = self._fn(await anext(source))
            if chunk is not None:
                return chunk

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        inner, self._inner, self._source = self._inner, None, None
        if inner is not None:
            await inner.__aexit__(kind, error, trace)
