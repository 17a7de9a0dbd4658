"""A scripted turn, cancelled at each of its checkpoints in turn: the log is always lawful."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.kernel import Context, Plugin, plugin
from dsh.llm.scripted import ScriptEntry
from dsh.testing import (
    AtStep,
    MemoryStore,
    TestHouse,
    broken_laws,
    call,
    calls,
    open_test_house,
    says,
)
from dsh.testing.house import OPTIONS
from dsh.tools import Tool, define_tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from trio.testing import MockClock

    from dsh.agent import AgentHandle
    from dsh.hooks import Next, live
    from dsh.session import Session


@frozen
class Text:
    text: str


def sleeper(name: str, mode: str) -> Tool:
    async def execute(args: Text, run: live.ToolRun) -> str:
        await trio.sleep(0.01)
        run.defer_context(user_message(f"context of {args.text}"))
        await trio.lowlevel.checkpoint()
        return args.text.upper()

    return define_tool(
        name=name,
        description="Say it loudly.",
        args=Text,
        output=str,
        execute=execute,
        execution_mode="parallel" if mode == "parallel" else "exclusive",
    )


def busy_plugin() -> Plugin:
    """Listens at every extension point of a turn, with a checkpoint in each."""

    @plugin(name="busy")
    async def busy(ctx: Context) -> None:
        @ctx.on(ev.system_prompt.ASSEMBLE)
        async def assemble(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            await trio.lowlevel.checkpoint()
            return await call_next()

        @ctx.on(ev.agent.PRE_STEP)
        async def pre_step(
            payload: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            await trio.lowlevel.checkpoint()
            decision = await call_next()
            await trio.lowlevel.checkpoint()
            return decision

        @ctx.on(ev.agent.REQUEST)
        async def request(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            await trio.lowlevel.checkpoint()
            return await call_next()

        @ctx.on(ev.agent.REQUEST_ERROR)
        async def retry(
            payload: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            await trio.sleep(0.05)
            return ev.agent.Retry()

        @ctx.on(ev.agent.TURN_STOPPING)
        async def stopping(payload: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
            await trio.lowlevel.checkpoint()
            return None

        @ctx.on(ev.tools.PRE_EXECUTE)
        async def pre(
            payload: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
        ) -> ev.tools.PreExecuteDecision:
            await trio.lowlevel.checkpoint()
            return await call_next()

        @ctx.on(ev.tools.POST_EXECUTE)
        async def post(
            payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
        ) -> ev.tools.PostExecuteDecision:
            await trio.lowlevel.checkpoint()
            return await call_next()

    return busy


REPLIES = (
    calls(
        call("quick", '{"text": "one"}', call_id="c1"),
        call("quick", '{"text": "two"}', call_id="c2"),
        call("alone", '{"text": "three"}', call_id="c3"),
        call("quick", '{"text": "four"}', call_id="c4"),
        text="Let me see",
    ),
    ScriptEntry(text="half", error=records.LlmFailure(message="busy", code="SERVER")),
    says("All done now."),
    *(says("again"),) * 3,
)


@asynccontextmanager
async def turn_house(
    store: MemoryStore | None = None,
) -> AsyncGenerator[tuple[TestHouse, AgentHandle], None]:
    """An agent whose turn has a tool step, a failed and a retried attempt, and a last answer."""
    async with open_test_house(
        replies=REPLIES,
        tools=[sleeper("quick", "parallel"), sleeper("alone", "exclusive")],
        plugins=[busy_plugin()],
        store=store,
    ) as house:
        yield house, await house.agent()


def at_rest(house: TestHouse, handle: AgentHandle) -> list[str]:
    broken = broken_laws(house.session(handle))
    if handle.agent.status != "idle":
        broken.append(f"status is {handle.agent.status}")
    return broken


async def counted_steps() -> int:
    async with turn_house() as (house, handle):
        counter = AtStep()
        trio.lowlevel.add_instrument(counter)
        counter.arm()
        handle.agent.followup(user_message("go", id="prompt"))
        await handle.agent.when_idle()
        counter.disarm()
        trio.lowlevel.remove_instrument(counter)
        assert at_rest(house, handle) == []
        assert house.names(handle).count(ev.step.START.name) == 2
        return counter.count


async def cancelled_at(
    step: int, act: Callable[[AgentHandle], None], check: Callable[[TestHouse, AgentHandle], None]
) -> list[str]:
    """What is wrong after one run that is interrupted at `step`."""
    async with turn_house() as (house, handle):
        counter = AtStep(step, lambda: act(handle))
        trio.lowlevel.add_instrument(counter)
        counter.arm()
        handle.agent.followup(user_message("go", id="prompt"))
        await handle.agent.when_idle()
        counter.disarm()
        trio.lowlevel.remove_instrument(counter)
        broken = [f"step {step}: {text}" for text in at_rest(house, handle)]
        check(house, handle)
        house.model.replies[:] = [says("next")]
        outcome = await handle.agent.ask(user_message("and now?", id="second"))
        if not isinstance(outcome.reason, records.CompletedTurnEnd) or outcome.text != "next":
            broken.append(f"step {step}: the next prompt came to {outcome}")
        broken += [f"step {step}, later: {text}" for text in at_rest(house, handle)]
        return broken


def turn_ends(house: TestHouse, handle: AgentHandle) -> list[records.TurnEndReason]:
    return [
        event.data.reason
        for event in house.session(handle).events
        if isinstance(event.data, ev.turn.End)
    ]


CAUSES: dict[str, records.CancelCause] = {
    "user": records.UserCause(),
    "parent": records.ParentCause(),
    "hook": records.HookCause(reason="enough"),
}


@pytest.mark.holds("G1", "G2", "G6", "C15", "C20", "F8", "E6", "I6")
@pytest.mark.parametrize("keep_inbox", [False, True])
@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES.keys())
async def test_a_cancel_at_every_checkpoint_leaves_a_lawful_log(
    cause: records.CancelCause, autojump_clock: MockClock, *, keep_inbox: bool
) -> None:
    steps = await counted_steps()
    assert steps > 40
    broken: list[str] = []

    def check(house: TestHouse, handle: AgentHandle) -> None:
        for reason in turn_ends(house, handle):
            aborted = records.AbortedTurnEnd(reason=cause)
            if reason not in {aborted, records.CompletedTurnEnd()}:
                broken.append(f"a turn ended with {reason}")

    for step in range(1, steps + 1):
        broken += await cancelled_at(
            step, lambda handle: handle.agent.cancel(cause, keep_inbox=keep_inbox), check
        )
    assert broken == []


async def ended_at(step: int, how: str) -> list[str]:
    """What is wrong after one run whose agent, or whose house, ends at `step`."""
    store = MemoryStore()
    sessions: list[Session] = []
    with trio.CancelScope() as outside:
        async with turn_house(store) as (house, handle), trio.open_nursery() as nursery:
            sessions.append(house.session(handle))

            def act() -> None:
                if how == "handle":
                    nursery.start_soon(handle.aclose)
                else:
                    outside.cancel()

            counter = AtStep(step, act)
            trio.lowlevel.add_instrument(counter)
            counter.arm()
            handle.agent.followup(user_message("go", id="prompt"))
            try:
                await handle.agent.when_idle()
            finally:
                counter.disarm()
                trio.lowlevel.remove_instrument(counter)
    [session] = sessions
    broken = broken_laws(session)
    reasons = [e.data.reason for e in session.events if isinstance(e.data, ev.turn.End)]
    disposed = records.AbortedTurnEnd(reason=records.DisposedCause())
    if reasons not in ([disposed], [records.CompletedTurnEnd()]):
        broken.append(f"the turn ended with {reasons}")
    stored = (await store.read("s")).events
    if [event.seq for event in stored] != [event.seq for event in session.events]:
        broken.append(f"{len(stored)} of {len(session.events)} events are stored")
    async with open_test_house(replies=[says("next")], store=store) as house:
        again = await house.agents.resume("s", options=OPTIONS)
        if len(house.session(again).events) != len(stored) + 1:
            broken.append("the log needed a repair")
        outcome = await again.agent.ask(user_message("and now?", id="second"))
        if outcome.text != "next":
            broken.append(f"the next prompt came to {outcome}")
        broken += broken_laws(house.session(again))
    return [f"step {step}: {text}" for text in broken]


@pytest.mark.holds("G8", "A12")
@pytest.mark.parametrize("how", ["handle", "outside"])
async def test_an_end_at_every_checkpoint_leaves_a_log_that_goes_on(
    how: str, autojump_clock: MockClock
) -> None:
    steps = await counted_steps()
    broken: list[str] = []
    for step in range(1, steps + 1):
        broken += await ended_at(step, how)
    assert broken == []


async def test_the_counted_turn_really_enters_every_extension_point(
    autojump_clock: MockClock,
) -> None:
    async with turn_house() as (house, handle):
        await handle.agent.ask(user_message("go"))
        listened = {row.event: row.runs for row in house.kernel.listeners() if row.plugin == "busy"}
        assert len(listened) == 7
        assert all(listened.values())
        names = house.names(handle)
        assert names.count(ev.tool.RESULT.name) == 4
