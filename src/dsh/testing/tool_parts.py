"""Small tools, policies and blocks for tests of tools: one line each where it is used.

What comes in: functions and decisions. What goes out: a tool `echo` around a function, listeners
that always answer the same, messages and blocks. Nothing here asserts anything.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import attrs
import trio

from dsh import catalog as ev
from dsh.llm import ScriptedCall
from dsh.testing.tool_room import Committed
from dsh.tools import Finished, Tool, define_tool, param

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dsh.hooks import Next
    from dsh.hooks.live import ToolExecution, ToolResult, ToolRun
    from dsh.kernel import Context

__all__ = [
    "EchoArgs",
    "NoArgs",
    "OverlapWatch",
    "TimedArgs",
    "acting_tool",
    "always_pre",
    "always_review",
    "call_block",
    "context_of",
    "echo",
    "echo_tool",
    "simple_tool",
    "text_blocks",
    "timed_call",
    "told",
    "wrap_execute",
]


@attrs.frozen
class EchoArgs:
    """The arguments of `echo`."""

    text: str = attrs.field(default="x", metadata=param("a text"))


async def echo(args: EchoArgs, _run: ToolRun) -> str:
    """Return the text."""
    return args.text


def echo_tool(
    body: Callable[[EchoArgs, ToolRun], Awaitable[str]] = echo,
    *,
    name: str = "echo",
    finalize: Callable[[ToolExecution, ToolResult], Sequence[ev.records.ContentBlock] | None]
    | None = None,
) -> Tool:
    """A tool of one text, exclusive, that runs `body`."""
    return define_tool(
        name=name,
        description="d",
        args=EchoArgs,
        output=str,
        execute=body,
        finalize_content=finalize,
    )


@attrs.frozen
class NoArgs:
    """No arguments."""


def simple_tool(name: str, body: Callable[[ToolRun], Awaitable[str]]) -> Tool:
    """A tool without arguments, exclusive, that runs `body`."""

    async def execute(_args: NoArgs, run: ToolRun) -> str:
        return await body(run)

    return define_tool(name=name, description=name, args=NoArgs, output=str, execute=execute)


def acting_tool(name: str, act: Callable[[ToolRun], None]) -> Tool:
    """A tool without arguments, exclusive, that does `act` at once and returns "done"."""

    async def body(run: ToolRun) -> str:
        act(run)
        await trio.lowlevel.checkpoint()
        return "done"

    return simple_tool(name, body)


@attrs.frozen
class TimedArgs:
    """How long a body of OverlapWatch runs, and what it is called."""

    seconds: float
    label: str = ""


class OverlapWatch:
    """Which bodies ran when: `log` has `+label` and `-label`, `most` how many ran at a time."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.log: list[str] = []

    def tool(self, name: str, mode: Literal["parallel", "exclusive"]) -> Tool:
        """A tool that sleeps as long as its arguments say, and returns its label."""

        async def execute(args: TimedArgs, _run: ToolRun) -> str:
            self.running += 1
            self.most = max(self.most, self.running)
            self.log.append(f"+{args.label}")
            try:
                await trio.sleep(args.seconds)
            finally:
                self.running -= 1
                self.log.append(f"-{args.label}")
            return args.label

        return define_tool(
            name=name,
            description=name,
            args=TimedArgs,
            output=str,
            execute=execute,
            execution_mode=mode,
        )


def timed_call(name: str, seconds: float, label: str) -> ScriptedCall:
    """A scripted call of a tool of OverlapWatch; the label is its id, too."""
    arguments = json.dumps({"seconds": seconds, "label": label})
    return ScriptedCall(name=name, arguments=arguments, id=label)


def told(finished: Finished) -> Committed:
    """What a model would read of a finished call, with code and decider."""
    return Committed("c1", 0, finished.result, finished.decided_by)


def context_of(text: str) -> ev.records.UserMessage:
    """A message to defer; its text is its id."""
    return ev.records.UserMessage(
        id=text,
        content=(ev.records.TextBlock(text=text),),
        source=ev.records.PluginSource(plugin="p"),
    )


def text_blocks(text: str) -> tuple[ev.records.ContentBlock, ...]:
    """Content of one text block."""
    return (ev.records.TextBlock(text=text),)


def call_block(call_id: str, name: str, **arguments: object) -> ev.records.ToolCallBlock:
    """A model's call, with its arguments as JSON text."""
    return ev.records.ToolCallBlock(id=call_id, name=name, arguments=json.dumps(arguments))


def always_pre(
    ctx: Context, decision: ev.tools.PreExecuteDecision, *, prepend: bool = False
) -> None:
    """Let the plugin of `ctx` answer every `tools/pre-execute` alike."""

    @ctx.on(ev.tools.PRE_EXECUTE, prepend=prepend)
    async def pre(
        _event: ev.tools.PreExecute, _call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        return decision


def wrap_execute(ctx: Context, make: Callable[[Next[ToolResult]], Awaitable[ToolResult]]) -> None:
    """Put `make` around the body of every call."""

    @ctx.on(ev.tools.EXECUTE)
    async def around(_event: ev.tools.Execute, call_next: Next[ToolResult]) -> ToolResult:
        return await make(call_next)


def always_review(ctx: Context, decision: ev.tools.PostExecuteDecision) -> None:
    """Let the plugin of `ctx` answer every `tools/post-execute` alike."""

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        _event: ev.tools.PostExecute, _call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        return decision
