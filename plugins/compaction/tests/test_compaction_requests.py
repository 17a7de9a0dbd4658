"""Compaction on request: exact, durable, and locked against everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh import user_message
from dsh.catalog import records
from dsh.llm import chunks_of
from dsh.seams.compaction import CompactionFailed
from dsh.testing import MemoryStore, broken_laws, says, stalls
from dsh.testing.long_talks import SUMMARY, reads, talker, texts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.hooks import live
    from dsh.testing.long_talks import OpenTalks


@pytest.mark.holds("CO11")
async def test_on_request_an_idle_conversation_is_shortened_and_it_is_durable(
    open_talks: OpenTalks,
) -> None:
    store = MemoryStore()
    model = talker(*[reads(600)] * 3, says("done"), says("more"), window=100_000)
    async with open_talks(model, store=store) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        done = await talks.engine.compact_now(handle.agent)
        assert done is not None
        assert done.tokens_after < done.tokens_before
        (end,) = talks.house.logged(handle, ev.compaction.End)
        assert (end.turn, end.error) == (None, None)
        stored = await store.read("s")
        assert any(isinstance(event.data, ev.compaction.End) for event in stored.events)
        assert (await handle.agent.ask(user_message("on"))).text == "more"
        assert "They asked for work." in texts(model.asked[-1])
        # Nothing is left that is worth it.
        seq = talks.house.session(handle).next_seq
        assert await talks.engine.compact_now(handle.agent) is None
        assert talks.house.session(handle).next_seq == seq


@pytest.mark.holds("CO11")
@pytest.mark.parametrize("wish", [None, "  ", "Keep every port number."])
async def test_what_a_person_wants_the_summary_to_heed_is_asked_and_logged(
    open_talks: OpenTalks, wish: str | None
) -> None:
    model = talker(*[reads(600)] * 3, says("done"), window=100_000)
    async with open_talks(model) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        assert await talks.engine.compact_now(handle.agent, wish) is not None
        (start,) = talks.house.logged(handle, ev.compaction.Start)
        (asked,) = model.summarised
        (block,) = asked.messages[-1].content
        assert isinstance(block, records.TextBlock)
        if wish is not None and wish.strip():
            assert start.instructions == wish
            assert block.text.endswith(wish)
        else:
            assert start.instructions is None
            assert "heeds" not in block.text


@pytest.mark.holds("CO11")
async def test_a_person_may_cancel_what_was_asked_for(open_talks: OpenTalks) -> None:
    kinds: list[str] = []
    model = talker(*[reads(600)] * 3, says("done"), window=100_000, summaries=(stalls(),))
    async with open_talks(model) as talks, trio.open_nursery() as nursery:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))

        async def asks() -> None:
            with pytest.raises(CompactionFailed) as caught:
                await talks.engine.compact_now(handle.agent)
            kinds.append(caught.value.kind)

        nursery.start_soon(asks)
        await wait_all_tasks_blocked()
        handle.agent.cancel(records.UserCause())
        await wait_all_tasks_blocked()
        assert kinds == ["cancelled"]
        (end,) = talks.house.logged(handle, ev.compaction.End)
        assert end.error == "cancelled"
        assert talks.house.session(handle).surface.generation == 0


@pytest.mark.holds("CO11")
async def test_a_busy_agent_and_an_empty_session_are_not_shortened(open_talks: OpenTalks) -> None:
    async with open_talks(talker(stalls())) as talks:
        handle = await talks.agent()
        assert await talks.engine.compact_now(handle.agent) is None
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        with pytest.raises(CompactionFailed) as caught:
            await talks.engine.compact_now(handle.agent)
        assert caught.value.kind == "busy"
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()


@pytest.mark.holds("CO11")
async def test_a_range_is_taken_exactly_or_not_at_all(open_talks: OpenTalks) -> None:
    model = talker(*[reads(3000)] * 3, says("done"), window=100_000)
    async with open_talks(model) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        nodes = list(talks.house.session(handle).surface.nodes)
        # Node 0 is the system prompt, 1 the user's, then calls and results in turn.
        for start, stop in ((0, 3), (1, 2), (3, 4), (4, 3), (1, 99)):
            last = nodes[stop] if stop < len(nodes) else 9999
            with pytest.raises(CompactionFailed) as caught:
                await talks.engine.compact_region(handle.agent, nodes[start], last)
            assert caught.value.kind == "changed"
        done = await talks.engine.compact_region(handle.agent, nodes[2], nodes[5])
        assert done.shadowed == tuple(nodes[2:6])
        after = list(talks.house.session(handle).surface.nodes)
        assert after == [*nodes[:2], done.summary_seq, *nodes[6:]]
        assert broken_laws(talks.house.session(handle)) == []


@pytest.mark.holds("CO7")
async def test_an_open_compaction_locks_and_a_resumed_session_is_free_of_it(
    open_talks: OpenTalks,
) -> None:
    store = MemoryStore()
    model = talker(*[reads(3000)] * 3, says("done"), window=100_000)
    async with open_talks(model, store=store) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        talks.house.session(handle).append(
            ev.compaction.Start(compaction_id="left-open", turn=None, trigger="manual")
        )
        with pytest.raises(CompactionFailed, match="left-open") as caught:
            await talks.engine.compact_now(handle.agent)
        assert caught.value.kind == "busy"
        await handle.aclose()
    async with open_talks(model, store=store) as talks:
        again = await talks.resume()
        assert await talks.engine.compact_now(again.agent) is not None


@pytest.mark.holds("CO7")
@pytest.mark.parametrize("inside", [True, False])
async def test_what_arrives_while_a_summary_is_written(
    open_talks: OpenTalks, *, inside: bool
) -> None:
    async def late(request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk]:
        session = talks.house.session(handle)
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
    async with open_talks(model) as talks:
        handle = await talks.agent()
        await handle.agent.ask(user_message("go"))
        if inside:
            with pytest.raises(CompactionFailed) as caught:
                await talks.engine.compact_now(handle.agent)
            assert caught.value.kind == "changed"
        else:
            done = await talks.engine.compact_now(handle.agent)
            assert done is not None
            said = [b for m in talks.house.session(handle).derive_messages() for b in m.content]
            assert records.TextBlock(text="changed meanwhile") in said
