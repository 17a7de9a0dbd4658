"""A second loop on the same catalog, log, tools and laws, swapped in by composition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh import open_harness
from dsh.agent import user_message
from dsh.boot import Row
from dsh.catalog import records
from dsh.catalog.config import AgentLoopConfig
from dsh.llm import LLM
from dsh.seams.persistence import PERSISTENCE
from dsh.session import verify
from dsh.testing import (
    MemoryStore,
    ScriptedReplies,
    broken_laws,
    call,
    calls,
    open_test_house,
    says,
    stalls,
)
from dsh.testing.house import OPTIONS
from dsh.tools import define_tool
from dsh_plugins.invariants import INVARIANTS, invariants
from dsh_plugins.reflect_loop import MISSING, ROUNDS, reflect_loop

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.agent import AgentHandle
    from dsh.hooks import Next, live
    from dsh.testing import TestHouse
    from dsh.tools import Tool


@frozen
class NoArgs:
    pass


def work_tool(done: list[str]) -> Tool:
    async def execute(args: NoArgs, run: live.ToolRun) -> str:
        done.append(run.call_id)
        return "worked"

    return define_tool(name="work", description="Works.", args=NoArgs, output=str, execute=execute)


def parts(house: TestHouse, handle: AgentHandle) -> list[str]:
    """Who said what: the user's words, and the parts of this loop's own messages."""
    told: list[str] = []
    for message in house.session(handle).derive_messages():
        if not isinstance(message, records.UserMessage):
            continue
        source = message.source
        if isinstance(source, records.PluginSource):
            assert source.plugin == "reflect-loop"
            assert isinstance(source.data, Mapping)
            told.append(str(source.data["part"]))
        else:
            told += [b.text for b in message.content if isinstance(b, records.TextBlock)]
    return told


async def test_a_conversation_plans_acts_and_looks_back() -> None:
    done: list[str] = []
    replies = [
        says("first this, then that"),
        calls(call("work", call_id="c1")),
        says("worked once"),
        says(f"{MISSING}: that was not enough"),
        calls(call("work", call_id="c2")),
        says("worked twice"),
        says("here it is"),
        says("a plan"),
        says("acted"),
        says("all well"),
    ]
    async with open_test_house(
        replies=replies, tools=[work_tool(done)], runner=reflect_loop
    ) as house:
        handle = await house.agent()
        first = await handle.agent.ask(user_message("work"))
        second = await handle.agent.ask(user_message("again"))
        assert (first.text, second.text) == ("here it is", "all well")
        assert isinstance(first.reason, records.CompletedTurnEnd)
        assert done == ["c1", "c2"]
        rounds = ["plan", "act", "reflect"]
        assert parts(house, handle) == ["work", *rounds, *rounds[1:], "again", *rounds]
        assert house.names(handle).count(ev.step.START.name) == len(replies)
        assert broken_laws(house.session(handle)) == []
        for before, after in zip(house.model.requests, house.model.requests[1:], strict=False):
            assert after.messages[: len(before.messages)] == before.messages
        assert house.ctx.require(INVARIANTS).breaches == []


async def test_it_looks_back_a_bounded_number_of_times() -> None:
    replies = [says("plan"), *[says("acted"), says(f"{MISSING}: more")] * ROUNDS]
    async with open_test_house(replies=replies, runner=reflect_loop) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)
        assert len(house.model.requests) == 1 + 2 * ROUNDS


async def test_steering_joins_the_next_step_and_input_after_the_reflection_is_planned_anew() -> (
    None
):
    async with open_test_house(
        replies=[says(word) for word in ("p", "a", "r", "p2", "a2", "r2")], runner=reflect_loop
    ) as house:
        handle = await house.agent()
        session = house.session(handle)

        @house.ctx.on(ev.agent.TURN_STOPPING)
        async def once(stop: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
            if len(house.model.requests) > 3:
                return None
            return ev.agent.KeepGoing(message=user_message("one more thing"))

        @house.ctx.on(ev.agent.PRE_STEP)
        async def steers(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            if step.step == 1:
                handle.agent.steer(user_message("mind the gap"))
            return await call_next()

        outcome = await handle.agent.ask(user_message("go"))
        assert (outcome.turn, outcome.text) == (1, "r2")
        assert parts(house, handle) == [
            "go",
            "plan",
            "mind the gap",
            "act",
            "reflect",
            "one more thing",
            "plan",
            "act",
            "reflect",
        ]
        assert broken_laws(session) == []


async def test_a_turn_whose_prompt_was_withdrawn_has_nothing_to_plan() -> None:
    async with open_test_house(replies=[says("never")], runner=reflect_loop) as house:
        handle = await house.agent()

        @house.ctx.on(ev.agent.INBOX_INSERTED)
        def withdraw(notice: ev.agent.InboxInserted) -> None:
            notice.agent.remove(notice.message.id)

        handle.agent.followup(user_message("go"))
        await handle.agent.when_idle()
        assert house.model.requests == []
        assert broken_laws(house.session(handle)) == []


async def test_cancelling_rejecting_and_the_output_cap_end_it_like_any_loop() -> None:
    from dsh.llm import ScriptEntry

    cut = ScriptEntry(text="too long", finish="max-tokens")
    async with open_test_house(
        replies=[says("plan"), stalls(), says("plan"), cut], runner=reflect_loop
    ) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()
        outcome = await handle.agent.ask(user_message("again"))
        assert isinstance(outcome.reason, records.MaxTokensTurnEnd)

        @house.ctx.on(ev.agent.PRE_STEP)
        async def no(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            return ev.agent.Reject(reason="enough")

        outcome = await handle.agent.ask(user_message("third"))
        assert isinstance(outcome.reason, records.BlockedTurnEnd)
        ends = [
            e.data.reason for e in house.session(handle).events if isinstance(e.data, ev.turn.End)
        ]
        assert isinstance(ends[0], records.AbortedTurnEnd)
        assert broken_laws(house.session(handle)) == []


async def test_a_session_of_one_loop_goes_on_under_the_other() -> None:
    store = MemoryStore()
    async with open_test_house(
        replies=[says("p"), says("a"), says("r")], store=store, runner=reflect_loop
    ) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("one"))
        await handle.aclose()
    async with open_test_house(replies=[says("plain")], store=store) as house:
        handle = await house.agents.resume("s", options=OPTIONS)
        outcome = await handle.agent.ask(user_message("two"))
        assert (outcome.turn, outcome.text) == (2, "plain")
        assert broken_laws(house.session(handle)) == []


async def test_a_composition_swaps_the_row_and_keeps_its_configuration(tmp_path: Path) -> None:
    loop = Row(id="agent-loop", name="reflect-loop", config={"maxParallelToolCalls": 4})
    async with open_harness(
        rows=[loop, Row(name="invariants")],
        home=tmp_path / "home",
        cwd=tmp_path,
        plugins=[reflect_loop, invariants],
    ) as harness:
        assert [row for row in harness.problems if "loop" in row] == []
        model = ScriptedReplies([says("p"), says("a"), says("r")])
        harness.service(LLM).register(harness.context, model, ("test",))
        handle = await harness.agents.create("main", options=OPTIONS, cwd=str(tmp_path))
        assert (await handle.agent.ask(user_message("go"))).text == "r"
        assert len(model.requests) == 3
        assert harness.service(INVARIANTS).breaches == []
        await handle.aclose()
        log = await harness.service(PERSISTENCE).read("main")
        assert verify(log) == ()


def test_it_takes_the_configuration_of_the_row_it_replaces() -> None:
    assert reflect_loop.config is AgentLoopConfig
