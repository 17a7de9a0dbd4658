"""Scenes about turns, requests and the inbox.

What comes in: nothing. What goes out: scenes in which the model answers, fails, stalls and is tried
again, prompts change and messages arrive. No tool matters here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.hooks import live
from dsh.llm import ResolvedModel, ScriptEntry
from dsh.testing.cancelling import Scene
from dsh.testing.logs import LogWriting
from dsh.testing.model import call, calls, says
from dsh.testing.scenes.parts import listening, sleeper
from dsh.testing.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.hooks import Logged, Next
    from dsh.kernel import Context, Plugin
    from dsh.testing.cancelling import Stage
    from dsh.testing.memory_store import MemoryStore

__all__ = ["TURNS"]

SECOND: Final = 2


def failing(code: str) -> ScriptEntry:
    """A reply that breaks off."""
    return ScriptEntry(text="half a", error=records.LlmFailure(message="rain", code=code))


async def slow_stream(_request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
    """Thoughts, text and the beginning of a call, with waits between."""
    yield records.BlockStartChunk(index=0, block_type="reasoning")
    yield records.ReasoningDeltaChunk(index=0, text="hm ")
    await trio.sleep(3)
    yield records.BlockEndChunk(index=0, block=records.ReasoningBlock(text="hm "))
    yield records.BlockStartChunk(index=1, block_type="text")
    yield records.TextDeltaChunk(index=1, text="so")
    await trio.sleep(3)
    block = records.ToolCallBlock(id="t1", name="quick", arguments="{}")
    yield records.BlockEndChunk(index=1, block=records.TextBlock(text="so"))
    yield records.BlockStartChunk(index=2, block_type="tool-call")
    yield records.ToolCallDeltaChunk(index=2, id="t1", name="quick", arguments_delta="{")
    await trio.sleep(3)
    yield records.ToolCallDeltaChunk(index=2, id="t1", name=None, arguments_delta="}")
    yield records.BlockEndChunk(index=2, block=block)
    yield records.FinishChunk(reason=records.ToolCallsFinish())


def recovery(stage: Stage) -> list[Plugin]:
    """Somebody else than the policy tries again, after asking the others."""

    def register(ctx: Context) -> None:
        @ctx.on(ev.agent.REQUEST_ERROR)
        async def again(
            failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            if stage.playing:
                await trio.sleep(0.05)
                return await call_next() or ev.agent.Retry()
            return await call_next()

    return [listening(register)]


def new_prompts(stage: Stage) -> list[Plugin]:
    """Another prompt, another runtime context and another order of tools for each step."""

    def register(ctx: Context) -> None:
        @ctx.on(ev.system_prompt.ASSEMBLE)
        async def assemble(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            assembly = await call_next()
            steps = sum(isinstance(e.data, ev.step.Start) for e in stage.session.events)
            text = ("First.", "Second.", "", "Third.")[steps % 4] if stage.playing else "Last."
            return evolve(
                assembly,
                sections=(live.AssembledText(name="scene", text=text),),
                contexts=(live.AssembledText(name="weather", text=f"{steps} drops"),),
                tools=assembly.tools[::-1] if steps % 2 else assembly.tools,
            )

    return [listening(register)]


def other_routes(stage: Stage) -> list[Plugin]:
    """Each request of the scene goes to a model of its own, with a cap of its own."""

    def register(ctx: Context) -> None:
        @ctx.on(ev.agent.REQUEST)
        async def request(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            config = await call_next()
            if not stage.playing:
                return config
            await trio.sleep(0.01)
            return evolve(config, model=f"model-{payload.step}", max_tokens=100 * payload.step)

    return [listening(register)]


def changed_steps(stage: Stage) -> list[Plugin]:
    """The first step gets more messages and a new series, the second is admitted empty."""

    def register(ctx: Context) -> None:
        @ctx.on(ev.agent.PRE_STEP)
        async def change(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            decision = await call_next()
            if not stage.playing or not isinstance(decision, ev.agent.Enter):
                return decision
            if step.step == 1:
                more = (*decision.messages, user_message("and mind the gap"))
                return ev.agent.Enter(messages=more, starts_request_series=True)
            return ev.agent.Enter(messages=())

    return [listening(register)]


def refused(stage: Stage) -> list[Plugin]:
    """Every step of the scene is rejected."""

    def register(ctx: Context) -> None:
        @ctx.on(ev.agent.PRE_STEP)
        async def reject(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            if stage.playing and step.turn == SECOND:
                await trio.sleep(0.01)
                return ev.agent.Reject(reason="not today")
            return await call_next()

    return [listening(register)]


def votes(stage: Stage) -> list[Plugin]:
    """Two listeners keep the first turn going, once."""

    def register(ctx: Context) -> None:
        for text in ("one more", "and this"):

            @ctx.on(ev.agent.TURN_STOPPING)
            async def vote(
                stop: ev.agent.TurnStopping, text: str = text
            ) -> ev.agent.KeepGoing | None:
                await trio.sleep(0.01)
                steps = sum(isinstance(e.data, ev.step.Start) for e in stage.session.events)
                if stage.playing and steps == 1:
                    return ev.agent.KeepGoing(message=user_message(text))
                return None

    return [listening(register)]


def interjections(stage: Stage) -> list[Plugin]:
    """Log events and notices make somebody speak up."""

    def register(ctx: Context) -> None:
        @ctx.on(ev.assistant.MESSAGE)
        def answered(event: Logged[ev.assistant.Message]) -> None:
            if stage.playing and event.data.turn == 1 and event.data.step == 1:
                stage.agent.steer(user_message("steered"))
                stage.agent.inject(user_message("aside"))

        @ctx.on(ev.turn.END)
        def ended(event: Logged[ev.turn.End]) -> None:
            if stage.playing and event.data.turn == SECOND:
                stage.agent.followup(user_message("after the end"))

    return [listening(register)]


async def several_prompts(stage: Stage) -> None:
    """Prompts behind each other; one is replaced and one taken back before their turns."""
    agent = stage.agent
    for name in ("a", "b", "c", "d"):
        agent.followup(user_message(name, id=name))
    agent.inject(user_message("aside"))
    if not stage.points.acted:
        agent.replace("b", user_message("instead of b", id="b2"))
    if not stage.points.acted:
        agent.remove("c")
    await agent.when_idle()


async def parked_prompts(stage: Stage) -> None:
    """A turn that is rejected leaves a prompt behind, which a later wake runs."""
    stage.agent.followup(user_message("fine"))
    stage.agent.followup(user_message("to be rejected"))
    stage.agent.followup(user_message("parked"))
    await stage.agent.when_idle()
    if not stage.points.acted:
        stage.agent.wake()
    await stage.agent.when_idle()


async def maintained(stage: Stage) -> None:
    """A job while idle; what wakes the agent meanwhile runs after it."""

    async def job(signal: live.TurnSignal) -> None:
        stage.agent.followup(user_message("meanwhile"))
        with signal.scope():
            await trio.sleep(1)

    await stage.agent.run_maintenance(job)
    await stage.session.flush()
    await stage.agent.when_idle()


async def long_history(store: MemoryStore) -> None:
    """A stored session with enough in it to shorten."""
    log = LogWriting()
    for number in range(6):
        log.whole_turn(f"question {number} " + "why " * 400, "because " * 400)
    await stored(store, log)


async def crashed(store: MemoryStore) -> None:
    """A stored session that ends in the middle of a step with two calls."""
    log = LogWriting()
    log.whole_turn("hi", "hello")
    log.turn_start()
    log.step_start()
    log.user("work")
    log.reply("at once", calls=("x1", "x2"), sources=log.chunks("at once"))
    log.call("x1")
    await stored(store, log)


async def stored(store: MemoryStore, log: LogWriting) -> None:
    """Put it there."""
    handle = await store.create(log.session.header)
    await handle.append(tuple(log.session.events))
    await handle.aclose()


TURNS: Final = (
    Scene(name="an answer", replies=(says("Here it is."),)),
    Scene(
        name="a slow stream",
        replies=(slow_stream, says("done")),
        tools=lambda stage: [sleeper(stage, "quick")],
    ),
    Scene(
        name="waits before retries",
        replies=(failing("SERVER"), failing("RATE_LIMIT"), says("so")),
        plugins=lambda _: [shipped("llm-retry")],
    ),
    Scene(
        name="a recovery", replies=(failing("SERVER"), failing("ODD"), says("so")), plugins=recovery
    ),
    Scene(name="a failure", replies=(failing("AUTH"),), fails=True),
    Scene(
        name="too long a history",
        replies=(failing("CONTEXT_WINDOW_EXCEEDED"), says("they talked"), says("on we go")),
        before=long_history,
        plugins=lambda _: [shipped("token-meter"), shipped("compaction")],
    ),
    Scene(
        name="prompts that change",
        plugins=new_prompts,
        replies=(*[calls(call("quick"))] * 4, says("so")),
        tools=lambda stage: [sleeper(stage, "quick"), sleeper(stage, "other")],
    ),
    Scene(
        name="prompts that change within the history",
        plugins=new_prompts,
        resolved=ResolvedModel(system_prompt_update="in-history", context_window=100_000),
        replies=(*[calls(call("quick"))] * 4, says("so")),
        tools=lambda stage: [sleeper(stage, "quick"), sleeper(stage, "other")],
    ),
    Scene(
        name="other routes",
        plugins=other_routes,
        replies=(calls(call("quick")), says("so")),
        tools=lambda stage: [sleeper(stage, "quick")],
    ),
    Scene(
        name="changed steps",
        plugins=changed_steps,
        replies=(calls(call("quick")), says("so")),
        tools=lambda stage: [sleeper(stage, "quick")],
    ),
    Scene(
        name="a rejected turn",
        plugins=refused,
        replies=(says("one"), says("two")),
        play=parked_prompts,
    ),
    Scene(name="votes", plugins=votes, replies=(says("one"), says("two"))),
    Scene(
        name="steering",
        plugins=interjections,
        replies=tuple(map(says, "abcdef")),
        play=several_prompts,
    ),
    Scene(name="maintenance", replies=(says("so"),), play=maintained),
    Scene(
        name="after a crash",
        replies=(calls(call("quick")), says("so")),
        before=crashed,
        tools=lambda stage: [sleeper(stage, "quick")],
    ),
    Scene(name="cut by the cap", replies=(ScriptEntry(text="so it", finish="max-tokens"),)),
)
