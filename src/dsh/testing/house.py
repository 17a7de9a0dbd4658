"""A whole small house for tests: kernel, rooms, loop, a model made of replies, logs in memory.

What comes in: replies, tools, a store, plugins, configs. What goes out: a running harness without
disk, network or environment, and short ways to look at what an agent logged. Every room in it is
the real one, and the plugin `invariants` watches all of them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from attrs import frozen

from dsh import catalog as ev
from dsh.agent import AGENTS, AgentHandle, Agents, agents_plugin
from dsh.catalog import records
from dsh.catalog.config import AgentLoopConfig, SystemPromptConfig
from dsh.kernel import Context, CoreContext, Kernel, Plugin, open_kernel, plugin
from dsh.llm import LLM, LlmRuntime, llm_plugin
from dsh.loop import agent_loop, loops_plugin
from dsh.prompt import PROMPT, SystemPrompt, system_prompt_plugin
from dsh.seams.persistence import PERSISTENCE, SessionPersistence
from dsh.session import SESSIONS, Sessions, sessions_plugin
from dsh.testing.model import Reply, ScriptedReplies
from dsh.tools import TOOLS, Tool, ToolRuntime, tools_plugin
from dsh_plugins.invariants import INVARIANTS, Book, invariants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from dsh.agent import Setup
    from dsh.hooks import Next, live
    from dsh.kernel import Fiber
    from dsh.session import Session

__all__ = ["OPTIONS", "TestHouse", "TickingClock", "open_test_house"]

K = TypeVar("K")

#: The route of the house's own model.
OPTIONS: Final = records.AgentOptions(provider="test", model="model-1")


class TickingClock:
    """Wall time that advances one millisecond with each look; monotonic time is trio's."""

    def __init__(self, start_ms: int = 1_750_000_000_000) -> None:
        self._now = start_ms

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        self._now += 1
        return self._now

    def monotonic(self) -> float:
        """Seconds of trio's clock."""
        return trio.current_time()


@frozen(kw_only=True, eq=False)
class TestHouse:
    """The running house. `ctx` is the root context: register listeners and tools with it."""

    __test__ = False

    kernel: Kernel
    ctx: CoreContext
    model: ScriptedReplies
    store: SessionPersistence | None
    loop: Fiber
    agents: Agents
    sessions: Sessions
    llm: LlmRuntime
    tools: ToolRuntime
    prompt: SystemPrompt

    async def agent(
        self,
        session_id: str = "s",
        *,
        options: records.AgentOptions = OPTIONS,
        cwd: str | None = "/work",
        setup: Setup | None = None,
        parent: live.Agent | None = None,
        owner: Context | None = None,
    ) -> AgentHandle:
        """A new agent on the house's model."""
        return await self.agents.create(
            session_id, options=options, cwd=cwd, setup=setup, parent=parent, owner=owner
        )

    def session(self, agent: live.Agent | AgentHandle) -> Session:
        """The concrete session of an agent."""
        given = agent.agent if isinstance(agent, AgentHandle) else agent
        session = self.sessions.get(given.id)
        assert session is not None, f"session {given.id!r} is not live"
        return session

    def logged(self, agent: live.Agent | AgentHandle, kind: type[K]) -> list[K]:
        """The payloads of one kind in an agent's log, in order."""
        found = (event.data for event in self.session(agent).events)
        return [data for data in found if isinstance(data, kind)]

    def reason(self, agent: live.Agent | AgentHandle) -> records.TurnEndReason:
        """Why an agent's newest turn ended."""
        return self.logged(agent, ev.turn.End)[-1].reason

    def ends(self, agent: live.Agent | AgentHandle) -> list[records.TurnEndReason]:
        """Why each of an agent's turns ended, in order."""
        return [end.reason for end in self.logged(agent, ev.turn.End)]

    def results(self, agent: live.Agent | AgentHandle) -> list[ev.tool.Result]:
        """The results of an agent's tool calls, in order."""
        return self.logged(agent, ev.tool.Result)

    def texts(self, agent: live.Agent | AgentHandle) -> list[str]:
        """The texts of the user messages in an agent's history, in order."""
        return [
            block.text
            for message in self.session(agent).derive_messages()
            if isinstance(message, records.UserMessage)
            for block in message.content
            if isinstance(block, records.TextBlock)
        ]

    def lifecycle(self) -> list[str]:
        """What is told from now on of sessions and agents that begin and end; it grows."""
        told: list[str] = []
        on = self.ctx.on
        on(ev.session.CREATED)(lambda _: told.append(ev.session.CREATED.name))
        on(ev.session.DISPOSED)(lambda _: told.append(ev.session.DISPOSED.name))
        on(ev.agent.CREATED)(lambda _: told.append(ev.agent.CREATED.name))
        on(ev.agent.DISPOSED)(lambda _: told.append(ev.agent.DISPOSED.name))
        on(ev.agent.SESSION_START)(lambda start: told.append(f"start {start.source}"))
        return told

    def retrying(self, times: int = 1) -> list[ev.agent.RequestError]:
        """Try the first `times` failed requests again; every failed request, and it grows."""
        seen: list[ev.agent.RequestError] = []

        @self.ctx.on(ev.agent.REQUEST_ERROR)
        async def recover(
            error: ev.agent.RequestError, call_next: Next[ev.agent.RequestErrorDecision]
        ) -> ev.agent.RequestErrorDecision:
            seen.append(error)
            return ev.agent.Retry() if len(seen) <= times else await call_next()

        return seen

    def nothing_is_left(self, session_id: str = "s") -> bool:
        """Whether neither registry knows this id."""
        return self.agents.get(session_id) is None and self.sessions.get(session_id) is None

    def names(self, agent: live.Agent | AgentHandle, *, chunks: bool = False) -> list[str]:
        """The event names of an agent's log; without chunks unless asked for."""
        chunk = ev.assistant.CHUNK.name
        return [event.type for event in self.session(agent).events if chunks or event.type != chunk]


async def _mount_rooms(
    kernel: Kernel, store: SessionPersistence | None, prompt: SystemPromptConfig | None
) -> None:
    """Everything that a loop stands on."""

    @plugin(name="test-store", provides=(PERSISTENCE,))
    async def test_store(ctx: Context) -> None:
        if store is not None:
            ctx.provide(PERSISTENCE, store)

    if store is not None:
        await kernel.mount(test_store).ready()
    for row in (sessions_plugin, agents_plugin, llm_plugin, tools_plugin):
        await kernel.mount(row).ready()
    config = SystemPromptConfig(include_harness_identity=False) if prompt is None else prompt
    await kernel.mount(system_prompt_plugin, config).ready()
    await kernel.mount(loops_plugin).ready()


@asynccontextmanager
async def open_test_house(  # the parts of a house, each with its usual one  # noqa: PLR0913
    *,
    replies: Sequence[Reply] = (),
    model: ScriptedReplies | None = None,
    tools: Sequence[Tool] = (),
    store: SessionPersistence | None = None,
    plugins: Sequence[Plugin] = (),
    loop: AgentLoopConfig | None = None,
    prompt: SystemPromptConfig | None = None,
    watched: bool = True,
    runner: Plugin | None = None,
    held: Callable[[tuple[str, ...]], None] | None = None,
) -> AsyncGenerator[TestHouse, None]:
    """Run the rooms, the loop, `plugins` in that order, and a model under the route `test`.

    The prompt has no identity and no persona unless `prompt` says so. With a `store` sessions are
    kept there; give one store to two houses and the second one can resume. A broken law of the
    plugin `invariants` is raised where it happens, and again at the end, because listeners are
    contained; `watched=False` is for tests that break a law on purpose. `runner` stands in the row
    `agent-loop`, with the config `loop`. `held` is that of `open_kernel`.
    """
    adapter = ScriptedReplies(replies) if model is None else model
    book: Book | None = None
    async with open_kernel(clock=TickingClock(), held=held) as kernel:
        await _mount_rooms(kernel, store, prompt)
        if watched:
            await kernel.mount(invariants).ready()
            book = kernel.root.require(INVARIANTS)
        kernel.root.require(LLM).register(kernel.root, adapter, ("test",))
        fiber = kernel.mount(agent_loop if runner is None else runner, loop)
        await fiber.ready()
        for slot, extra in enumerate(plugins, start=1):
            await kernel.mount(extra, slot=slot).ready()
        for tool in tools:
            kernel.root.require(TOOLS).register(kernel.root, tool)
        yield TestHouse(
            kernel=kernel,
            ctx=kernel.root,
            model=adapter,
            store=store,
            loop=fiber,
            agents=kernel.root.require(AGENTS),
            sessions=kernel.root.require(SESSIONS),
            llm=kernel.root.require(LLM),
            tools=kernel.root.require(TOOLS),
            prompt=kernel.root.require(PROMPT),
        )
    if book is not None and book.breaches:
        raise book.breaches[0]
