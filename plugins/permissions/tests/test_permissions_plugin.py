"""The two registrations of `permissions`: a listener that asks or denies, and a guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs
import pytest
from typing_extensions import override

from dsh import catalog as ev
from dsh import plugin
from dsh.hooks.live import ToolSuccess
from dsh.kernel import Context, core_of
from dsh.seams.approval import APPROVAL, ApprovalAnswer, ApprovalQuestion, ApprovalService
from dsh.testing import Committed, ToolRoom, open_tool_room
from dsh.tools import Subject, define_tool
from dsh_plugins.permissions import permissions
from dsh_plugins.permissions.catalog import (
    PermissionAsk,
    PermissionDecision,
    PermissionRule,
    PermissionsConfig,
)
from dsh_plugins.permissions.catalog import permissions as events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dsh import Next
    from dsh.hooks import JsonValue, LogOnly
    from dsh.hooks.live import Agent, ToolRun


@attrs.frozen
class Args:
    """A command."""

    command: str = ""


class Answers(ApprovalService):
    """Says yes, and keeps the questions."""

    def __init__(self) -> None:
        self.questions: list[ApprovalQuestion] = []

    @override
    async def request(self, question: ApprovalQuestion) -> ApprovalAnswer:
        self.questions.append(question)
        return ApprovalAnswer(outcome="allowed-once")


@attrs.define
class House:
    """A tool room with `permissions`, a tool `bash`, another plugin and an answerer."""

    room: ToolRoom
    other: Context
    answers: Answers
    ran: list[str]

    async def run(self, command: str) -> Committed:
        finished = await self.room.run("bash", {"command": command})
        return Committed("c1", 0, finished.result, finished.decided_by)

    def inner(self, decision: ev.tools.PreExecuteDecision, *, prepend: bool = False) -> None:
        @self.other.on(ev.tools.PRE_EXECUTE, prepend=prepend)
        async def pre(
            _event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
        ) -> ev.tools.PreExecuteDecision:
            await call_next()
            return decision


def rule(decision: PermissionDecision, pattern: str | None = None) -> PermissionRule:
    return PermissionRule(decision=decision, tool="bash", pattern=pattern)


def command_of(arguments: JsonValue, _cwd: str) -> Subject:
    assert isinstance(arguments, dict)
    return Subject(kind="command", text=str(arguments["command"]))


async def build(room: ToolRoom, config: PermissionsConfig) -> House:
    ran: list[str] = []
    answers = Answers()

    async def body(args: Args, _run: ToolRun) -> str:
        ran.append(args.command)
        return args.command

    @plugin(name="asker", provides=(APPROVAL,))
    async def asker(ctx: Context) -> None:
        ctx.provide(APPROVAL, answers)

    await room.kernel.mount(asker).ready()
    other = await room.plugin("other")
    tool = define_tool(
        name="bash", description="", args=Args, output=str, execute=body, subject=command_of
    )
    room.tools.register(other, tool)
    await room.kernel.mount(permissions, config, slot=2).ready()
    return House(room, other, answers, ran)


@pytest.fixture
async def room() -> AsyncIterator[ToolRoom]:
    async with open_tool_room() as opened:
        yield opened


async def test_a_call_without_a_rule_is_asked_about(room: ToolRoom) -> None:
    house = await build(room, PermissionsConfig(ask="ask"))
    assert isinstance((await house.run("ls")).result, ToolSuccess)
    assert [question.reason for question in house.answers.questions] == ["no rule for bash"]


async def test_headless_denies_it_with_the_remedy_and_asks_nobody(room: ToolRoom) -> None:
    house = await build(room, PermissionsConfig(ask="deny"))
    result = await house.run("ls")
    assert result.text == (
        "Error: denied: no rule for bash, and nobody to ask; allow it with --allow bash"
    )
    assert result.decided_by == "permissions"
    assert house.answers.questions == []
    assert house.ran == []


async def test_an_allowed_call_runs_unasked(room: ToolRoom) -> None:
    house = await build(room, PermissionsConfig(ask="deny", rules=(rule("allow", "ls *"),)))
    assert (await house.run("ls -l")).text == "ls -l"
    assert (await house.run("ls -l; rm x")).decided_by == "permissions"
    assert house.ran == ["ls -l"]


async def test_a_denied_call_is_denied_whatever_else_allows_it(room: ToolRoom) -> None:
    rules = (rule("allow"), rule("deny", "*rm*"))
    house = await build(room, PermissionsConfig(ask="ask", rules=rules))
    house.inner(ev.tools.Allow())
    result = await house.run("rm x")
    assert result.text == "Error: denied: the permission rule 'deny bash:*rm*'"
    assert house.ran == []


async def test_the_stricter_of_both_answers_wins(room: ToolRoom) -> None:
    house = await build(room, PermissionsConfig(ask="ask", rules=(rule("allow"),)))
    house.inner(ev.tools.Ask(reason="I am not sure"))
    await house.run("ls")
    assert [question.reason for question in house.answers.questions] == ["I am not sure"]


async def test_yolo_does_not_pass_another_plugins_guard_or_denial(room: ToolRoom) -> None:
    yolo = PermissionRule(decision="allow", tool="*")
    house = await build(room, PermissionsConfig(ask="deny", rules=(yolo,)))
    assert (await house.run("ls")).text == "ls"
    held = room.tools.guard(house.other, lambda _call: "plan mode")
    assert (await house.run("ls")).text == "Error: plan mode"
    held.dispose()
    house.inner(ev.tools.Deny(reason="no"))
    assert (await house.run("ls")).decided_by == "other"


async def test_the_rewritten_arguments_are_judged(room: ToolRoom) -> None:
    house = await build(room, PermissionsConfig(ask="deny", rules=(rule("allow", "ls"),)))
    house.inner(ev.tools.Allow(arguments={"command": "rm -rf x"}))
    assert (await house.run("ls")).decided_by == "permissions"
    assert house.ran == []


async def test_a_rewrite_is_kept_when_it_is_asked_about(room: ToolRoom) -> None:
    house = await build(room, PermissionsConfig(ask="ask"))
    house.inner(ev.tools.Allow(arguments={"command": "set -e; ls"}))
    assert (await house.run("ls")).text == "set -e; ls"
    assert house.answers.questions[0].arguments == {"command": "set -e; ls"}


@pytest.mark.parametrize("ask", ["ask", "deny"])
async def test_a_later_prepended_rewrite_meets_the_guard(
    room: ToolRoom, ask: PermissionAsk
) -> None:
    rules = (rule("allow", "ls"), rule("deny", "rm*"))
    house = await build(room, PermissionsConfig(ask=ask, rules=rules))
    house.inner(ev.tools.Allow(arguments={"command": "rm x"}), prepend=True)
    assert (await house.run("ls")).text == "Error: denied: the permission rule 'deny bash:rm*'"


@pytest.mark.parametrize("ask", ["ask", "deny"])
async def test_a_question_that_another_plugin_waves_through_is_refused(
    room: ToolRoom, ask: PermissionAsk
) -> None:
    house = await build(room, PermissionsConfig(ask=ask))
    house.inner(ev.tools.Allow(), prepend=True)
    result = await house.run("ls")
    assert result.text.startswith("Error: denied: no rule for bash")
    assert result.decided_by == "permissions"
    assert house.ran == []
    assert house.answers.questions == []


async def test_a_subject_that_cannot_be_made_out_is_denied(room: ToolRoom) -> None:
    def broken(_arguments: JsonValue, _cwd: str) -> Subject:
        raise ValueError("no subject")

    house = await build(room, PermissionsConfig(ask="ask", rules=(rule("allow"),)))
    tool = room.tools.get("bash")
    assert tool is not None
    scoped = house.other.scoped(room.scope)
    room.tools.register(scoped, attrs.evolve(tool, subject=broken))
    assert "cannot judge this call: no subject" in (await house.run("ls")).text
    assert house.ran == []


class Log:
    """As much of a session as a log-only append needs."""

    def __init__(self) -> None:
        self.events: list[LogOnly] = []

    def append(self, payload: LogOnly) -> None:
        self.events.append(payload)


async def test_the_rules_in_force_are_logged_before_the_first_request_and_after_a_change(
    room: ToolRoom,
) -> None:
    log = Log()
    agent = cast("Agent", attrs.make_class("A", ["scope", "session"])(room.scope, log))
    core = core_of(room.kernel.root)

    async def step() -> None:
        async def enter() -> ev.agent.PreStepDecision:
            return ev.agent.Enter(messages=())

        payload = ev.agent.PreStep(agent=agent, messages=(), turn=1, step=1, signal=room.signal)
        await core.waterfall(ev.agent.PRE_STEP)(payload, enter)

    fiber = room.kernel.mount(permissions, PermissionsConfig(ask="deny", rules=(rule("allow"),)))
    await fiber.ready()
    await step()
    await step()
    (logged,) = log.events
    assert isinstance(logged, events.Rules)
    assert logged.ask == "deny"
    assert [(one.decision, one.tool) for one in logged.rules] == [
        ("allow", "bash"), ("allow", "read_file"), ("allow", "glob"), ("allow", "grep"),
    ]  # fmt: skip
    await fiber.dispose()
    await room.kernel.mount(permissions, PermissionsConfig(ask="ask"), id="again").ready()
    await step()
    assert len(log.events) == 2
