"""The plugin `tool-timeout`: a tool that declares a deadline is ended when it has passed.

What comes in: calls of tools that were defined with `timeout=`. What goes out: their results, or a
failure with the code TOOL_TIMEOUT if the timer fired, whatever the body made of its cancellation.
There is no blanket deadline; and a person's time to approve a call is not part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.hooks import frozen
from dsh.hooks.live import ToolFailed
from dsh.kernel import required
from dsh.tools import TOOLS, ToolRuntime

if TYPE_CHECKING:
    from dsh.hooks.live import ToolExecution, ToolResult

__all__ = ["TOOL_TIMEOUT", "tool_timeout"]

TOOL_TIMEOUT: Final = "TOOL_TIMEOUT"


def _timed_out(seconds: float) -> ToolFailed:
    message = (
        f"the tool call timed out after {round(seconds * 1000)} ms; what it had already done "
        "stays done"
    )
    return ToolFailed(
        message=message,
        content=(ev.records.TextBlock(text=f"Error: {message}"),),
        info=ev.records.ToolErrorInfo(name="ToolTimeout", code=TOOL_TIMEOUT),
    )


@frozen
class _Deps:
    tools: ToolRuntime = required(TOOLS)


@plugin(name="tool-timeout", deps=_Deps)
async def tool_timeout(ctx: Context, _config: None, deps: _Deps) -> None:
    """Wrap the bodies of tools that have a deadline."""

    def deadline_of(call: ToolExecution) -> float | None:
        scope = call.agent.scope if call.agent is not None else None
        tool = deps.tools.get(call.name, scope)
        return tool.timeout if tool is not None else None

    @ctx.on(ev.tools.EXECUTE)
    async def limited(event: ev.tools.Execute, call_next: Next[ToolResult]) -> ToolResult:
        seconds = deadline_of(event.exec)
        if seconds is None:
            return await call_next()
        with trio.CancelScope(deadline=trio.current_time() + seconds) as timer:
            result = await call_next()
            if not timer.cancel_called:
                return result
        # The timer fired: also when the body turned its cancellation into something else. But if
        # the turn is being cancelled, that is why the call ends, and this raises.
        await trio.lowlevel.checkpoint_if_cancelled()
        return _timed_out(seconds)
