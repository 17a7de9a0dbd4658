"""The plugin `shell-session`: the shell seam with a bash that lives as long as its session.

What comes in: command lines, and whose they are. What goes out: their results, with directory and
variables kept for the next one. It registers no tool: who runs commands through the seam gets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from dsh import Context, plugin
from dsh.kernel import late, required
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ
from dsh.seams.sandbox import SANDBOX, Sandbox
from dsh.seams.shell import SHELL
from dsh_plugins.shell_session.keeping import SessionShells

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dsh.kernel import Late

__all__ = ["shell_session"]

#: Programs that would wait for a person, or draw on a terminal, do neither here.
PLAIN: Final = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


@attrs.frozen
class _Deps:
    environ: Environ = required(ENVIRON)
    credentials: Credentials = required(CREDENTIALS)
    sandbox: Late[Sandbox] = late(SANDBOX)


@plugin(name="shell-session", deps=_Deps, provides=(SHELL,))
async def shell_session(ctx: Context, _config: None, deps: _Deps) -> None:
    """Provide the shell seam; end every bash at unload."""

    def environment() -> dict[str, str]:
        secret = deps.credentials.secret_names()
        all_of = deps.environ.variables()
        return {name: value for name, value in all_of.items() if name not in secret} | PLAIN

    def confined(argv: Sequence[str], cwd: str) -> Sequence[str]:
        found = deps.sandbox.current
        return argv if found is None else found.confined(argv, cwd)

    shells = SessionShells(environment, confined)

    async def setup() -> Callable[[], Awaitable[None]]:
        return shells.aclose

    await ctx.aeffect(setup, label="shells of sessions")
    ctx.provide(SHELL, shells)
