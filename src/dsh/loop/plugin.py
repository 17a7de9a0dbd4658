"""The rows `loops` and `agent-loop`: the machinery of every loop, and our own loop on it.

What comes in: the rooms below, a config and a program for one turn. What goes out: a factory that
serves the agents service, the prompt's variables and tools, and the declared agents. `agent-loop`
is a plugin like any other that asks the machinery to serve its program, and may be replaced by one.
Unloading it ends every agent first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from attrs import evolve
from typing_extensions import override

from dsh.agent import AGENTS, IDENTITIES, LOOPS, Agents, Loops, TurnProgram
from dsh.catalog.config import AgentLoopConfig
from dsh.hooks import frozen
from dsh.kernel import Context, Late, core_of, late, plugin, required
from dsh.llm import LLM, LlmRuntime
from dsh.loop.declared import Starter, declared_agents
from dsh.loop.factory import LoopFactory, Rooms
from dsh.loop.kit import Services
from dsh.loop.turn import until_nothing_is_owed
from dsh.prompt import PROMPT, SystemPrompt
from dsh.seams.persistence import PERSISTENCE, SessionPersistence
from dsh.session import SESSIONS, Sessions
from dsh.tools import TOOLS, ToolRuntime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks import live

__all__ = ["agent_loop", "loops_plugin"]


@frozen
class Parts:
    """What every loop stands on; a store may come and go."""

    agents: Agents = required(AGENTS)
    sessions: Sessions = required(SESSIONS)
    llm: LlmRuntime = required(LLM)
    tools: ToolRuntime = required(TOOLS)
    prompt: SystemPrompt = required(PROMPT)
    persistence: Late[SessionPersistence] = late(PERSISTENCE)
    identities: Late[Mapping[str, str]] = late(IDENTITIES)


@frozen
class LoopDeps:
    """What a loop's plugin needs: the machinery, and a program."""

    loops: Loops = required(LOOPS)


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


class Machinery(Loops):
    """Drivers and a factory for whatever program comes."""

    def __init__(self, parts: Parts) -> None:
        self._parts: Final = parts

    @override
    async def serve(self, ctx: Context, config: AgentLoopConfig, program: TurnProgram) -> None:
        parts, core = self._parts, core_of(ctx)
        declared = declared_agents(config.agents, parts.identities.current)
        settings = _Settings(config)
        ctx.on_config(settings.accept)
        home = await core.child("agents")
        factory = LoopFactory(
            Rooms(
                ctx=core,
                home=home,
                sessions=parts.sessions,
                persistence=parts.persistence,
                services=Services(
                    agents=parts.agents,
                    llm=parts.llm,
                    prompt=parts.prompt,
                    tools=parts.tools,
                    limit=settings.limit,
                    program=program,
                ),
            )
        )
        ctx.spawn(factory.hold, label="agents' tasks")
        await factory.ready()
        parts.agents.serve(ctx, factory)  # first, so that a second loop is told what it is
        _contribute(ctx, parts)
        # After these, so that agents end before their prompt loses a part. Not bounded: a turn
        # waits for what it started, and so does the end of its agent.
        ctx.begin("agents", bounded=False).ready(undo=factory.aclose)
        core.on_shutdown(factory.shut_down)
        if declared:
            starter = Starter(core, factory, parts.persistence)
            ctx.spawn(starter.start, declared, label="declared agents")


@plugin(name="loops", deps=Parts, provides=(LOOPS,))
async def loops_plugin(ctx: Context, _config: None, parts: Parts) -> None:
    """Provide the machinery that makes a loop of a program."""
    ctx.provide(LOOPS, Machinery(parts))


@plugin(name="agent-loop", config=AgentLoopConfig, deps=LoopDeps)
async def agent_loop(ctx: Context, config: AgentLoopConfig, deps: LoopDeps) -> None:
    """Serve agents until unloaded; then end them all, each closing its turn and its log."""
    await deps.loops.serve(ctx, config, until_nothing_is_owed)


def _contribute(ctx: Context, parts: Parts) -> None:
    """The loop's own part of the prompt: three variables, and the tools."""
    parts.prompt.variable(ctx, "provider", _provider)
    parts.prompt.variable(ctx, "model", _model)
    parts.prompt.variable(ctx, "cwd", _cwd)
    parts.prompt.tools(
        ctx, lambda context: parts.tools.schemas(context.scope), registered=parts.tools.names
    )


def _provider(context: live.AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.options.provider


def _model(context: live.AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.options.model


def _cwd(context: live.AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.session.header.cwd
