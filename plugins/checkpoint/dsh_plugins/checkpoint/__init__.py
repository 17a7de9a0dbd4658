"""The plugin `checkpoint`: nothing leaves the program before the log that explains it is safe.

What comes in: model requests and tool calls on their way. What goes out: the same, after the
session's log was synced. It fails closed: if the log cannot be synced, no request leaves and no
tool runs. It changes neither requests nor results.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Final, final

from typing_extensions import override

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.catalog.records import StreamChunk
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.session import SESSIONS, Sessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from dsh.hooks import StreamNext, live

__all__ = ["Deps", "checkpoint"]


@frozen(slots=True)
class Deps:
    """What the plugin needs of others."""

    sessions: Sessions = required(SESSIONS)


@final
class _AfterSync(AbstractAsyncContextManager[AsyncIterator[StreamChunk]]):
    """The rest of the chain, entered once the log is safe.

    A class and no generator: every network read of a reply goes through what is open here.
    """

    __slots__ = ("_call_next", "_inner", "_sync")

    def __init__(
        self, sync: Callable[[], Awaitable[None]], call_next: StreamNext[StreamChunk]
    ) -> None:
        self._sync: Final = sync
        self._call_next: Final = call_next
        self._inner: AbstractAsyncContextManager[AsyncIterator[StreamChunk]] | None = None

    @override
    async def __aenter__(self) -> AsyncIterator[StreamChunk]:
        await self._sync()
        inner = self._call_next()
        chunks = await inner.__aenter__()
        self._inner = inner
        return chunks

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.__aexit__(kind, error, trace)


@plugin(name="checkpoint", deps=Deps)
async def checkpoint(ctx: Context, _config: None, deps: Deps) -> None:
    """Sync before a request leaves and before a tool body runs."""

    async def sync(session_id: str | None) -> None:
        session = None if session_id is None else deps.sessions.get(session_id)
        if session is not None:
            await session.flush()

    # Outermost: what other listeners put around the request or the body comes after the sync.
    @ctx.on(ev.llm.STREAM, prepend=True)
    def before_request(
        stream: ev.llm.Stream, call_next: StreamNext[ev.records.StreamChunk]
    ) -> _AfterSync:
        return _AfterSync(partial(sync, stream.request.session_id), call_next)

    @ctx.on(ev.tools.EXECUTE, prepend=True)
    async def before_body(
        call: ev.tools.Execute, call_next: Next[live.ToolSuccess | live.ToolFailed]
    ) -> live.ToolSuccess | live.ToolFailed:
        agent = call.exec.agent
        await sync(None if agent is None else agent.session.id)
        return await call_next()
