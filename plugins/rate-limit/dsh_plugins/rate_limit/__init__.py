"""The plugin `rate-limit`: so many tool calls in a span of time, and no more.

What comes in: calls, and limits from the configuration. What goes out: the calls, or a refusal that
says when to try again. Only calls that run are counted, for each agent by itself; nothing waits.
"""

from __future__ import annotations

from collections import deque
from fnmatch import fnmatchcase
from math import ceil
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from attrs import field, mutable

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.hooks.live import ToolFailed
from dsh_plugins.rate_limit.catalog import RateLimit, RateLimitConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.hooks import Scope
    from dsh.hooks.live import ToolExecution, ToolResult

__all__ = ["rate_limit"]


@mutable(slots=True, eq=False)
class _Window:
    """When the calls of the last span began, in milliseconds of a monotonic clock."""

    limit: RateLimit
    began: deque[float] = field(factory=deque[float])

    def wait(self, now: float) -> float:
        """Milliseconds until one more may run; 0 if it may now."""
        while self.began and self.began[0] <= now - self.limit.per_ms:
            self.began.popleft()
        if len(self.began) < self.limit.calls:
            return 0.0
        return self.began[0] + self.limit.per_ms - now

    def refusal(self, wait: float) -> str:
        calls, span = self.limit.calls, self.limit.per_ms / 1000
        return (
            f"rate limit: at most {calls} calls of {self.limit.tool} in {span:g} s; "
            f"try again in {max(1, ceil(wait / 1000))} s"
        )


class _Windows:
    """The windows of every agent."""

    def __init__(self, limits: Sequence[RateLimit], now: Callable[[], float]) -> None:
        self._limits = tuple(limits)
        self._now = now
        # By scope: it lives and ends with its agent.
        self._by_scope: WeakKeyDictionary[Scope, tuple[_Window, ...]] = WeakKeyDictionary()

    def _of(self, call: ToolExecution) -> list[_Window]:
        if call.agent is None:
            return []
        scope = call.agent.scope
        made = self._by_scope.get(scope)
        if made is None:
            made = self._by_scope[scope] = tuple(_Window(one) for one in self._limits)
        return [one for one in made if fnmatchcase(call.name, one.limit.tool)]

    def refusal(self, call: ToolExecution) -> str | None:
        """Why the call may not run now."""
        now = self._now() * 1000
        for window in self._of(call):
            wait = window.wait(now)
            if wait > 0:
                return window.refusal(wait)
        return None

    def count(self, call: ToolExecution) -> None:
        """The call runs."""
        for window in self._of(call):
            window.began.append(self._now() * 1000)


@plugin(name="rate-limit", config=RateLimitConfig)
async def rate_limit(ctx: Context, config: RateLimitConfig) -> None:
    """Refuse before anybody is asked; and again when the body would begin."""
    windows = _Windows(config.limits, ctx.clock.monotonic)

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def before(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        reason = windows.refusal(event.exec)
        return ev.tools.Deny(reason=reason) if reason is not None else await call_next()

    @ctx.on(ev.tools.EXECUTE)
    async def running(event: ev.tools.Execute, call_next: Next[ToolResult]) -> ToolResult:
        # Parallel neighbours passed the first check before this one was counted.
        reason = windows.refusal(event.exec)
        if reason is not None:
            info = ev.records.ToolErrorInfo(name="RateLimited", code="RATE_LIMITED")
            return ToolFailed(message=reason, content=(), info=info)
        windows.count(event.exec)
        return await call_next()
