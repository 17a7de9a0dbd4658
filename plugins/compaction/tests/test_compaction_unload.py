"""Unloading the plugin in the middle of a summary: cut short, closed, nothing half done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh import user_message
from dsh.catalog import records
from dsh.llm import ScriptEntry
from dsh.seams.compaction import CompactionFailed
from dsh.testing import broken_laws, says, stalls
from dsh.testing.long_talks import reads, talker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trio.testing import MockClock

    from dsh.hooks import live
    from dsh.testing.long_talks import OpenTalks

GONE = "cancelled: the plugin compaction was unloaded; the conversation is as it was"
TOO_LONG = ScriptEntry(
    error=records.LlmFailure(message="prompt is too long", code="CONTEXT_WINDOW_EXCEEDED")
)


@pytest.mark.holds("CO13")
@pytest.mark.parametrize("occasion", ["pressure", "overflow"])
async def test_unloading_cuts_a_summary_short_and_the_turn_goes_on_without_it(
    open_talks: OpenTalks, occasion: str
) -> None:
    if occasion == "pressure":
        model = talker(*[reads()] * 8, says("done"), summaries=(stalls(),))
    else:
        model = talker(*[reads()] * 3, TOO_LONG, window=None, summaries=(stalls(),))
    async with open_talks(model) as talks:
        handle = await talks.agent()
        handle.agent.followup(user_message("go"))
        while not model.summarised:
            await wait_all_tasks_blocked()
        await talks.row.dispose()
        # Whoever unloaded it may rely on that: nothing of it is open any more.
        (end,) = talks.house.logged(handle, ev.compaction.End)
        assert end.error == GONE
        assert len(talks.house.logged(handle, ev.compaction.Start)) == 1
        await handle.agent.when_idle()
        assert talks.house.session(handle).surface.generation == 0
        assert len(model.summarised) == 1
        reason = talks.house.reason(handle)
        if occasion == "pressure":
            assert reason == records.CompletedTurnEnd()
        else:
            assert isinstance(reason, records.ErrorTurnEnd)
            assert reason.error.code == "CONTEXT_WINDOW_EXCEEDED"
        assert broken_laws(talks.house.session(handle)) == []


@pytest.mark.holds("CO13")
async def test_unloading_ends_what_was_asked_for_and_what_is_asked_for_later(
    open_talks: OpenTalks, autojump_clock: MockClock
) -> None:
    async def slow_to_close(_request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk]:
        yield records.BlockStartChunk(index=0, block_type="text")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    model = talker(*[reads(600)] * 3, says("done"), window=100_000, summaries=(slow_to_close,))
    failures: list[CompactionFailed] = []
    async with open_talks(model) as talks, trio.open_nursery() as nursery:
        handle = await talks.agent()
        engine = talks.engine
        await handle.agent.ask(user_message("go"))

        async def asks() -> None:
            with pytest.raises(CompactionFailed) as caught:
                await engine.compact_now(handle.agent)
            failures.append(caught.value)

        nursery.start_soon(asks)
        while not model.summarised:
            await wait_all_tasks_blocked()
        await talks.row.dispose()
        (end,) = talks.house.logged(handle, ev.compaction.End)
        assert end.error == GONE
        await asks()
        assert [failed.kind for failed in failures] == ["cancelled", "cancelled"]
        assert len(talks.house.logged(handle, ev.compaction.Start)) == 1
        assert len(model.summarised) == 1
        # The agent is free, and its conversation as it was.
        model.replies.append(says("again"))
        assert (await handle.agent.ask(user_message("on"))).text == "again"
