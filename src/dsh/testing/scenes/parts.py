"""What scenes are made of: tools that wait, plugins we ship, listeners that act once.

What comes in: what a tool is to do while its scene plays. What goes out: tools and plugins that do
nothing of the kind afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import trio
from attrs import frozen

from dsh.kernel import Context, Plugin, plugin
from dsh.tools import Tool, define_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.hooks import live
    from dsh.testing.cancelling import Stage

    Body: TypeAlias = Callable[[live.ToolRun], Awaitable[None]]

__all__ = ["Text", "listening", "sleeper"]


@frozen
class Text:
    """The arguments of every tool in the scenes."""

    text: str = ""


async def _nap(_run: live.ToolRun) -> None:
    await trio.sleep(0.01)


def sleeper(
    stage: Stage,
    name: str,
    mode: Literal["parallel", "exclusive"] = "exclusive",
    body: Body = _nap,
    *,
    timeout: float | None = None,
) -> Tool:
    """A tool that answers in capitals, after `body` while the scene plays."""

    async def execute(args: Text, run: live.ToolRun) -> str:
        if stage.playing:
            await body(run)
        return args.text.upper()

    return define_tool(
        name=name,
        description="Say it loudly.",
        args=Text,
        output=str,
        execute=execute,
        execution_mode=mode,
        timeout=timeout,
    )


def listening(register: Callable[[Context], None]) -> Plugin:
    """A plugin that only registers listeners."""

    @plugin(name="scene")
    async def scene(ctx: Context) -> None:
        register(ctx)

    return scene
