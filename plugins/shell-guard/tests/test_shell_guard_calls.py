"""The strict beginning as a logged rewrite, and the guard against removing everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from dsh import catalog as ev
from dsh.testing import always_pre, call_block, open_tool_room, told
from dsh.tools import define_tool
from dsh_plugins.shell_guard import shell_guard
from dsh_plugins.shell_guard.catalog import ShellGuardConfig
from dsh_plugins.shell_guard.removing import removes_everything

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dsh import Next
    from dsh.hooks.live import ToolRun
    from dsh.testing import ToolRoom


@frozen
class Args:
    """A command, and how long it may take."""

    command: str
    timeout: float | None = None


async def body(args: Args, _run: ToolRun) -> str:
    return f"{args.timeout} {args.command}"


@pytest.fixture
async def room() -> AsyncIterator[ToolRoom]:
    async with open_tool_room() as opened:
        await opened.kernel.mount(shell_guard, ShellGuardConfig(), slot=5).ready()
        ctx = await opened.plugin("author")
        for name in ("bash", "other"):
            tool = define_tool(name=name, description="", args=Args, output=str, execute=body)
            opened.tools.register(ctx, tool)
        yield opened


async def test_a_command_begins_strictly_and_the_rewrite_is_logged(room: ToolRoom) -> None:
    await room.batch(call_block("c", "bash", command="make | tee log", timeout=3))
    (result,) = room.host.results
    assert result.text == "3.0 set -euo pipefail\nmake | tee log"
    assert room.host.rewrites == [
        ("c", "shell-guard", {"command": "set -euo pipefail\nmake | tee log", "timeout": 3})
    ]


async def test_one_that_does_already_is_left_alone_and_so_are_other_tools(room: ToolRoom) -> None:
    await room.batch(
        call_block("a", "bash", command="set -euo pipefail\nls"),
        call_block("b", "other", command="ls"),
    )
    assert room.host.rewrites == []


async def test_what_an_inner_policy_rewrote_is_what_gets_the_line(room: ToolRoom) -> None:
    inner = await room.plugin("inner", slot=9)
    always_pre(inner, ev.tools.Ask(reason="r", arguments={"command": "safe"}))
    outer = await room.plugin("outer", slot=1)
    seen: list[ev.tools.PreExecuteDecision] = []

    @outer.on(ev.tools.PRE_EXECUTE)
    async def look(
        _event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        seen.append(await call_next())
        return ev.tools.Deny(reason="enough")

    await room.run("bash", {"command": "rm x"})
    assert seen == [ev.tools.Ask(reason="r", arguments={"command": "set -euo pipefail\nsafe"})]


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /", "rm -fr /", "rm -r -f /", "rm --recursive --force /", "rm -rf -- /",
        "rm -rf /*", "rm -rf //", "rm -rf /.", "rm -rf /tmp/..", "rm -Rf ~", "rm -rf ~/",
        "rm -rf $HOME", 'rm -rf "$HOME"/*', "rm -rf ${HOME}", "rm -rf '/'", "rm -rf \\/",
        "sudo rm -rf /", "sudo -n rm -rf /", "cd x && rm -rf /", "true; rm -rf /", "x | rm -rf /",
        "/bin/rm -rf /", "FOO=1 rm -rf /", "env A=b rm -rf /", "if true; then rm -rf /; fi",
        "(rm -rf /)", "echo $(rm -rf /)", "rm -rf build /", "rm -rf ..", "rm -rf ../..",
        "rm -rf ../*", "rm \\\n -rf /", "ls\nrm -rf /", "command rm -rf /", "rm / -rf",
    ],
)  # fmt: skip
def test_plain_spellings_of_removing_everything_are_recognised(command: str) -> None:
    assert removes_everything(command) is not None


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build", "rm -rf ./*", "rm -rf /tmp/x", "rm -f /", "rm /", "echo rm -rf /",
        "echo 'rm -rf /'", "git rm -r --cached .", "rm -rf ../sibling", "ls /", "# rm -rf /",
        "rm -rf ~/old", "grep -rf / x", "",
    ],
)  # fmt: skip
def test_other_commands_are_not(command: str) -> None:
    assert removes_everything(command) is None


async def test_the_guard_sees_the_final_command_and_is_final(room: ToolRoom) -> None:
    outer = await room.plugin("outer", slot=1)
    always_pre(outer, ev.tools.Allow(arguments={"command": "rm -rf /"}), prepend=True)
    finished = await room.run("bash", {"command": "ls"})
    assert told(finished).text == (
        "Error: denied: this would remove /; name the files or folders inside the workspace "
        "that are meant"
    )
    assert finished.decided_by == "shell-guard"
    assert (
        told(await room.run("other", {"command": "ls"})).text.startswith("Error: invalid") is False
    )
