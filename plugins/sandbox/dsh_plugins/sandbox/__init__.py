"""The plugin `sandbox`: file tools and processes write inside the workspace and nowhere else.

What comes in: calls of tools that write, and processes that tools start. What goes out: a refusal
of every path outside, judged on the final arguments; and processes started through `bwrap`, where
the rest of the system is read-only. Where `bwrap` is missing or does not work, processes are not
confined, and that is said loudly, once; with `required` they do not run at all.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from dsh import Context, plugin
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.seams.environ import ENVIRON, Environ
from dsh.seams.sandbox import SANDBOX
from dsh.tools import TOOLS, ToolRuntime
from dsh_plugins.sandbox.bwrap import Bubblewrap, Unconfined, working
from dsh_plugins.sandbox.catalog import SandboxConfig

if TYPE_CHECKING:
    from dsh.hooks.live import ToolExecution

__all__ = ["sandbox"]


@frozen
class _Deps:
    tools: ToolRuntime = required(TOOLS)
    environ: Environ = required(ENVIRON)


@plugin(name="sandbox", config=SandboxConfig, deps=_Deps, provides=(SANDBOX,))
async def sandbox(ctx: Context, config: SandboxConfig, deps: _Deps) -> None:
    """A guard on paths, and a way to start processes."""
    writers = frozenset(config.writers)

    def inside(call: ToolExecution) -> str | None:
        if call.name not in writers:
            return None
        tool = deps.tools.get(call.name, call.agent.scope if call.agent is not None else None)
        if tool is None or tool.subject is None:
            return f"sandbox: where {call.name} would write cannot be made out"
        subject = tool.subject(call.arguments, call.cwd)  # if it raises, the call is refused
        if subject.kind == "path" and not subject.outside:
            return None
        return f"sandbox: {subject.absolute or subject.text} is outside of the workspace {call.cwd}"

    deps.tools.guard(ctx, inside)
    program = shutil.which("bwrap", path=deps.environ.get("PATH"))
    why = "bwrap was not found"
    if program is not None:
        found = await working(Bubblewrap(program=program, network=config.network))
        if not isinstance(found, str):
            ctx.provide(SANDBOX, found)
            return
        why = f"bwrap does not work here ({found})"
    ctx.provide(SANDBOX, Unconfined(why, config.required))
    fate = "they are refused" if config.required else "they can write everywhere you can"
    ctx.log.warning(
        "NOT ENFORCED for processes: %s, so commands are not confined and %s; "
        "install bubblewrap. File tools are kept inside the workspace",
        why,
        fate,
    )
