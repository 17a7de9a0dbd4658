"""A kernel with the tool runtime and nothing else: for tests of tools, policies and schedules.

What comes in: plugins and calls. What goes out: results, and the log lines that a loop would have
written, as lists. There is no session, no model and no disk; the agent is a name with a scope.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import attrs
import trio
from typing_extensions import override

from dsh import Context, plugin
from dsh import catalog as ev
from dsh.catalog.config import ToolsConfig
from dsh.hooks import Scope, live
from dsh.kernel import Kernel, core_of, open_kernel
from dsh.tools import TOOLS, BatchOutcome, CallInput, Finished, ToolRuntime, run_batch, tools_plugin

__all__ = ["Committed", "ListHost", "ManualSignal", "ToolRoom", "open_tool_room"]

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence
    from contextlib import AbstractContextManager

    from dsh.hooks import JsonObject
    from dsh.tools import BatchHost


class ManualSignal(live.TurnSignal):
    """A turn's signal, as small as it can be."""

    def __init__(self) -> None:
        self._cause: ev.records.CancelCause | None = None
        self._scopes: set[trio.CancelScope] = set()
        self._set = trio.Event()

    @property
    @override
    def cancelled(self) -> bool:
        return self._cause is not None

    @property
    @override
    def cause(self) -> ev.records.CancelCause | None:
        return self._cause

    @override
    async def wait(self) -> None:
        await self._set.wait()

    @override
    def raise_if_set(self) -> None:
        if self.cancelled:
            raise RuntimeError("cancelled")

    @override
    def scope(self) -> AbstractContextManager[trio.CancelScope]:
        return self._scope()

    @contextmanager
    def _scope(self) -> Generator[trio.CancelScope, None, None]:
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.cancelled:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def cancel(self) -> None:
        """Set the cause `user` and cancel every live scope; later calls change nothing."""
        if self._cause is None:
            self._cause = ev.records.UserCause()
            self._set.set()
            for scope in list(self._scopes):
                scope.cancel()


@attrs.define
class Committed:
    """One result as the host was given it."""

    call_id: str
    seq: int
    result: live.ToolResult
    decided_by: str | None

    @property
    def code(self) -> str | None:
        """The error code, if it failed with one."""
        failed = self.result if isinstance(self.result, live.ToolFailed) else None
        return failed.info.code if failed is not None and failed.info is not None else None

    @property
    def text(self) -> str:
        """What the model reads."""
        return "\n".join(
            block.text for block in self.result.content if isinstance(block, ev.records.TextBlock)
        )


@attrs.define
class ListHost:
    """A batch host that writes into lists. `breaks` names the method that raises."""

    agent: live.Agent
    signal: ManualSignal
    cwd: str = "/"
    cap: int = 10
    log: list[str] = attrs.field(factory=list)
    results: list[Committed] = attrs.field(factory=list)
    rewrites: list[tuple[str, str, JsonObject]] = attrs.field(factory=list)
    contexts: list[ev.records.UserMessage] = attrs.field(factory=list)
    breaks: str | None = None
    seq: int = 0

    def _append(self, line: str) -> int:
        if self.breaks is not None and line.startswith(self.breaks):
            raise RuntimeError(f"{line} could not be appended")
        self.log.append(line)
        self.seq += 1
        return self.seq - 1

    def limit(self) -> int:
        """`cap`, which a test may change at any time."""
        return self.cap

    def log_call(self, call: ev.records.ToolCallBlock) -> int:
        """Write `call ID`."""
        return self._append(f"call {call.id}")

    def log_rewrite(self, call_id: str, plugin: str, arguments: JsonObject) -> None:
        """Write `rewrite ID`."""
        self._append(f"rewrite {call_id}")
        self.rewrites.append((call_id, plugin, arguments))

    def commit(
        self,
        call: ev.records.ToolCallBlock,
        call_seq: int,
        result: live.ToolResult,
        decided_by: str | None,
    ) -> None:
        """Write `result ID`."""
        self._append(f"result {call.id}")
        self.results.append(Committed(call.id, call_seq, result, decided_by))

    def deliver_contexts(self, messages: Sequence[ev.records.UserMessage]) -> None:
        """Write `contexts`."""
        self._append("contexts")
        self.contexts.extend(messages)


@attrs.define
class ToolRoom:
    """A kernel with the tool runtime, one agent in its own scope, and contexts of plugins."""

    kernel: Kernel
    tools: ToolRuntime
    scope: Scope
    agent: live.Agent
    agent_ctx: Context
    signal: ManualSignal
    host: ListHost

    async def plugin(self, name: str, *, slot: float = 5) -> Context:
        """The context of a freshly mounted plugin."""
        return await _mounted(self.kernel, name, slot=slot)

    def call(
        self, name: str, arguments: object = None, *, call_id: str = "c1", agent: bool = True
    ) -> CallInput:
        """A call as the pipeline takes it; with the room's agent and signal."""
        return CallInput(
            call_id=call_id,
            name=name,
            arguments={} if arguments is None else arguments,
            signal=self.signal,
            agent=self.agent if agent else None,
            cwd="/work",
        )

    async def run(self, name: str, arguments: object = None, *, agent: bool = True) -> Finished:
        """Run one call from end to end."""
        return await self.tools.execute(self.call(name, arguments, agent=agent))

    async def batch(self, *blocks: ev.records.ToolCallBlock) -> BatchOutcome:
        """Run the calls of one message."""
        host: BatchHost = self.host
        return await run_batch(self.tools, blocks, host)


async def _mounted(kernel: Kernel, name: str, *, slot: float = 5) -> Context:
    found: list[Context] = []

    @plugin(name=name)
    async def probe(ctx: Context) -> None:
        found.append(ctx)

    await kernel.mount(probe, slot=slot).ready()
    return found[0]


@asynccontextmanager
async def open_tool_room(config: ToolsConfig | None = None) -> AsyncGenerator[ToolRoom, None]:
    """A room for the length of the block; its plugins are unloaded at the end."""
    async with open_kernel() as kernel:
        await kernel.mount(tools_plugin, config or ToolsConfig()).ready()
        tools = kernel.root.get(TOOLS)
        assert tools is not None
        scope = Scope("agent main")
        child = await core_of(kernel.root).child("main", scope=scope)
        agent = cast("live.Agent", SimpleNamespace(id="main", scope=scope, session=None))
        signal = ManualSignal()
        yield ToolRoom(kernel, tools, scope, agent, child, signal, ListHost(agent, signal))
