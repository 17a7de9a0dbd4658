"""The plugin `shell-guard`: commands stop at their first failure; none removes the whole system.

What comes in: calls of the shell tools. What goes out: the same with one line in front, as a
rewrite that is logged and that every other policy sees; and, as a guard on the final command, a
refusal of a recursive `rm` of the root, the home directory or a folder above the workspace. It is
a belt, not a wall: a command can be disguised from it. The sandbox is for what must not happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.tools import TOOLS, ToolRuntime
from dsh_plugins.shell_guard.catalog import ShellGuardConfig
from dsh_plugins.shell_guard.removing import removes_everything

if TYPE_CHECKING:
    from dsh.hooks import JsonValue
    from dsh.hooks.live import ToolExecution

__all__ = ["shell_guard"]

REFUSAL: Final = (
    "denied: this would remove {}; name the files or folders inside the workspace that are meant"
)


def _command(arguments: JsonValue) -> str | None:
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if isinstance(command, str) else None


@frozen
class _Deps:
    tools: ToolRuntime = required(TOOLS)


@plugin(name="shell-guard", config=ShellGuardConfig, deps=_Deps)
async def shell_guard(ctx: Context, config: ShellGuardConfig, deps: _Deps) -> None:
    """A rewrite before the policies outside of it, and a guard after all of them."""
    names = frozenset(config.tools)

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def begin_strictly(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        decision = await call_next()
        if event.exec.name not in names or isinstance(decision, ev.tools.Deny):
            return decision
        # What an inner policy put in place is what would run.
        arguments = decision.arguments
        if arguments is None:
            given = event.exec.arguments
            arguments = given if isinstance(given, dict) else {}
        command = _command(arguments)
        if command is None or command.startswith(config.prefix):
            return decision
        changed = {**arguments, "command": f"{config.prefix}\n{command}"}
        return attrs.evolve(decision, arguments=changed)

    def guard(call: ToolExecution) -> str | None:
        command = _command(call.arguments) if call.name in names else None
        target = removes_everything(command) if command is not None else None
        return REFUSAL.format(target) if target is not None else None

    deps.tools.guard(ctx, guard)
