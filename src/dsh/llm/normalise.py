"""One adapter stream made lawful: whatever the adapter does, the reply ends with one finish.

What comes in: an adapter, bound to one registration, and a frozen request. What goes out: a chunk
stream in which every failure of choosing, opening, entering or iterating the adapter's stream has
become one terminal finish (`aborted` when the caller's signal is set, else `error`), after which
nothing follows. What goes through untouched: cancellation, failures of the consumer's own code,
and failures while the adapter cleans up.

A class with `__anext__` and no generator: nothing is suspended across scopes, and a chunk costs
one extra call.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, final

import trio
from typing_extensions import override

from dsh.catalog.records import AbortedFinish, ErrorFinish, FinishChunk, LlmFailure, StreamChunk
from dsh.llm.failure import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from dsh.errors import LlmError
    from dsh.hooks.live import ChunkStream, LlmRequest

__all__ = ["LawfulStream", "refuse"]

#: How long an adapter may take to close its connection when the stream is left, in seconds.
CLOSE_TIMEOUT: Final = 2.0

_log = logging.getLogger("dsh.llm")


@final
class LawfulStream(
    AbstractAsyncContextManager[AsyncIterator[StreamChunk]], AsyncIterator[StreamChunk]
):
    """The chunk stream of one attempt. Enter it once; leaving it closes the adapter's stream."""

    __slots__ = ("_done", "_failure", "_manager", "_next", "_open", "_request")

    def __init__(self, request: LlmRequest, open_stream: Callable[[], ChunkStream]) -> None:
        self._request = request
        self._open = open_stream
        self._manager: ChunkStream | None = None
        self._next: AsyncIterator[StreamChunk] | None = None
        self._failure: LlmFailure | None = None
        self._done = False

    @override
    async def __aenter__(self) -> AsyncIterator[StreamChunk]:
        try:
            manager = self._open()
            chunks = await manager.__aenter__()
        except Exception as error:  # noqa: BLE001 - any failure of an adapter becomes the finish
            self._failure = failure_of(error)
            return self
        # From here on `__aexit__` owns the adapter's manager.
        self._manager = manager
        try:
            self._next = aiter(chunks)
        except Exception as error:  # noqa: BLE001 - as above
            self._failure = failure_of(error)
        return self

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> StreamChunk:
        if self._done:
            raise StopAsyncIteration
        chunks = self._next
        if chunks is None:
            return self._failed(self._failure)
        try:
            chunk = await chunks.__anext__()
        except StopAsyncIteration:
            return self._failed(None)
        except Exception as error:  # noqa: BLE001 - any failure of an adapter becomes the finish
            return self._failed(failure_of(error))
        if type(chunk) is FinishChunk:
            self._done = True
        return chunk

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done = True
        manager, self._manager = self._manager, None
        chunks, self._next = self._next, None
        if manager is None:
            return
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True) as scope:
            try:
                # An author's generator is never left suspended: nobody asks it for more.
                if isinstance(chunks, AsyncGenerator):
                    await chunks.aclose()
            finally:
                await manager.__aexit__(kind, error, trace)
        if scope.cancelled_caught:
            _log.warning(
                "the adapter of provider %r did not close its stream within %s s",
                self._request.provider,
                CLOSE_TIMEOUT,
            )

    def _failed(self, failure: LlmFailure | None) -> FinishChunk:
        self._done = True
        if failure is None:
            failure = LlmFailure(
                message=f"provider {self._request.provider!r} ended its stream without a finish",
                code="STREAM_CLOSED",
            )
        signal = self._request.signal
        if failure.code == "ABORTED" or (signal is not None and signal.cancelled):
            return FinishChunk(reason=AbortedFinish(failure=failure))
        return FinishChunk(reason=ErrorFinish(failure=failure))


def refuse(error: LlmError) -> Callable[[], ChunkStream]:
    """An opener that fails with `error`: how a call without an adapter ends."""

    def fail() -> ChunkStream:
        raise error

    return fail
