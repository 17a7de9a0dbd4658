"""The plugin `tool-metrics`: how often tools were called in a turn, and how long they took.

What comes in: bodies as they run, results as they are made, the ends of turns. What goes out: one
`tool-metrics/turn` event for each turn that called tools. It changes no call and no result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from attrs import field, mutable

from dsh import Context, Logged, Next, plugin
from dsh import catalog as ev
from dsh.hooks.live import ToolFailed
from dsh_plugins.tool_metrics.catalog import ToolUse
from dsh_plugins.tool_metrics.catalog import tool_metrics as events

if TYPE_CHECKING:
    from dsh.hooks.live import Agent, Session, ToolResult

__all__ = ["tool_metrics"]


@mutable(slots=True)
class _Use:
    """What is known of one tool in the running turn. Times in seconds."""

    calls: int = 0
    ran: int = 0
    failed: int = 0
    total: float = 0.0
    longest: float = 0.0
    size: int = 0

    def row(self, name: str) -> ToolUse:
        return ToolUse(
            name=name,
            calls=self.calls,
            ran=self.ran,
            failed=self.failed,
            total_ms=round(self.total * 1000),
            longest_ms=round(self.longest * 1000),
            result_bytes=self.size,
        )


@mutable(slots=True, eq=False)
class _Tally:
    """One session: the uses of its turn that runs, and rows that wait to be logged."""

    uses: dict[str, _Use] = field(factory=dict)
    waiting: list[events.Turn] = field(factory=list)

    def use(self, name: str) -> _Use:
        return self.uses.setdefault(name, _Use())

    def close(self, turn: int) -> None:
        if self.uses:
            rows = tuple(use.row(name) for name, use in sorted(self.uses.items()))
            self.waiting.append(events.Turn(turn=turn, tools=rows))
            self.uses = {}


class _Tallies:
    """All sessions."""

    def __init__(self) -> None:
        self._by_session: WeakKeyDictionary[Session, _Tally] = WeakKeyDictionary()

    def of(self, session: Session) -> _Tally:
        tally = self._by_session.get(session)
        if tally is None:
            tally = self._by_session[session] = _Tally()
        return tally

    def log(self, session: Session) -> None:
        """Append what waits. Each row is appended once, whoever comes first."""
        tally = self.of(session)
        waiting, tally.waiting = tally.waiting, []
        for row in waiting:
            session.append(row)


@plugin(name="tool-metrics")
async def tool_metrics(ctx: Context) -> None:
    """Measure around bodies, count at results, log after turns."""
    tallies = _Tallies()

    @ctx.on(ev.tools.EXECUTE)
    async def timed(event: ev.tools.Execute, call_next: Next[ToolResult]) -> ToolResult:
        agent = event.exec.agent
        if agent is None:
            return await call_next()
        began = ctx.clock.monotonic()
        try:
            return await call_next()
        finally:
            took = ctx.clock.monotonic() - began
            use = tallies.of(agent.session).use(event.exec.name)
            use.ran += 1
            use.total += took
            use.longest = max(use.longest, took)

    @ctx.on(ev.tools.RESULT)
    def counted(event: ev.tools.Result) -> None:
        if event.exec.agent is None:
            return
        use = tallies.of(event.exec.agent.session).use(event.exec.name)
        use.calls += 1
        use.failed += isinstance(event.result, ToolFailed)
        use.size += sum(
            len(block.text.encode())
            for block in event.result.content
            if isinstance(block, ev.records.TextBlock)
        )

    @ctx.on(ev.turn.END)
    def closed(event: Logged[ev.turn.End]) -> None:
        tallies.of(event.session).close(event.data.turn)

    # A listener of the log may not append to it; this one runs when the publication is over.
    @ctx.observe(ev.turn.END)
    async def logged(event: Logged[ev.turn.End]) -> None:
        if not event.session.closed:
            tallies.log(event.session)

    @ctx.on_drain
    async def last(agent: Agent) -> None:
        tallies.log(agent.session)

    del last
