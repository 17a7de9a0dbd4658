"""Asking a person: every outcome, every broken answerer, and cancellation meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.hooks.live import ToolFailed
from dsh.seams.approval import APPROVAL, ApprovalAnswer, ApprovalQuestion, ApprovalService
from dsh.testing import (
    always_pre,
    echo,
    echo_tool,
    told,
)
from dsh.tools import asked_about

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh import Context
    from dsh.hooks.live import ToolExecution
    from dsh.testing import ToolRoom


class Answers(ApprovalService):
    """Answers every question alike."""

    def __init__(self, reply: Callable[[], Awaitable[ApprovalAnswer]]) -> None:
        self.questions: list[ApprovalQuestion] = []
        self._reply = reply

    @override
    async def request(self, question: ApprovalQuestion) -> ApprovalAnswer:
        self.questions.append(question)
        return await self._reply()


async def with_answers(
    room: ToolRoom, reply: Callable[[], Awaitable[ApprovalAnswer]]
) -> tuple[Context, Answers]:
    from dsh import plugin

    service = Answers(reply)
    found: list[Context] = []

    @plugin(name="asker", provides=(APPROVAL,))
    async def asker(ctx: Context) -> None:
        ctx.provide(APPROVAL, service)
        found.append(ctx)

    await room.kernel.mount(asker).ready()
    room.tools.register(found[0], echo_tool(echo))
    always_pre(found[0], ev.tools.Ask(reason="it may hurt"))
    return found[0], service


@pytest.mark.holds("XT31", "XT32", "F13")
@pytest.mark.parametrize("reason", ["it may hurt", None])
async def test_ask_without_a_service_denies_with_the_remedy(
    room: ToolRoom, reason: str | None
) -> None:
    ctx = await room.plugin("strict")
    room.tools.register(ctx, echo_tool(echo))
    always_pre(ctx, ev.tools.Ask(reason=reason))
    finished = await room.run("echo")
    why = " (it may hurt)" if reason else ""
    assert told(finished).text == (
        f"Error: approval is needed{why}, and no approval plugin is mounted; "
        "allow it with --allow echo, or change the permission rules"
    )
    assert finished.decided_by == "strict"


@pytest.mark.holds("XT33")
async def test_a_grant_dispatches_once_and_the_question_has_every_field(room: ToolRoom) -> None:
    async def yes() -> ApprovalAnswer:
        return ApprovalAnswer(outcome="allowed-once")

    ctx, service = await with_answers(room, yes)
    asked: list[bool] = []

    def guard(call: ToolExecution) -> None:
        asked.append(asked_about(call))

    room.tools.guard(ctx, guard)
    assert told(await room.run("echo", {"text": "rm"})).text == "rm"
    (question,) = service.questions
    assert question.agent is room.agent
    assert (question.tool_name, question.call_id, question.reason) == ("echo", "c1", "it may hurt")
    assert question.arguments == {"text": "rm"}
    assert question.signal is room.signal
    assert asked == [True, True]  # before the question, and again after it
    await room.run("echo")
    assert len(service.questions) == 2  # a grant covers one call


async def test_a_rewrite_that_is_asked_about_is_what_the_person_sees_and_what_runs(
    room: ToolRoom,
) -> None:
    async def yes() -> ApprovalAnswer:
        return ApprovalAnswer(outcome="allowed-once")

    _, service = await with_answers(room, yes)
    outer = await room.plugin("outer", slot=-1)
    always_pre(outer, ev.tools.Ask(reason="r", arguments={"text": "rewritten"}))
    assert told(await room.run("echo", {"text": "model"})).text == "rewritten"
    assert service.questions[0].arguments == {"text": "rewritten"}


@pytest.mark.holds("XT34", "XT35", "XT37", "case-074")
@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("rejected", "the user rejected this call"),
        ("cancelled", "withdrawn before anyone answered"),
        ("unavailable", "nobody is there to answer"),
    ],
)
async def test_each_outcome_has_its_own_reason(
    room: ToolRoom, outcome: ev.records.ApprovalOutcome, words: str
) -> None:
    async def reply() -> ApprovalAnswer:
        return ApprovalAnswer(outcome=outcome, plugin="terminal")

    await with_answers(room, reply)
    finished = await room.run("echo")
    assert words in told(finished).text
    assert isinstance(finished.result, ToolFailed)
    assert finished.decided_by == "terminal"


@pytest.mark.holds("XT38")
async def test_a_call_without_an_agent_is_denied_without_asking(room: ToolRoom) -> None:
    async def yes() -> ApprovalAnswer:
        return ApprovalAnswer(outcome="allowed-once")

    _, service = await with_answers(room, yes)
    assert "a call without an agent" in told(await room.run("echo", agent=False)).text
    assert service.questions == []


@pytest.mark.parametrize("junk", ["yes", None, ApprovalAnswer(outcome="sure")])  # type: ignore[arg-type]
async def test_junk_for_an_answer_is_a_refusal(room: ToolRoom, junk: object) -> None:
    async def reply() -> ApprovalAnswer:
        return junk  # type: ignore[return-value]

    await with_answers(room, reply)
    assert isinstance((await room.run("echo")).result, ToolFailed)


async def test_an_answerer_that_raises_is_a_refusal(room: ToolRoom) -> None:
    async def reply() -> ApprovalAnswer:
        raise OSError("the terminal is gone")

    await with_answers(room, reply)
    assert "could not be asked for: the terminal is gone" in told(await room.run("echo")).text


@pytest.mark.holds("case-072")
@pytest.mark.parametrize("late", [False, True])
async def test_a_cancellation_while_asking_runs_nothing(room: ToolRoom, late: bool) -> None:  # noqa: FBT001
    async def reply() -> ApprovalAnswer:
        room.signal.cancel()
        if not late:
            await trio.sleep_forever()
        return ApprovalAnswer(outcome="allowed-once")  # in the same tick as the cancel

    await with_answers(room, reply)
    assert told(await room.run("echo")).code == "ABORTED_BEFORE_DISPATCH"


@pytest.mark.holds("F11")
async def test_a_guard_may_refuse_after_the_wait(room: ToolRoom) -> None:
    refuse = False

    async def reply() -> ApprovalAnswer:
        nonlocal refuse
        refuse = True
        return ApprovalAnswer(outcome="allowed-once")

    ctx, _ = await with_answers(room, reply)
    room.tools.guard(ctx, lambda _call: "too late" if refuse else None)
    assert told(await room.run("echo")).text == "Error: too late"


async def test_a_guards_denial_is_final_and_nobody_is_asked(room: ToolRoom) -> None:
    async def yes() -> ApprovalAnswer:
        return ApprovalAnswer(outcome="allowed-once")

    ctx, service = await with_answers(room, yes)
    room.tools.guard(ctx, lambda _call: "never")
    assert told(await room.run("echo")).text == "Error: never"
    assert service.questions == []
