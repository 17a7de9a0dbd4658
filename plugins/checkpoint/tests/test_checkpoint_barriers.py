"""Before a request leaves and before a tool runs the log is synced; else neither goes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from dsh import catalog as ev
from dsh.errors import StorageFailed
from dsh.hooks import live
from dsh.kernel import CoreContext, open_kernel
from dsh.session import SESSIONS, Session, sessions_plugin
from dsh.testing import LogWriting, MemoryStore
from dsh.testing.logs import header
from dsh_plugins.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator


class World:
    def __init__(self, ctx: CoreContext, store: MemoryStore, session: Session) -> None:
        self.ctx = ctx
        self.store = store
        self.session = session
        self.order: list[str] = []

    async def request(self, session_id: str | None) -> list[str]:
        """Send one model request through `llm/stream`; the model notes what was synced by then."""

        @asynccontextmanager
        async def model() -> AsyncGenerator[AsyncIterator[ev.records.StreamChunk], None]:
            self.order.append(f"request after {self.store.syncs} syncs")

            async def chunks() -> AsyncIterator[ev.records.StreamChunk]:
                yield ev.records.TextDeltaChunk(index=0, text="hi")

            yield chunks()

        request = live.LlmRequest(provider="p", model="m", messages=(), session_id=session_id)
        stream = self.ctx.stream(ev.llm.STREAM)
        texts: list[str] = []
        async with stream(ev.llm.Stream(request=request), model) as found:
            async for chunk in found:
                assert isinstance(chunk, ev.records.TextDeltaChunk)
                texts.append(chunk.text)
        return texts

    async def tool(self, session: Session | None) -> live.ToolSuccess | live.ToolFailed:
        """Run one tool body through `tools/execute`."""

        async def body() -> live.ToolSuccess | live.ToolFailed:
            self.order.append(f"body after {self.store.syncs} syncs")
            return live.ToolSuccess(value=1, content=())

        agent = None if session is None else SimpleNamespace(session=session, scope=None)
        call = cast("live.ToolExecution", SimpleNamespace(agent=agent))
        return await self.ctx.waterfall(ev.tools.EXECUTE)(ev.tools.Execute(exec=call), body)


@asynccontextmanager
async def world() -> AsyncGenerator[World, None]:
    async with open_kernel() as kernel:
        await kernel.mount(sessions_plugin).ready()
        await kernel.mount(checkpoint).ready()
        sessions, store = kernel.root.require(SESSIONS), MemoryStore()
        session = sessions.prepare(header())
        session.writer.attach(await store.create(session.header))
        sessions.enter(session, None)
        yield World(kernel.root, store, session)


async def test_a_request_leaves_after_the_log_is_synced() -> None:
    async with world() as w:
        LogWriting(w.session).turn_start()
        assert await w.request("s") == ["hi"]
        assert w.order == ["request after 1 syncs"]
        assert len(w.store.lines("s")) == 2


async def test_a_tool_body_runs_after_the_log_is_synced() -> None:
    async with world() as w:
        LogWriting(w.session).turn_start()
        assert await w.tool(w.session) == live.ToolSuccess(value=1, content=())
        assert w.order == ["body after 1 syncs"]


async def test_what_cannot_be_synced_does_not_go() -> None:
    async with world() as w:
        LogWriting(w.session).turn_start()
        w.store.failing = OSError(28, "No space left on device")
        with pytest.raises(StorageFailed, match="No space left"):
            await w.request("s")
        with pytest.raises(StorageFailed, match="No space left"):
            await w.tool(w.session)
        assert w.order == []
        w.store.failing = None
        await w.request("s")
        assert w.order == ["request after 1 syncs"]


async def test_nothing_new_costs_no_sync() -> None:
    async with world() as w:
        LogWriting(w.session).turn_start()
        await w.request("s")
        await w.tool(w.session)
        assert w.store.syncs == 1


async def test_requests_and_calls_of_no_session_pass() -> None:
    async with world() as w:
        for session_id in (None, "unknown"):
            await w.request(session_id)
        await w.tool(None)
        assert len(w.order) == 3
