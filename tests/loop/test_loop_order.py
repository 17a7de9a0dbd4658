"""The order in which a turn happens, as a golden transcript of events, hooks and notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.hooks import AnyDurable
from dsh.testing import TestHouse, call, calls, open_test_house, says
from dsh.testing.house import OPTIONS
from dsh.tools import Tool, define_tool

if TYPE_CHECKING:
    from dsh.hooks import Next, live
    from dsh.testing.model import Reply


@frozen
class NoArgs:
    pass


def noting_tool(notes: list[str]) -> Tool:
    async def execute(args: NoArgs, run: live.ToolRun) -> str:
        notes.append("[body]")
        return "done"

    return define_tool(name="note", description="Note.", args=NoArgs, output=str, execute=execute)


def transcribe(house: TestHouse) -> list[str]:
    """Log events by name, notices in brackets, waterfalls in brackets as they begin."""
    notes: list[str] = []
    on = house.ctx.on
    on(ev.session.EVENT)(lambda e: notes.append(describe(e.event.data)))
    on(ev.agent.INBOX_INSERTED)(lambda e: notes.append("(inserted)"))
    on(ev.agent.INBOX_CLAIMED)(lambda e: notes.append("(claimed)"))
    on(ev.agent.STATUS)(lambda e: notes.append(f"({e.status})"))
    on(ev.agent.ASSISTANT_STREAM)(lambda e: notes.append(f"({e.frame.type})"))
    on(ev.tools.RESULT)(lambda e: notes.append("(tools/result)"))

    async def assemble(
        payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
    ) -> live.PromptAssembly:
        notes.append("[assemble]")
        return await call_next()

    async def pre_step(
        payload: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        notes.append("[pre-step]")
        return await call_next()

    async def request(
        payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
    ) -> records.LlmCallConfig:
        notes.append("[request]")
        return await call_next()

    async def stopping(payload: ev.agent.TurnStopping) -> None:
        notes.append("[turn-stopping]")

    async def pre(
        payload: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        notes.append("[pre-execute]")
        return await call_next()

    async def post(
        payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        notes.append("[post-execute]")
        return await call_next()

    on(ev.system_prompt.ASSEMBLE)(assemble)
    on(ev.agent.PRE_STEP)(pre_step)
    on(ev.agent.REQUEST)(request)
    on(ev.agent.TURN_STOPPING)(stopping)
    on(ev.tools.PRE_EXECUTE)(pre)
    on(ev.tools.POST_EXECUTE)(post)
    return notes


def describe(data: object) -> str:
    match data:
        case ev.agent.InboxSpliced(inserted=inserted):
            return "splice+" if inserted else "splice-"
        case ev.turn.End(reason=reason):
            return f"turn/end {reason.kind}"
        case AnyDurable():
            return data.TOKEN.name
        case _:
            return repr(data)


PLAIN_TURN = """
splice+ (inserted) (running) turn/start splice- (claimed)
[assemble] [pre-step] step/start [request]
system/message user/message request/header request/context
(start) assistant/chunk (chunk) assistant/chunk (chunk) assistant/chunk (chunk)
assistant/chunk (chunk) assistant/message (end)
step/end [turn-stopping] turn/end completed (idle)
"""

TOOL_TURN = """
splice+ (inserted) (running) turn/start splice- (claimed)
[assemble] [pre-step] step/start [request]
system/message user/message request/header request/context
(start) assistant/chunk (chunk) assistant/chunk (chunk) assistant/chunk (chunk)
assistant/chunk (chunk) assistant/chunk (chunk) assistant/message (end)
tool/call [pre-execute] [body] [post-execute] (tools/result) tool/result
step/end
[assemble] [pre-step] step/start [request]
(start) assistant/chunk (chunk) assistant/chunk (chunk) assistant/chunk (chunk)
assistant/chunk (chunk) assistant/message (end)
step/end [turn-stopping] turn/end completed (idle)
"""


@pytest.mark.holds("C26", "NEW-8", "LP06", "LP31", "IN21")
@pytest.mark.parametrize(
    ("replies", "golden"),
    [
        ([says("yes")], PLAIN_TURN),
        ([calls(call("note")), says("yes")], TOOL_TURN),
    ],
    ids=["plain", "tool"],
)
async def test_the_order_of_a_turn(replies: list[Reply], golden: str) -> None:
    notes: list[str] = []
    async with open_test_house() as house:
        house.model.replies.extend(replies)
        handle = await house.agent()
        notes = transcribe(house)
        house.tools.register(house.ctx, noting_tool(notes))
        handle.agent.followup(user_message("go"))
        await handle.agent.when_idle()
    until = notes.index("(idle)") + 1
    assert " ".join(notes[:until]).split() == golden.split()


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
