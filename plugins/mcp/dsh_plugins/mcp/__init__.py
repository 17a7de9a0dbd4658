"""The plugin `mcp`: tools of MCP servers, over standard streams or HTTP.

What comes in: servers from the configuration, their lists of tools, a model's calls. What goes out:
a raw tool for each of theirs, and results as text. A server that does not start, ends or
misbehaves is told of in the log and keeps nobody else from working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# The extra's library: where it is missing, the message names this plugin's extra.
import jsonschema_rs as _jsonschema_rs
import trio

from dsh import Context, plugin
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ
from dsh.seams.processes import Reaper
from dsh.tools import TOOLS, ToolRuntime
from dsh_plugins.mcp.catalog import McpConfig
from dsh_plugins.mcp.content import DataFolder
from dsh_plugins.mcp.server import Server
from dsh_plugins.mcp.settings import target_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["mcp"]

del _jsonschema_rs


@frozen
class _Deps:
    tools: ToolRuntime = required(TOOLS)
    environ: Environ = required(ENVIRON)
    credentials: Credentials = required(CREDENTIALS)


@plugin(name="mcp", config=McpConfig, deps=_Deps)
async def mcp(ctx: Context, config: McpConfig, deps: _Deps) -> None:
    """Start every server, and wait a while for those that are quick."""
    folder = DataFolder(config.root)
    reaper = Reaper()

    async def watching() -> Callable[[], Awaitable[None]]:
        return reaper.aclose

    targets = {
        name: target_of(name, given, deps.environ, deps.credentials)
        for name, given in config.servers.items()
        if not given.disabled
    }
    servers = [
        Server(
            ctx,
            name,
            config.servers[name],
            target,
            tools=deps.tools,
            environ=deps.environ,
            folder=folder,
            reaper=reaper,
        )
        for name, target in targets.items()
    ]
    if not servers:
        return
    # First in, last out: the servers have ended by then.
    await ctx.aeffect(watching, label="the reaper of MCP servers")
    ctx.spawn(_all, servers, label="MCP servers")
    with trio.move_on_after(config.wait_ms / 1000):
        for server in servers:
            await server.settled.wait()
    late = [server.name for server in servers if not server.settled.is_set()]
    if late:
        ctx.log.warning(
            "MCP servers still starting after %g s: %s; their tools come when they are ready",
            config.wait_ms / 1000,
            ", ".join(late),
        )


async def _all(servers: Sequence[Server]) -> None:
    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(server.run)
