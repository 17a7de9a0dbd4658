"""The plain conversation, and what `dsh run` never imports."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.command_line import refused
from dsh.testing.model_server import open_model_server
from dsh.testing.terminal import at_terminal

if TYPE_CHECKING:
    from dsh.testing.command_line import CommandLine

DONE = ScriptEntry(text="Done.\nAnd said.")


def bash(command: str) -> ScriptEntry:
    call = ScriptedCall(name="bash", arguments=json.dumps({"command": command}))
    return ScriptEntry(text="I will look.", tools=(call,))


@pytest.mark.holds("CL30")
async def test_plain_lines_in_a_pipe_hold_no_escape_and_no_return(cli: CommandLine) -> None:
    async with open_model_server([bash("echo one"), DONE], strict=True) as server:
        here = cli.talking_to(server)
        ran = await here.run("chat", "--session", "s1", "--allow", "bash", stdin=b"go\n/tools\n")
    assert ran.code == 0
    for sign in ("\x1b", "\r"):
        assert sign not in ran.out + ran.err
    lines = ran.out.splitlines()
    for line in ("> go", "I will look.", "Done.", "And said."):
        assert lines.count(line) == 1, ran.out
    assert "saved s1" in ran.err


@pytest.mark.holds("CL30")
async def test_nobody_in_the_pipe_approves(cli: CommandLine) -> None:
    async with open_model_server([bash("touch made"), DONE], strict=True) as server:
        ran = await cli.talking_to(server).run("chat", "--session", "s1", stdin=b"go\ny\n")
    assert ran.code == 0
    assert not (cli.workspace / "made").exists()
    assert "then Enter" in ran.out


@pytest.mark.holds("CL30")
@pytest.mark.parametrize("why", [{"TERM": "dumb"}, {"TERM": "xterm", "ACCESSIBLE": "1"}])
async def test_a_dumb_terminal_gets_whole_lines(cli: CommandLine, why: dict[str, str]) -> None:
    async with open_model_server([DONE], strict=True) as server:
        here = cli.talking_to(server).having(**why)
        async with at_terminal(here, "chat", "--session", "s1", "--color", "never") as terminal:
            before = terminal.settings()
            await terminal.until("/help")
            terminal.types("go\n")
            await terminal.until("turn 1 done")
            terminal.types("\x04")
            assert await terminal.ended() == 0
            assert terminal.settings() == before
    assert "\x1b" not in terminal.shown
    assert "\r" not in terminal.shown.replace("\r\n", "\n")


@pytest.mark.holds("CL30")
async def test_the_prompt_of_plain_lines_comes_when_everything_was_said(cli: CommandLine) -> None:
    async with open_model_server([bash("echo one"), DONE], strict=True) as server:
        here = cli.talking_to(server).having(TERM="dumb")
        async with at_terminal(here, "chat", "--session", "s1") as terminal:
            await terminal.until("/help\r\n> ")
            terminal.types("go\n")
            await terminal.until("approve> ")
            terminal.types("\x03")
            await terminal.until("-- turn 1 stopped by you")
            await terminal.until("--\r\n> ")
            terminal.types("on\n")
            await terminal.until("And said.")
            await terminal.until("--\r\n> ")
            terminal.types("/context\n")
            await terminal.until("next request")
            await terminal.until("\r\n> ")
            terminal.types("\x04")
            assert await terminal.ended() == 0
    lines = terminal.shown.replace("^C", "").splitlines()
    assert "approve> " in lines  # its line was ended
    assert "> " in lines
    assert not any(line.startswith("> saved") for line in lines)


@pytest.mark.holds("CL31")
async def test_what_refuses_a_conversation_is_said_before_anything_is_drawn(
    cli: CommandLine,
) -> None:
    refused(await cli.run("chat"), "DEEPSEEK_API_KEY", code=2)
    refused(await cli.run("chat", "--resume", "nope"), "'nope'", code=2)
    refused(await cli.run("chat", "--provider", "deepsek"), "deepsek", code=2)


@pytest.mark.holds("CL32")
async def test_a_run_never_imports_the_editor(cli: CommandLine) -> None:
    program = (
        "import sys, dsh.cli; code = dsh.cli.main(['run', '--profile', 'demo']);"
        "print('prompt_toolkit' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    run = partial(trio.run_process, [sys.executable, "-c", program], capture_stderr=True)
    ran = await run(cwd=cli.workspace, env=cli.environment(), capture_stdout=True)
    assert ran.stderr.decode().splitlines()[-1] == "False"
