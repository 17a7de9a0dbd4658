"""The row `agents`: provides the agents service and the inbox's projection.

What comes in: the session room. What goes out: `AGENTS`. At unload it waits until no agent's work
runs any more; the loop, which depends on it, has ended its agents by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.agent.inbox import INBOX
from dsh.agent.registry import AGENTS, Agents
from dsh.hooks import frozen
from dsh.kernel import Context, ServiceKey, core_of, plugin, required
from dsh.session import SESSIONS, Sessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["IDENTITIES", "agents_plugin"]

#: Session ids that a launcher gives to declared agents, by label. Optional.
IDENTITIES: Final[ServiceKey[Mapping[str, str]]] = ServiceKey("agent-identities")


@frozen
class AgentsDeps:
    """What the service stands on."""

    sessions: Sessions = required(SESSIONS)


@plugin(name="agents", deps=AgentsDeps, provides=(AGENTS,))
async def agents_plugin(ctx: Context, _config: None, deps: AgentsDeps) -> None:
    """Provide `AGENTS`."""
    agents = Agents(core_of(ctx), deps.sessions)

    async def initiators() -> Callable[[], Awaitable[None]]:
        return agents.initiators.aclose

    await ctx.aeffect(initiators, label="initiators")
    deps.sessions.project(ctx, INBOX)
    ctx.provide(AGENTS, agents)
