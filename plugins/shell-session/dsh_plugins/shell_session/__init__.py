"""The plugin `shell-session`: the shell seam with a bash that lives as long as its session.

What comes in: command lines, and whose they are. What goes out: their results, with directory and
variables kept for the next one. It registers no tool: who runs commands through the seam gets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import Context, plugin
from dsh.hooks import frozen
from dsh.kernel import late, required
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ
from dsh.seams.processes import Reaper
from dsh.seams.sandbox import SANDBOX, Sandbox, confining
from dsh.seams.shell import SHELL, command_environment
from dsh_plugins.shell_session.keeping import SessionShells

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.hooks import live
    from dsh.kernel import Late

__all__ = ["shell_session"]


@frozen
class _Deps:
    environ: Environ = required(ENVIRON)
    credentials: Late[Credentials] = late(CREDENTIALS)
    sandbox: Late[Sandbox] = late(SANDBOX)


@plugin(name="shell-session", deps=_Deps, provides=(SHELL,))
async def shell_session(ctx: Context, _config: None, deps: _Deps) -> None:
    """Provide the shell seam; end a bash with its agent, and every bash at unload."""

    def environment() -> dict[str, str]:
        return command_environment(deps.environ, deps.credentials.current)

    async def setup() -> Callable[[], Awaitable[None]]:
        return shells.aclose

    async def gone(agent: live.Agent) -> None:
        await shells.forget(agent.id)

    shells = SessionShells(environment, confining(deps.sandbox), Reaper())
    await ctx.aeffect(setup, label="shells of sessions")
    ctx.on_drain(gone)
    ctx.provide(SHELL, shells)
