"""The laws of what is not in the log: streams, stages of calls, status, assemblies."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import InvariantError
from dsh.hooks import EMPTY_OBJECT, live
from dsh.testing import ManualSignal, call, calls, open_test_house, says
from dsh.testing.tool_parts import simple_tool
from dsh.tools.execution import CallInput, CallToken, Execution
from dsh_plugins.invariants import INVARIANTS, Book, LawBroken, invariants
from dsh_plugins.invariants.assemblies import assembly_fault
from dsh_plugins.invariants.stages import Stage, Stages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from dsh.agent import AgentHandle
    from dsh.hooks import Next, StreamNext
    from dsh.testing import TestHouse


def seen(house: TestHouse) -> list[str]:
    return [each.seen for each in house.ctx.require(INVARIANTS).breaches]


# -- streams -----------------------------------------------------------------------------------


@pytest.mark.holds("J3", "LI01", "LI02")
@pytest.mark.parametrize(
    ("chunks", "told"),
    [
        ((records.TextDeltaChunk(index=0, text="x"),), "chunk 0: text delta for block 0"),
        (
            (
                records.FinishChunk(reason=records.StopFinish()),
                records.FinishChunk(reason=records.StopFinish()),
            ),
            "chunk 1: finish after the finish",
        ),
        ((records.BlockStartChunk(index=0, block_type="text"),), "chunk 1: no finish"),
    ],
)
async def test_a_wrapper_that_breaks_the_grammar_breaks_the_stream(
    chunks: tuple[records.StreamChunk, ...], told: str
) -> None:
    async with open_test_house(plugins=[invariants], watched=False) as house:

        @house.ctx.on(ev.llm.STREAM)
        @asynccontextmanager
        async def breaks(
            payload: ev.llm.Stream, call_next: StreamNext[records.StreamChunk]
        ) -> AsyncGenerator[AsyncIterator[records.StreamChunk], None]:
            async def stream() -> AsyncGenerator[records.StreamChunk, None]:
                for chunk in chunks:
                    yield chunk

            yield stream()

        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == InvariantError.default_code
        assert told in outcome.reason.error.message
        assert [each.law for each in house.ctx.require(INVARIANTS).breaches] == ["stream"]


# -- stages ------------------------------------------------------------------------------------


def given(
    call_id: str = "c",
    root: str | None = None,
    *,
    parent: object | None = None,
    token: CallToken | None = None,
    agent: live.Agent | None = None,
) -> live.ToolExecution:
    """An execution that no pipeline made."""
    made = CallInput(
        call_id=call_id,
        name="t",
        arguments={},
        agent=agent,
        signal=ManualSignal(),
        cwd="/",
        parent=parent,
        root_call_id=root,
    )
    return Execution(made, EMPTY_OBJECT, token or CallToken())


def fresh() -> tuple[Stages, Book]:
    import logging

    book = Book(logging.getLogger("dsh.plugin.invariants"))
    return Stages(book, ()), book


LAWFUL: tuple[tuple[Stage, ...], ...] = (
    ("policy", "body", "review", "result"),
    ("policy", "body", "body", "review", "result"),
    ("policy", "review", "result"),
    ("policy", "result"),
    ("policy", "body", "result"),
    ("review", "result"),
    ("result",),
)


@pytest.mark.holds("J3", "XV01")
@pytest.mark.parametrize("way", LAWFUL, ids="-".join)
def test_every_order_of_the_pipeline_is_lawful(way: tuple[Stage, ...]) -> None:
    stages, book = fresh()
    one = given()
    for stage in way:
        stages.at(stage, one)
    assert book.breaches == []


@pytest.mark.holds("XV02")
@pytest.mark.parametrize(
    ("before", "stage"),
    [
        (("policy",), "policy"),
        ((), "body"),
        (("policy", "review"), "body"),
        (("policy", "review"), "review"),
        (("policy", "body"), "policy"),
        (("review",), "policy"),
    ],
)
def test_a_stage_out_of_order_or_twice_is_a_breach(before: tuple[Stage, ...], stage: Stage) -> None:
    stages, _ = fresh()
    one = given()
    for each in before:
        stages.at(each, one)
    with pytest.raises(LawBroken, match=f"{stage} after"):
        stages.at(stage, one)


@pytest.mark.holds("XV06", "XV07")
def test_a_call_has_one_identity_and_the_root_of_whoever_made_it() -> None:
    stages, _ = fresh()
    token = CallToken()
    outer = given("outer", token=token)
    stages.at("policy", outer)
    stages.at("policy", given("inner", "outer", parent=token))
    with pytest.raises(LawBroken, match="its root is 'other', that of its parent 'outer'"):
        stages.at("policy", given("i", "other", parent=token))
    with pytest.raises(LawBroken, match="no identity"):
        stages.at("policy", given(""))
    with pytest.raises(LawBroken, match="and no call made it"):
        stages.at("policy", given("i", "outer"))
    with pytest.raises(LawBroken, match="it was 'outer' of 't' before"):
        stages.at("body", given("x", token=token))


@pytest.mark.holds("XV03")
def test_a_final_result_is_frozen() -> None:
    stages, book = fresh()
    blocks = (records.TextBlock(text="x"),)
    stages.ended(given(), live.ToolSuccess(value="x", content=blocks))
    assert book.breaches == []
    with pytest.raises(LawBroken, match="is not frozen"):
        stages.ended(given(), live.ToolSuccess(value="x", content=list(blocks)))  # type: ignore[arg-type]
    with pytest.raises(LawBroken, match="is not frozen"):
        stages.ended(given(), {"content": blocks})


@pytest.mark.holds("XV09")
async def test_loaded_during_a_call_it_lets_that_call_pass_and_judges_the_next() -> None:
    entered, done = trio.Event(), trio.Event()

    async def body(_run: live.ToolRun) -> str:
        entered.set()
        await done.wait()
        return "done"

    async with open_test_house(
        replies=[calls(call("t")), says("a"), calls(call("t")), says("b")],
        tools=[simple_tool("t", body)],
        watched=False,
    ) as house:
        ended: list[ev.tools.Result] = []
        house.ctx.on(ev.tools.RESULT)(ended.append)
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await entered.wait()
        await house.kernel.mount(invariants).ready()
        done.set()
        await handle.agent.when_idle()
        await handle.agent.ask(user_message("and again"))
        assert len(ended) == 2
        assert seen(house) == []
        house.ctx.emit(attrs.evolve(ended[1], exec=given("", agent=handle.agent)))
        assert len(seen(house)) == 1


async def test_a_stage_that_comes_twice_is_told_with_the_place_in_the_log() -> None:
    async def body(_run: live.ToolRun) -> str:
        return "done"

    async with open_test_house(
        replies=[calls(call("t")), says("a")],
        tools=[simple_tool("t", body)],
        plugins=[invariants],
        watched=False,
    ) as house:
        ended: list[ev.tools.Result] = []
        house.ctx.on(ev.tools.RESULT)(ended.append)
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        assert seen(house) == []
        [notice] = ended
        stale = attrs.evolve(notice, exec=given("", agent=handle.agent))
        house.ctx.emit(stale)
        [breach] = house.ctx.require(INVARIANTS).breaches
        assert breach.seq == house.session(handle).next_seq


# -- status and assembly -------------------------------------------------------------------------


@pytest.mark.holds("J3", "GV01", "GV02", "GV03")
async def test_status_alternates_for_each_agent_by_itself() -> None:
    async with open_test_house(
        replies=[says("a"), says("b")], plugins=[invariants], watched=False
    ) as house:
        one, two = await house.agent("one"), await house.agent("two")
        await one.agent.ask(user_message("go"))
        await two.agent.ask(user_message("go"))
        await one.agent.when_idle()
        await two.agent.when_idle()
        assert seen(house) == []
        house.ctx.emit(ev.agent.Status(agent=one.agent, status="idle"))
        house.ctx.emit(ev.agent.Status(agent=two.agent, status="running"))
        assert seen(house) == [
            "agent 'one': idle was told twice",
            "agent 'two': running was told, and the agent is idle",
        ]


async def test_an_id_that_is_used_again_begins_idle() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent()

        async def cut(handle: AgentHandle) -> None:
            handle.agent.followup(user_message("go"))
            await handle.aclose()

        await cut(handle)
        await cut(await house.agent())


TEXT = live.AssembledText(name="a", text="x")
TOOL = records.ToolSchema(name="t", description="t", parameters={})
SOUND = live.PromptAssembly(
    sections=(TEXT,), contexts=(TEXT,), tools=(TOOL,), variables=(("v", None),)
)


@pytest.mark.holds("J3", "PI01")
def test_a_sound_assembly_has_no_fault() -> None:
    assert assembly_fault(SOUND) is None
    assert assembly_fault(live.PromptAssembly(sections=(), contexts=(), tools=())) is None


@pytest.mark.holds("J3", "PI02")
@pytest.mark.parametrize(
    ("assembly", "fault"),
    [
        (None, "it is NoneType"),
        (evolve(SOUND, sections=(TEXT, TEXT)), "the section 'a' is there twice"),
        (evolve(SOUND, contexts=(TEXT, TEXT)), "the context 'a' is there twice"),
        (evolve(SOUND, tools=(TOOL, TOOL)), "the tool 't' is there twice"),
        (evolve(SOUND, variables=(("v", None), ("v", "x"))), "the variable 'v' is there twice"),
        (evolve(SOUND, sections=[TEXT]), "its sections are list"),  # type: ignore[arg-type]
        (evolve(SOUND, tools=[TOOL]), "its tools are list"),  # type: ignore[arg-type]
        (evolve(SOUND, sections=("x",)), "a section is str"),  # type: ignore[arg-type]
        (evolve(SOUND, tools=("x",)), "a tool is str"),  # type: ignore[arg-type]
        (evolve(SOUND, sections=(evolve(TEXT, name=""),)), "needs a name and a text"),
        (evolve(SOUND, tools=(evolve(TOOL, name=""),)), "needs a name and parameters"),
        (
            evolve(
                SOUND,
                sections=(
                    evolve(TEXT, complete=True),
                    live.AssembledText(name="b", text="y", complete=True),
                ),
            ),
            "more than one section says that it is the whole prompt",
        ),
    ],
)
def test_a_malformed_assembly_has_a_fault(assembly: object, fault: str) -> None:
    found = assembly_fault(assembly)
    assert found is not None
    assert fault in found


async def test_a_listener_that_spoils_the_assembly_fails_the_turn() -> None:
    async with open_test_house(plugins=[invariants], watched=False) as house:

        @house.ctx.on(ev.system_prompt.ASSEMBLE)
        async def spoil(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            assembly = await call_next()
            return evolve(assembly, sections=(TEXT, TEXT))

        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert "the law 'assembly' is broken" in outcome.reason.error.message


# -- without it ----------------------------------------------------------------------------------


@pytest.mark.holds("J4")
async def test_a_lawful_run_is_the_same_without_it() -> None:
    async def run(*, watched: bool) -> list[tuple[str, int, records.SurfaceOp | None]]:
        async def body(_run: live.ToolRun) -> str:
            return "done"

        async with open_test_house(
            replies=[calls(call("t", call_id="c")), says("a"), says("b")],
            tools=[simple_tool("t", body)],
            watched=watched,
        ) as house:
            handle = await house.agent()
            await handle.agent.ask(user_message("one"))
            handle.agent.inject(user_message("aside"))
            await handle.agent.ask(user_message("two"))
            return [(e.type, e.time, e.surface_op) for e in house.session(handle).events]

    assert await run(watched=True) == await run(watched=False)
