"""The row `agent-loop`: the loop as a plugin, replaceable like any other.

What comes in: its config and the rooms below. What goes out: a factory that serves the agents
service, the prompt's variables and tools, and the declared agents. Unloading ends every agent
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import evolve, frozen

from dsh.agent import AGENTS, IDENTITIES, Agents
from dsh.catalog.config import AgentLoopConfig
from dsh.kernel import Context, Late, core_of, late, plugin, required
from dsh.llm import LLM, LlmRuntime
from dsh.loop.declared import Starter, declared_agents
from dsh.loop.factory import LoopFactory, Rooms
from dsh.loop.kit import Services
from dsh.prompt import PROMPT, SystemPrompt
from dsh.seams.persistence import PERSISTENCE, SessionPersistence
from dsh.session import SESSIONS, Sessions
from dsh.tools import TOOLS, ToolRuntime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks import live

__all__ = ["agent_loop"]


@frozen
class LoopDeps:
    """What the loop stands on; a store may come and go."""

    agents: Agents = required(AGENTS)
    sessions: Sessions = required(SESSIONS)
    llm: LlmRuntime = required(LLM)
    tools: ToolRuntime = required(TOOLS)
    prompt: SystemPrompt = required(PROMPT)
    persistence: Late[SessionPersistence] = late(PERSISTENCE)
    identities: Late[Mapping[str, str]] = late(IDENTITIES)


class _Settings:
    """The config as of now; the live fields change without a restart."""

    def __init__(self, config: AgentLoopConfig) -> None:
        self._config = config

    def limit(self) -> int:
        """How many tool bodies may overlap in the next group."""
        return self._config.max_parallel_tool_calls

    async def accept(
        self, new: AgentLoopConfig, _old: AgentLoopConfig
    ) -> Literal["applied", "restart"]:
        """Take over what is live; anything else needs a restart."""
        live_part = evolve(self._config, max_parallel_tool_calls=new.max_parallel_tool_calls)
        if live_part != new:
            return "restart"
        self._config = new
        return "applied"


@plugin(name="agent-loop", config=AgentLoopConfig, deps=LoopDeps)
async def agent_loop(ctx: Context, config: AgentLoopConfig, deps: LoopDeps) -> None:
    """Serve agents until unloaded; then end them all, each closing its turn and its log."""
    core = core_of(ctx)
    declared = declared_agents(config.agents, deps.identities.current)
    settings = _Settings(config)
    ctx.on_config(settings.accept)
    home = await core.child("agents")
    factory = LoopFactory(
        Rooms(
            ctx=core,
            home=home,
            sessions=deps.sessions,
            persistence=deps.persistence,
            services=Services(
                agents=deps.agents,
                llm=deps.llm,
                prompt=deps.prompt,
                tools=deps.tools,
                limit=settings.limit,
            ),
        )
    )
    ctx.spawn(factory.hold, label="agents' tasks")
    await factory.ready()
    # Not bounded: a turn waits for what it started, and so does the end of its agent.
    ctx.begin("agents", bounded=False).ready(undo=factory.aclose)
    core.on_shutdown(factory.aclose)
    _contribute(ctx, deps)
    deps.agents.serve(ctx, factory)
    if declared:
        starter = Starter(core, factory, deps.persistence)
        ctx.spawn(starter.start, declared, label="declared agents")


def _contribute(ctx: Context, deps: LoopDeps) -> None:
    """The loop's own part of the prompt: three variables, and the tools."""
    deps.prompt.variable(ctx, "provider", _provider)
    deps.prompt.variable(ctx, "model", _model)
    deps.prompt.variable(ctx, "cwd", _cwd)
    deps.prompt.tools(
        ctx, lambda context: deps.tools.schemas(context.scope), registered=deps.tools.names
    )


def _provider(context: live.AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.options.provider


def _model(context: live.AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.options.model


def _cwd(context: live.AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.session.header.cwd
