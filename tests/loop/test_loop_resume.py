"""Stored sessions: what creation stores, and how a log goes on after rest, crash or fork."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import CreateAgent, user_message
from dsh.catalog import records
from dsh.errors import (
    AgentClosed,
    AgentError,
    ServiceMissing,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StorageFailed,
)
from dsh.testing import (
    MemoryStore,
    broken_laws,
    call,
    calls,
    open_test_house,
    says,
    stalls,
)
from dsh.testing.house import OPTIONS
from dsh.tools import define_tool

if TYPE_CHECKING:
    from dsh.hooks import live
    from dsh.kernel import Context
    from dsh.seams.persistence import WriteHandle


@pytest.mark.holds("A20", "A24", "NEW-3")
async def test_with_a_store_everything_is_stored_exactly_once() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a")], store=store) as house:
        listened: list[int] = []
        house.ctx.on(ev.session.EVENT)(lambda n: listened.append(n.event.seq))

        async def setup(ctx: Context, agent: live.Agent) -> None:
            agent.inject(user_message("in setup"))

        handle = await house.agent(setup=setup)
        assert listened == []
        assert len((await store.read("s")).events) == 1
        with pytest.raises(SessionBusy):
            await store.open("s", "write")
        await handle.agent.ask(user_message("go"))
        events = house.session(handle).events
        stored = (await store.read("s")).events
        assert [e.seq for e in stored] == [e.seq for e in events]
        assert [e.data for e in stored] == [e.data for e in events]
        assert listened == list(range(1, len(events)))
        await handle.aclose()
        with pytest.raises(SessionExists, match="stored already"):
            await house.agent()


@pytest.mark.holds("A20", "RS06", "RS07")
async def test_without_a_store_everything_else_is_the_same() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        handle = await house.agent(cwd=None)
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.text == "a"
        assert house.session(handle).header.cwd is None
        await handle.aclose()
        assert house.nothing_is_left()


@pytest.mark.holds("A23", "RS18", "RS08", "I9", "CR15")
async def test_a_resumed_agent_goes_on_where_the_log_ends() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a")], store=store) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("one"))
        handle.agent.inject(user_message("parked", id="parked"))
        await handle.aclose()
    async with open_test_house(replies=[says("b")], store=store) as house:
        told = house.lifecycle()
        handle = await house.agents.resume("s", options=OPTIONS)
        assert told == ["session/created", "agent/created", "start resume"]
        assert handle.agent.turn == 1
        assert [m.id for m in handle.agent.pending("next-step")] == ["parked"]
        await wait_all_tasks_blocked()
        assert handle.agent.status == "idle"
        outcome = await handle.agent.ask(user_message("two"))
        assert outcome.turn == 2
        session = house.session(handle)
        assert [event.seq for event in session.events] == list(range(len(session.events)))
        roles = [m.role for m in house.model.requests[0].messages]
        assert roles == ["user", "assistant", "user", "user"]
        reasons = [
            event.data.reason
            for event in session.events
            if isinstance(event.data, ev.request.Header)
        ]
        assert reasons == ["initial", "resume"]
        assert session.header.cwd == "/work"
        assert broken_laws(session) == []


@pytest.mark.holds("RS19")
async def test_resuming_without_a_store_says_what_is_missing() -> None:
    async with open_test_house() as house:
        with pytest.raises(ServiceMissing, match="session-jsonl"):
            await house.agents.resume("s")


@pytest.mark.holds("A21")
async def test_resuming_what_is_not_there_is_an_error_and_leaves_nothing() -> None:
    async with open_test_house(store=MemoryStore()) as house:
        with pytest.raises(SessionNotFound, match="no session 'ghost'"):
            await house.agents.resume("ghost")
        assert house.nothing_is_left("ghost")


@pytest.mark.holds("A21", "A22", "I5", "case-028")
async def test_resume_repairs_a_crash_once_and_the_next_request_is_valid() -> None:
    store = MemoryStore()

    async def body(args: object, run: live.ToolRun) -> str:
        await trio.sleep_forever()

    from attrs import frozen

    @frozen
    class NoArgs:
        pass

    tool = define_tool(name="t", description="t", args=NoArgs, output=str, execute=body)
    reply = calls(call("t", call_id="c1"), call("t", call_id="c2"))
    async with open_test_house(replies=[reply], store=store, tools=[tool]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        await house.session(handle).writer.barrier()
        crashed = MemoryStore()
        header = house.session(handle).header
        write = await crashed.create(header)
        await write.append(tuple(house.session(handle).events))
        await write.aclose()
    for count in range(2):
        async with open_test_house(replies=[says("b")], store=crashed) as house:
            handle = await house.agents.resume("s", options=OPTIONS)
            session = house.session(handle)
            results = [e.data for e in session.events if isinstance(e.data, ev.tool.Result)]
            codes = [r.error.code for r in results if r.error is not None]
            assert codes == ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"]
            ends = [e.data.reason.kind for e in session.events if isinstance(e.data, ev.turn.End)]
            assert ends[0] == "interrupted"
            if count:
                await handle.agent.ask(user_message("again"))
                roles = [m.role for m in house.model.requests[0].messages]
                assert roles == ["user", "assistant", "tool", "tool", "user"]
            assert broken_laws(session) == []
            await handle.aclose()


@pytest.mark.holds("A21", "RS15", "RS25")
async def test_a_hung_load_is_given_up_when_the_loop_unloads() -> None:
    async def slow(session_id: str, mode: Literal["write"]) -> WriteHandle:
        await trio.sleep_forever()
        raise AssertionError

    store = MemoryStore()
    store.open = slow  # type: ignore[method-assign]
    async with open_test_house(store=store) as house:
        errors: list[str] = []

        async def resume() -> None:
            try:
                await house.agents.resume("s")
            except AgentClosed as error:
                errors.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(resume)
            await wait_all_tasks_blocked()
            await house.loop.dispose()
        assert len(errors) == 1
        assert "the agent loop is not active" in errors[0]


@pytest.mark.holds("I9", "RS16", "B3", "M24")
async def test_a_seeded_child_keeps_lineage_and_not_the_parents_pending_input() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a"), says("b")], store=store) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        handle.agent.inject(user_message("the parent's", id="parents"))
        seed = tuple(house.session(handle).events)
        child = await house.agents.make(
            CreateAgent(
                session_id="child",
                options=OPTIONS,
                cwd="/work",
                seed=seed,
                parent_session="s",
                delegation_depth=1,
                origin="subagent",
            )
        )
        header = house.session(child).header
        assert (header.parent_session, header.seed_length) == ("s", len(seed))
        assert (header.delegation_depth, header.origin) == (1, "subagent")
        assert child.agent.pending("next-step") == ()
        outcome = await child.agent.ask(user_message("on"))
        assert outcome.turn == 2
        child.agent.inject(user_message("its own", id="own"))
        await child.aclose()
        again = await house.agents.resume("child", options=OPTIONS)
        assert [m.id for m in again.agent.pending("next-step")] == ["own"]
        assert house.session(again).header == header


@pytest.mark.holds("GR07")
async def test_an_agent_and_its_session_have_one_id() -> None:
    async with open_test_house() as house:
        handle = await house.agent()

        class Other:
            id = "other"
            session = handle.agent.session

        with pytest.raises(AgentError, match="the two ids are one"):
            house.agents.enter(Other())  # type: ignore[arg-type]


async def test_shutdown_of_the_house_ends_running_turns_lawfully() -> None:
    store = MemoryStore()
    async with open_test_house(
        replies=[stalls(records.TextDeltaChunk(index=0, text="x"))], store=store
    ) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
    events = (await store.read("s")).events
    assert events[-1].data == ev.turn.End(
        turn=1, reason=records.AbortedTurnEnd(reason=records.DisposedCause())
    )


@pytest.mark.holds("G1")
async def test_an_outer_cancellation_is_recorded_as_disposed_and_goes_on() -> None:
    store = MemoryStore()
    with trio.CancelScope() as scope:
        async with open_test_house(replies=[stalls()], store=store) as house:
            handle = await house.agent()
            handle.agent.followup(user_message("go"))
            await wait_all_tasks_blocked()
            scope.cancel()
            await handle.agent.when_idle()
    assert scope.cancelled_caught
    events = (await store.read("s")).events
    assert events[-1].data == ev.turn.End(
        turn=1, reason=records.AbortedTurnEnd(reason=records.DisposedCause())
    )


@pytest.mark.holds("C2", "AG1")
async def test_what_is_acknowledged_is_written_and_synced() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a"), says("b"), says("c")], store=store) as house:
        handle = await house.agent()
        for acknowledge in ("ask", "when_idle"):
            syncs = store.syncs
            if acknowledge == "ask":
                await handle.agent.ask(user_message("go"))
            else:
                handle.agent.followup(user_message("go"))
                await handle.agent.when_idle()
            assert store.syncs > syncs
            assert len((await store.read("s")).events) == len(house.session(handle).events)
        store.failing = OSError("disk full")
        handle.agent.followup(user_message("go"))
        with pytest.raises(StorageFailed, match="disk full"):
            await handle.agent.when_idle()
        store.failing = None
        await handle.agent.when_idle()
        assert len((await store.read("s")).events) == len(house.session(handle).events)
