"""What of the order of a turn a transcript does not show: the log, the frames, the prompt."""

from __future__ import annotations

import pytest

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.testing import open_test_house, says
from dsh.testing.house import OPTIONS


@pytest.mark.holds("C26")
async def test_the_system_node_stands_before_the_first_user_message() -> None:
    async with open_test_house(replies=[says("yes")]) as house:
        house.prompt.section(house.ctx, "persona", "You help.")
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        roles = [message.role for message in house.session(handle).derive_messages()]
        assert roles == ["system", "user", "assistant"]
        assert [message.role for message in house.model.requests[0].messages] == ["system", "user"]


@pytest.mark.holds("C26", "B8", "CA02")
async def test_a_waking_send_has_opened_and_claimed_when_it_returns() -> None:
    async with open_test_house(replies=[says("yes")]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        assert handle.agent.status == "running"
        assert handle.agent.turn == 1
        assert handle.agent.pending("next-turn") == ()
        names = house.names(handle)
        assert names == [
            ev.agent.INBOX_SPLICED.name,
            ev.turn.START.name,
            ev.agent.INBOX_SPLICED.name,
        ]
        assert house.model.requests == []
        handle.agent.cancel(records.UserCause(), keep_inbox=True)
        await handle.agent.when_idle()
        session = house.session(handle)
        end = session.events[-1].data
        assert end == ev.turn.End(turn=1, reason=records.AbortedTurnEnd(reason=records.UserCause()))
        assert ev.step.START.name not in house.names(handle)
        assert handle.agent.pending("next-turn") == ()
        splices = [e.data for e in session.events if isinstance(e.data, ev.agent.InboxSpliced)]
        assert [splice.outcome for splice in splices] == [None, None]


@pytest.mark.holds("CR20", "C25")
async def test_an_event_is_in_the_log_before_its_listeners_run() -> None:
    async with open_test_house(replies=[says("yes")]) as house:
        handle = await house.agent()
        seen: list[bool] = []
        house.ctx.on(ev.step.START)(
            lambda event: seen.append(
                house.session(handle).events[event.seq].data is event.data
                and handle.agent.turn == event.data.turn
            )
        )
        await handle.agent.ask(user_message("go"))
        assert seen == [True]


@pytest.mark.holds("E1", "NEW-13")
async def test_live_frames_follow_the_log_and_are_numbered_over_attempts() -> None:
    async with open_test_house(replies=[says("one two"), says("three")]) as house:
        handle = await house.agent()
        frames: list[records.AssistantStreamFrame] = []
        logged: list[int] = []

        def watch(notice: ev.agent.AssistantStream) -> None:
            frames.append(notice.frame)
            session = house.session(handle)
            if isinstance(notice.frame, records.ChunkFrame):
                last = session.events[-1].data
                assert isinstance(last, ev.assistant.Chunk)
                assert last.chunk is notice.frame.chunk
            if isinstance(notice.frame, records.EndFrame):
                assert isinstance(notice.frame.outcome, records.CommittedOutcome)
                anchor = session.events[notice.frame.outcome.seq].data
                assert isinstance(anchor, ev.assistant.Message)
                logged.append(notice.frame.index)

        house.ctx.on(ev.agent.ASSISTANT_STREAM)(watch)
        await handle.agent.ask(user_message("go"))
        await handle.agent.ask(user_message("on"))
        assert [frame.revision for frame in frames] == list(range(1, len(frames) + 1))
        kinds = [frame.type for frame in frames]
        assert kinds == ["start", *["chunk"] * 5, "end", "start", *["chunk"] * 4, "end"]
        assert logged == [5, 4]
        assert len({frame.attempt_id for frame in frames}) == 2
        indexes = [frame.index for frame in frames[:6] if isinstance(frame, records.ChunkFrame)]
        assert indexes == [0, 1, 2, 3, 4]


@pytest.mark.holds("LP08", "LP09", "A37")
async def test_sections_and_the_loops_variables_make_the_prompt() -> None:
    async with open_test_house(replies=[says("yes")]) as house:
        house.prompt.section(house.ctx, "tools", "Use tools.", order=100)
        house.prompt.section(house.ctx, "identity", "I am {{model}} of {{provider}}.", order=-100)
        house.prompt.section(house.ctx, "persona", "You work in {{cwd}}.")
        handle = await house.agent(cwd="/work/space")
        await handle.agent.ask(user_message("go"))
        system = house.model.requests[0].messages[0]
        assert isinstance(system, records.SystemMessage)
        assert system.content == (
            records.TextBlock(
                text="I am model-1 of test.\n\nYou work in /work/space.\n\nUse tools."
            ),
        )
        assert house.session(handle).header.cwd == "/work/space"
        assert OPTIONS.model == "model-1"
