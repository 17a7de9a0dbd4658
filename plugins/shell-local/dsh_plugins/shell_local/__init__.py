"""The plugin `shell-local`: local processes behind the shell seam, a fresh shell for each command.

What comes in: command lines from whoever uses the seam. What goes out: their results. It registers
no tool, and nothing that it started outlives it.
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
from dsh_plugins.shell_local.local import LocalShell, Patience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.kernel import Late

__all__ = ["LocalShell", "Patience", "shell_local"]


@frozen
class _Deps:
    environ: Environ = required(ENVIRON)
    credentials: Late[Credentials] = late(CREDENTIALS)
    sandbox: Late[Sandbox] = late(SANDBOX)


@plugin(name="shell-local", deps=_Deps, provides=(SHELL,))
async def shell_local(ctx: Context, _config: None, deps: _Deps) -> None:
    """Provide the shell seam."""

    async def setup() -> Callable[[], Awaitable[None]]:
        return reaper.aclose

    def environment() -> dict[str, str]:
        return command_environment(deps.environ, deps.credentials.current)

    reaper = Reaper()
    await ctx.aeffect(setup, label="reaper")
    ctx.provide(SHELL, LocalShell(environment, reaper, confined=confining(deps.sandbox)))
