"""Compaction on request: exact, durable, and locked against everything else."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.catalog import records
from dsh.llm import ScriptEntry, chunks_of
from dsh.seams.compaction import COMPACTION, CompactionEngine, CompactionFailed
from dsh.testing import (
    MemoryStore,
    Talker,
    TestHouse,
    broken_laws,
    call,
    calls,
    open_test_house,
    says,
)
from dsh_plugins.compaction import compaction
from dsh_plugins.compaction.catalog import CompactionConfig
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from dsh.agent import AgentHandle
    from dsh.hooks import live
    from dsh.tools import Tool

Answer: TypeAlias = "ScriptEntry | Callable[[live.LlmRequest], AsyncGenerator[records.StreamChunk]]"

ROUTE: Final = records.AgentOptions(provider="m", model="m-1")
FAILURE: Final = records.LlmFailure(message="prompt is too long", code="CONTEXT_WINDOW_EXCEEDED")
TOO_LONG: Final = ScriptEntry(error=FAILURE)
SUMMARY: Final = says("They asked for work. It is half done.")


def talker(
    *replies: Answer, window: int | None = 4000, summaries: tuple[Answer, ...] = (SUMMARY,)
) -> Talker:
    return Talker(*replies, window=window, summaries=summaries)


@frozen
class Size:
    """How much the tool answers."""

    size: int = 2000


async def read(args: Size, _run: live.ToolRun) -> str:
    """A tool with long output."""
    return "x" * args.size


READ: Tool = define_tool(name="read", description="Reads", args=Size, output=str, execute=read)


@asynccontextmanager
async def running(
    model: Talker,
    config: CompactionConfig | None = None,
    *,
    store: MemoryStore | None = None,
) -> AsyncGenerator[TestHouse]:
    async with open_test_house(plugins=[token_meter], tools=[READ], store=store) as house:
        house.llm.register(house.ctx, model, ("m",))
        await house.kernel.mount(compaction, config or CompactionConfig(), slot=7).ready()
        yield house


def reads(size: int = 2000) -> ScriptEntry:
    return calls(call("read", f'{{"size": {size}}}'))


def logged(house: TestHouse, handle: AgentHandle, *kinds: type) -> list[object]:
    return [e.data for e in house.session(handle).events if isinstance(e.data, kinds)]


def ends(house: TestHouse, handle: AgentHandle) -> list[ev.compaction.End]:
    events = house.session(handle).events
    return [e.data for e in events if isinstance(e.data, ev.compaction.End)]


def engine(house: TestHouse) -> CompactionEngine:
    found = house.ctx.get(COMPACTION)
    assert found is not None
    return found


def texts(request: live.LlmRequest) -> str:
    return "\n".join(
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, records.TextBlock)
    )


@pytest.mark.holds("CO11")
async def test_on_request_an_idle_conversation_is_shortened_and_it_is_durable() -> None:
    store = MemoryStore()
    model = talker(*[reads(600)] * 3, says("done"), says("more"), window=100_000)
    async with running(model, store=store) as house:
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        done = await engine(house).compact_now(handle.agent)
        assert done is not None
        assert done.tokens_after < done.tokens_before
        (end,) = ends(house, handle)
        assert (end.turn, end.error) == (None, None)
        stored = await store.read("s")
        assert any(isinstance(event.data, ev.compaction.End) for event in stored.events)
        assert (await handle.agent.ask(user_message("on"))).text == "more"
        assert "They asked for work." in texts(model.asked[-1])
        # Nothing is left that is worth it.
        seq = house.session(handle).next_seq
        assert await engine(house).compact_now(handle.agent) is None
        assert house.session(handle).next_seq == seq


@pytest.mark.holds("CO11")
async def test_a_busy_agent_and_an_empty_session_are_not_shortened() -> None:
    async def stalls(_request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk]:
        yield records.BlockStartChunk(index=0, block_type="text")
        await trio.sleep_forever()

    async with running(talker(stalls)) as house:
        handle = await house.agent(options=ROUTE)
        assert await engine(house).compact_now(handle.agent) is None
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        with pytest.raises(CompactionFailed) as caught:
            await engine(house).compact_now(handle.agent)
        assert caught.value.kind == "busy"
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()


@pytest.mark.holds("CO11")
async def test_a_range_is_taken_exactly_or_not_at_all() -> None:
    model = talker(*[reads(3000)] * 3, says("done"), window=100_000)
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        nodes = list(house.session(handle).surface.nodes)
        # Node 0 is the system prompt, 1 the user's, then calls and results in turn.
        for start, stop in ((0, 3), (1, 2), (3, 4), (4, 3), (1, 99)):
            last = nodes[stop] if stop < len(nodes) else 9999
            with pytest.raises(CompactionFailed) as caught:
                await engine(house).compact_region(handle.agent, nodes[start], last)
            assert caught.value.kind == "changed"
        done = await engine(house).compact_region(handle.agent, nodes[2], nodes[5])
        assert done.shadowed == tuple(nodes[2:6])
        after = list(house.session(handle).surface.nodes)
        assert after == [*nodes[:2], done.summary_seq, *nodes[6:]]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("CO7")
async def test_an_open_compaction_locks_and_a_resumed_session_is_free_of_it() -> None:
    store = MemoryStore()
    model = talker(*[reads(3000)] * 3, says("done"), window=100_000)
    async with running(model, store=store) as house:
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        house.session(handle).append(
            ev.compaction.Start(compaction_id="left-open", turn=None, trigger="manual")
        )
        with pytest.raises(CompactionFailed, match="left-open") as caught:
            await engine(house).compact_now(handle.agent)
        assert caught.value.kind == "busy"
        await handle.aclose()
    async with running(model, store=store) as house:
        again = await house.agents.resume("s", options=ROUTE)
        assert await engine(house).compact_now(again.agent) is not None


@pytest.mark.holds("CO7")
@pytest.mark.parametrize("inside", [True, False])
async def test_what_arrives_while_a_summary_is_written(*, inside: bool) -> None:
    async def late(request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk]:
        session = house.session(handle)
        nodes = session.surface.nodes
        target = nodes[3] if inside else nodes[-1]
        message = user_message("changed meanwhile")
        session.append(
            ev.user.Message(message=message),
            surface=records.Replace(start_seq=target, end_seq=target),
            sources=(target,),
        )
        for chunk in chunks_of(SUMMARY):
            yield chunk

    model = talker(*[reads(3000)] * 3, says("done"), window=100_000, summaries=(late,))
    async with running(model) as house:
        handle = await house.agent(options=ROUTE)
        await handle.agent.ask(user_message("go"))
        if inside:
            with pytest.raises(CompactionFailed) as caught:
                await engine(house).compact_now(handle.agent)
            assert caught.value.kind == "changed"
        else:
            done = await engine(house).compact_now(handle.agent)
            assert done is not None
            said = [b for m in house.session(handle).derive_messages() for b in m.content]
            assert records.TextBlock(text="changed meanwhile") in said
