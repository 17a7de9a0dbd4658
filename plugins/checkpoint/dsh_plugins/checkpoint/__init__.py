"""The plugin `checkpoint`: nothing leaves the program before the log that explains it is safe.

What comes in: model requests and tool calls on their way. What goes out: the same, after the
session's log was synced. It fails closed: if the log cannot be synced, no request leaves and no
tool runs. It changes neither requests nor results.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.kernel import required
from dsh.session import SESSIONS, Sessions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from dsh.hooks import StreamNext, live

__all__ = ["Deps", "checkpoint"]


@frozen(slots=True)
class Deps:
    """What the plugin needs of others."""

    sessions: Sessions = required(SESSIONS)


@plugin(name="checkpoint", deps=Deps)
async def checkpoint(ctx: Context, _config: None, deps: Deps) -> None:
    """Sync before a request leaves and before a tool body runs."""

    async def sync(session_id: str | None) -> None:
        session = None if session_id is None else deps.sessions.get(session_id)
        if session is not None:
            await session.flush()

    # Outermost: what other listeners put around the request or the body comes after the sync.
    @ctx.on(ev.llm.STREAM, prepend=True)
    @asynccontextmanager
    async def before_request(
        stream: ev.llm.Stream, call_next: StreamNext[ev.records.StreamChunk]
    ) -> AsyncGenerator[AsyncIterator[ev.records.StreamChunk], None]:
        await sync(stream.request.session_id)
        async with call_next() as chunks:
            yield chunks

    @ctx.on(ev.tools.EXECUTE, prepend=True)
    async def before_body(
        call: ev.tools.Execute, call_next: Next[live.ToolSuccess | live.ToolFailed]
    ) -> live.ToolSuccess | live.ToolFailed:
        agent = call.exec.agent
        await sync(None if agent is None else agent.session.id)
        return await call_next()
