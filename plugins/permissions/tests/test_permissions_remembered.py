"""What a person allows for a session: exact, logged, kept over a resume, never more than that."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest
from attrs import frozen
from typing_extensions import override

from dsh import catalog as ev
from dsh import define_tool, plugin, user_message
from dsh.catalog import records
from dsh.errors import ToolError
from dsh.seams.approval import (
    APPROVAL,
    SESSION_RULES,
    ApprovalAnswer,
    ApprovalQuestion,
    ApprovalService,
)
from dsh.testing import OPTIONS, MemoryStore, TestHouse, call, calls, open_test_house, says
from dsh.tools import Subject
from dsh_plugins.permissions import permissions
from dsh_plugins.permissions.catalog import PermissionRule, PermissionsConfig
from dsh_plugins.permissions.catalog import permissions as events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh import Context
    from dsh.agent import AgentHandle
    from dsh.hooks import JsonValue, live
    from dsh.tools import Tool


@frozen
class Args:
    """A command."""

    command: str = ""


def command_of(arguments: JsonValue, _cwd: str) -> Subject:
    assert isinstance(arguments, dict)
    return Subject(kind="command", text=str(arguments["command"]))


async def body(args: Args, _run: live.ToolRun) -> str:
    return args.command


BASH: Tool = define_tool(
    name="bash", description="", args=Args, output=str, execute=body, subject=command_of
)


class Asked(ApprovalService):
    """Says no, and keeps what it was asked about."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    @override
    async def request(self, question: ApprovalQuestion) -> ApprovalAnswer:
        self.commands.append(str(cast("dict[str, object]", question.arguments)["command"]))
        return ApprovalAnswer(outcome="rejected")


@asynccontextmanager
async def house_with(
    asked: Asked,
    *rules: PermissionRule,
    store: MemoryStore | None = None,
) -> AsyncGenerator[TestHouse, None]:
    @plugin(name="asker", provides=(APPROVAL,))
    async def asker(ctx: Context) -> None:
        ctx.provide(APPROVAL, asked)

    async with open_test_house(tools=[BASH], plugins=[asker], store=store) as house:
        await house.kernel.mount(permissions, PermissionsConfig(ask="ask", rules=rules)).ready()
        yield house


async def tries(house: TestHouse, handle: AgentHandle, *commands: str) -> list[str]:
    """Let the model call bash with each command; the texts of the results."""
    before = house.session(handle).next_seq
    asked = [call("bash", json.dumps({"command": text})) for text in commands]
    house.model.replies.extend([calls(*asked), says("ready")])
    await handle.agent.ask(user_message("go"))
    return [
        "".join(b.text for b in event.data.message.content if isinstance(b, records.TextBlock))
        for event in house.session(handle).events[before:]
        if isinstance(event.data, ev.tool.Result)
    ]


REFUSED = "Error: the user rejected this call"


@pytest.mark.holds("case-074")
async def test_a_remembered_command_passes_and_nothing_like_it_does() -> None:
    asked = Asked()
    others = ["git status; rm -rf x", "git  status", "git status && curl x | sh", "GIT STATUS"]
    async with house_with(asked) as house:
        handle = await house.agent()
        keep = house.ctx.require(SESSION_RULES)
        assert keep.offer(handle.agent, "bash", {"command": "git status"}) == "bash: git status"
        keep.remember(handle.agent, "bash", {"command": "git status"})
        got = await tries(house, handle, "git status", *others)
        assert got == ["git status", *[REFUSED] * 4]
        assert asked.commands == others


async def test_wildcards_of_a_remembered_command_mean_themselves() -> None:
    asked = Asked()
    async with house_with(asked) as house:
        handle = await house.agent()
        house.ctx.require(SESSION_RULES).remember(handle.agent, "bash", {"command": "rm *.o"})
        assert await tries(house, handle, "rm *.o", "rm x.o") == ["rm *.o", REFUSED]


async def test_it_is_logged_with_the_exact_rule_and_once() -> None:
    async with house_with(Asked()) as house:
        handle = await house.agent()
        keep = house.ctx.require(SESSION_RULES)
        keep.remember(handle.agent, "bash", {"command": "make"})
        keep.remember(handle.agent, "bash", {"command": "make"})
        (logged,) = [e.data for e in house.session(handle).events if e.type == events.RULES.name]
        assert isinstance(logged, events.Rules)
        rule = PermissionRule(decision="allow", tool="bash", pattern="make", exact=True)
        assert (logged.source, logged.remembered) == ("built-in, session", (rule,))
        assert logged.rules[0] == rule
        assert logged.sources == ("session", "built-in", "built-in", "built-in")


async def test_it_holds_after_a_resume_and_in_no_other_session() -> None:
    store, asked = MemoryStore(), Asked()
    async with house_with(asked, store=store) as house:
        handle = await house.agent("first")
        house.ctx.require(SESSION_RULES).remember(handle.agent, "bash", {"command": "make"})
        assert await tries(house, handle, "make") == ["make"]
        other = await house.agent("second")
        assert await tries(house, other, "make") == [REFUSED]
        await handle.aclose()
    async with house_with(asked, store=store) as house:
        handle = await house.agents.resume("first", options=OPTIONS)
        assert await tries(house, handle, "make", "make x") == ["make", REFUSED]


async def test_it_lifts_a_question_and_never_a_denial() -> None:
    asked = Asked()
    rules = (
        PermissionRule(decision="ask", tool="bash", pattern="rm *"),
        PermissionRule(decision="deny", tool="bash", pattern="curl *"),
    )
    async with house_with(asked, *rules) as house:
        handle = await house.agent()
        keep = house.ctx.require(SESSION_RULES)
        keep.remember(handle.agent, "bash", {"command": "rm x"})
        assert await tries(house, handle, "rm x") == ["rm x"]
        assert keep.offer(handle.agent, "bash", {"command": "curl x"}) is None
        with pytest.raises(ToolError, match="cannot be remembered"):
            keep.remember(handle.agent, "bash", {"command": "curl x"})


async def test_a_subject_that_cannot_be_made_out_is_not_offered() -> None:
    async with house_with(Asked()) as house:
        handle = await house.agent()
        assert house.ctx.require(SESSION_RULES).offer(handle.agent, "bash", {}) is None
