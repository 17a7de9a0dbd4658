"""Bodies that start, wait at gates, and end as they are told: for tests of schedules.

What comes in: a tool room. What goes out: the tools `par`, `exc` and `asks`, and a record of which
bodies started, ended and overlapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs
import trio

from dsh.testing.tool_parts import context_of
from dsh.tools import Tool, define_tool, param

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks.live import ToolRun
    from dsh.testing.tool_room import ToolRoom

__all__ = ["BatchBench", "BenchArgs"]

Mode: TypeAlias = Literal["exclusive", "parallel"]


@attrs.frozen
class BenchArgs:
    """What a body does: which gate it waits for, how it ends."""

    gate: str = attrs.field(default="", metadata=param("an event to wait for"))
    end: str = attrs.field(default="ok", metadata=param("how it ends"))
    mode: Mode = "parallel"


@attrs.define
class BatchBench:
    """Bodies that start, wait at gates, and end as they are told."""

    room: ToolRoom
    started: list[str] = attrs.field(factory=list)
    ended: list[str] = attrs.field(factory=list)
    gates: dict[str, trio.Event] = attrs.field(factory=dict)
    now: int = 0
    peak: int = 0

    def gate(self, name: str) -> trio.Event:
        """The event that opens a gate; made at its first mention."""
        return self.gates.setdefault(name, trio.Event())

    async def body(self, args: BenchArgs, run: ToolRun) -> str:
        """Start, wait at the gate, end as told."""
        self.started.append(run.call_id)
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            if args.gate:
                await self.gate(args.gate).wait()
            if args.end == "raise":
                raise ValueError(f"{run.call_id} failed")
            if args.end == "conclude":
                run.conclude_turn()
            if args.end == "context":
                run.defer_context(context_of(f"of {run.call_id}"))
            return run.call_id
        finally:
            self.now -= 1
            self.ended.append(run.call_id)

    async def register(self) -> None:
        """Make the three tools visible to everyone."""
        ctx = await self.room.plugin("tools-of-the-test")
        self.room.tools.register(ctx, self.tool("par", "parallel"))
        self.room.tools.register(ctx, self.tool("exc", "exclusive"))
        self.room.tools.register(ctx, self.tool("asks", lambda args: args.mode))

    def tool(self, name: str, mode: Mode | Callable[[BenchArgs], Mode]) -> Tool:
        """A tool around `body` with a mode of its own."""
        return define_tool(
            name=name,
            description="",
            args=BenchArgs,
            output=str,
            execute=self.body,
            execution_mode=mode,
        )

    @property
    def ids(self) -> list[str]:
        """The calls with a result, in the order of the results."""
        return [committed.call_id for committed in self.room.host.results]

    @property
    def codes(self) -> list[str | None]:
        """The error codes of the results, in their order."""
        return [committed.code for committed in self.room.host.results]
