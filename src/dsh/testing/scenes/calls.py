"""Scenes about tool calls.

What comes in: nothing. What goes out: scenes with parallel and exclusive tools, policies, people
who approve, wrappers, deadlines, sub-agents, and plugins that leave in the middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.llm import map_chunks
from dsh.testing.cancelling import Scene
from dsh.testing.house import OPTIONS
from dsh.testing.model import call, calls, says
from dsh.testing.scenes.parts import listening, sleeper
from dsh.testing.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.hooks import Next, live
    from dsh.kernel import Context, Plugin
    from dsh.llm import ScriptEntry
    from dsh.testing.cancelling import Stage
    from dsh.tools import Tool

__all__ = ["CALLS"]


def both_kinds(stage: Stage) -> Sequence[Tool]:
    """`quick` overlaps and leaves a context, `alone` does not overlap and reports."""

    async def leaving(run: live.ToolRun) -> None:
        await trio.sleep(0.01)
        run.defer_context(user_message(f"context of {run.call_id}"))
        await trio.sleep(0.01)

    async def reporting(run: live.ToolRun) -> None:
        run.progress("half")
        await trio.sleep(0.01)

    return (
        sleeper(stage, "quick", "parallel", leaving),
        sleeper(stage, "alone", "exclusive", reporting),
    )


def stubborn(stage: Stage) -> Sequence[Tool]:
    """Bodies that shield themselves, fail, conclude the turn, or never end in time."""

    async def shielded(_run: live.ToolRun) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)

    async def failing(_run: live.ToolRun) -> None:
        await trio.sleep(0.01)
        raise ValueError("no such thing")

    async def concluding(run: live.ToolRun) -> None:
        await trio.sleep(0.01)
        run.conclude_turn()
        run.defer_context(user_message("one thing more"))

    async def endless(_run: live.ToolRun) -> None:
        await trio.sleep_forever()

    return (
        sleeper(stage, "shielded", "parallel", shielded),
        sleeper(stage, "failing", "parallel", failing),
        sleeper(stage, "concluding", "exclusive", concluding),
        sleeper(stage, "endless", "parallel", endless, timeout=5),
    )


def policies(stage: Stage) -> Sequence[Plugin]:
    """Calls are denied, rewritten, asked about, answered, reviewed and blocked by their text."""

    def register(ctx: Context) -> None:
        @ctx.on(ev.tools.PRE_EXECUTE)
        async def judge(
            payload: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
        ) -> ev.tools.PreExecuteDecision:
            await trio.sleep(0.01)
            match payload.exec.call_id if stage.playing else "":
                case "deny":
                    return ev.tools.Deny(reason="not this one")
                case "rewrite":
                    return ev.tools.Allow(arguments={"text": "another"})
                case "ask" | "refuse":
                    return ev.tools.Ask(reason="somebody should look")
                case _:
                    return await call_next()

        @ctx.on(ev.approval.REQUEST)
        async def answer(
            question: ev.approval.Request, call_next: Next[records.ApprovalOutcome]
        ) -> records.ApprovalOutcome:
            await trio.sleep(4)
            return "allowed-once" if question.call_id == "ask" else "rejected"

        @ctx.on(ev.tools.EXECUTE)
        async def wrap(
            payload: ev.tools.Execute, call_next: Next[live.ToolResult]
        ) -> live.ToolResult:
            await trio.sleep(0.01)
            return await call_next()

        @ctx.on(ev.tools.POST_EXECUTE)
        async def review(
            payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
        ) -> ev.tools.PostExecuteDecision:
            await trio.sleep(0.01)
            if stage.playing and payload.exec.call_id == "block":
                return ev.tools.Block(feedback=(records.TextBlock(text="too loud"),))
            return ev.tools.Accept(additional_contexts=(user_message("seen"),))

    return (shipped("approval"), listening(register))


def middleware(stage: Stage) -> Sequence[Plugin]:
    """What the model says is louder."""

    def louder(chunk: records.StreamChunk) -> records.StreamChunk:
        if stage.playing and isinstance(chunk, records.TextDeltaChunk):
            return records.TextDeltaChunk(index=chunk.index, text=chunk.text.upper())
        return chunk

    def register(ctx: Context) -> None:
        ctx.on(ev.llm.STREAM)(map_chunks(louder))

    return (listening(register),)


def families(stage: Stage) -> Sequence[Tool]:
    """A body that gives its work to an agent of its own."""

    async def delegate(run: live.ToolRun) -> None:
        child = await stage.house.agents.create(
            f"child-{run.call_id}", options=OPTIONS, cwd="/work", parent=run.agent
        )
        stage.others.append(stage.house.session(child))
        try:
            await child.agent.ask(user_message("you do it"))
        finally:
            with trio.CancelScope(shield=True):
                await child.aclose()

    return (sleeper(stage, "delegate", "parallel", delegate),)


def departing(stage: Stage) -> Sequence[Tool]:
    """A body that unloads a plugin which listens around it, and one that changes the tools."""

    async def unload(_run: live.ToolRun) -> None:
        for fiber in stage.house.kernel.fibers:
            if fiber.id == "scene":
                await fiber.dispose()

    async def add(_run: live.ToolRun) -> None:
        await trio.sleep(0.01)
        stage.house.tools.register(stage.house.ctx, sleeper(stage, "added", "parallel"))

    return (sleeper(stage, "unload", "exclusive", unload), sleeper(stage, "add", "exclusive", add))


def around(stage: Stage) -> Sequence[Plugin]:
    """Listeners that are in the middle of a chain when their plugin leaves."""

    def register(ctx: Context) -> None:
        @ctx.on(ev.tools.EXECUTE)
        async def wrap(
            payload: ev.tools.Execute, call_next: Next[live.ToolResult]
        ) -> live.ToolResult:
            answer = await call_next()
            await trio.sleep(0.01)
            return answer

        @ctx.on(ev.agent.PRE_STEP)
        async def enter(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            await trio.sleep(0.01)
            return await call_next()

    del stage
    return (listening(register),)


def wanted(*named: str) -> tuple[ScriptEntry, ScriptEntry]:
    """A reply with these calls, each `tool:id`, and the answer after it."""
    each = [name.partition(":") for name in named]
    return (
        calls(
            *(call(tool, f'{{"text": "{call_id}"}}', call_id=call_id) for tool, _, call_id in each),
            text="Let me see",
        ),
        says("All done."),
    )


CALLS: Final = (
    Scene(name="parallel calls", tools=both_kinds, replies=wanted("quick:a", "quick:b", "quick:c")),
    Scene(name="exclusive calls", tools=both_kinds, replies=wanted("alone:a", "alone:b")),
    Scene(
        name="calls of both kinds",
        tools=both_kinds,
        replies=wanted("quick:a", "quick:b", "alone:c", "quick:d"),
    ),
    Scene(
        name="policies",
        tools=both_kinds,
        plugins=policies,
        replies=wanted("quick:deny", "quick:rewrite", "quick:ask", "alone:refuse", "quick:block"),
    ),
    Scene(
        name="stubborn bodies",
        tools=stubborn,
        plugins=lambda _: (shipped("tool-timeout"),),
        replies=wanted("shielded:a", "failing:b", "endless:c", "concluding:d"),
    ),
    Scene(
        name="calls that cannot run",
        tools=both_kinds,
        replies=(
            calls(call("nobody", call_id="a"), call("quick", "no json", call_id="b")),
            says("so"),
        ),
    ),
    Scene(name="a mapped stream", plugins=middleware, replies=(says("it is so"),)),
    Scene(
        name="a sub-agent",
        tools=families,
        replies=(wanted("delegate:a")[0], says("by the child"), says("by the parent")),
    ),
    Scene(
        name="a plugin that leaves",
        tools=departing,
        plugins=around,
        replies=(wanted("add:a", "unload:b")[0], calls(call("added", call_id="c")), says("so")),
    ),
)
