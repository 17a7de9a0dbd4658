"""A plugin and the composition are edited while somebody talks, in a real terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import open_model_server
from dsh.testing.sitting import NO_TMUX, sitting

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.command_line import CommandLine

pytestmark = pytest.mark.skipif(NO_TMUX is not None, reason=NO_TMUX or "")

SOURCE = '''
from attrs import frozen
from dsh import Context, plugin, define_tool
from dsh.kernel import required
from dsh.hooks.live import ToolRun
from dsh.tools import TOOLS, ToolRuntime


@frozen
class Deps:
    tools: ToolRuntime = required(TOOLS)


@frozen
class Greet:
    """Whom to greet."""

    name: str


async def greet(args: Greet, run: ToolRun) -> str:
    return f"{greeting}, {{args.name}}"


@plugin(name="greeter", deps=Deps)
async def greeter(ctx: Context, config: None, deps: Deps) -> None:
    {first}
    deps.tools.register(
        ctx, define_tool(name="greet", description="Greets.", args=Greet, output=str, execute=greet)
    )
'''
CALL = ScriptEntry(tools=(ScriptedCall(name="greet", arguments='{"name": "Ines"}'),))
DONE = ScriptEntry(text="Greeted.")
HELPER = "- {name: greeter}\n- id: agent-loop\n  config: {agents: [{id: helper}]}\n"


@pytest.fixture
def source(tmp_path: Path, cli: CommandLine) -> Path:
    """The source of the plugin `greeter`, installed and a row of the project."""
    folder = tmp_path / "plugins"
    meta = folder / "greeter-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[dsh.plugins]\ngreeter = story_greeter:greeter\n")
    (cli.workspace / "dsh.yml").write_text("- {name: greeter}\n", encoding="utf-8")
    (folder / "story_greeter").mkdir()
    return folder / "story_greeter" / "__init__.py"


def edit(source: Path, greeting: str, first: str = "pass") -> None:
    """Save it as an editor does: another file in its place."""
    new = source.with_suffix(".new")
    new.write_text(SOURCE.format(greeting=greeting, first=first), encoding="utf-8")
    new.rename(source)


@pytest.mark.holds("CL35")
async def test_one_conversation_in_which_a_tool_is_edited_three_times(
    cli: CommandLine, source: Path
) -> None:
    edit(source, "Hello")
    async with open_model_server([CALL, DONE] * 4, strict=True) as server:
        here = cli.talking_to(server).having(PYTHONPATH=str(source.parents[1]))
        async with sitting(here, rows=50) as person:
            await person.sends("dsh chat --config dsh.yml --session s1 --allow greet")
            await person.sees("idle")
            await person.sends("greet her")
            await person.sees("Hello, Ines", "turn 1 done")

            edit(source, "Salut")
            await person.sees("-- 'greeter' reloaded --")
            await person.sends("and again")
            await person.sees("Salut, Ines", "turn 2 done")

            edit(source, 'Moin"')
            await person.sees("what ran before runs on", "__init__.py:22: SyntaxError")
            await person.sends("once more")
            await person.sees("turn 3 done")

            edit(source, "Ahoi", first="raise RuntimeError('no port')")
            await person.sees(
                "what ran before runs again", "story_greeter/__init__.py:27: RuntimeError: no port"
            )
            await person.sends("a last time")
            await person.sees("turn 4 done")
            await person.presses("C-d")
            shown = await person.is_at_the_shell("saved s1")
    assert shown.count("Salut, Ines") == 3
    assert "Traceback" not in shown
    said = [
        [m["content"] for m in orjson.loads(one.body)["messages"] if m["role"] == "tool"][-1]
        for one in server.requests[1::2]
    ]
    assert said == ["Hello, Ines", *["Salut, Ines"] * 3]


@pytest.mark.holds("CL35", "BO20")
async def test_the_conversation_goes_on_when_the_loop_itself_is_restarted(
    cli: CommandLine, source: Path
) -> None:
    edit(source, "Hello")
    async with open_model_server([DONE, CALL, DONE], strict=True) as server:
        here = cli.talking_to(server).having(PYTHONPATH=str(source.parents[1]))
        async with sitting(here) as person:
            await person.sends("dsh chat --config dsh.yml --session s1 --allow greet")
            await person.sees("idle")
            await person.sends("hello")
            await person.sees("turn 1 done")
            (cli.workspace / "dsh.yml").write_text(HELPER, encoding="utf-8")
            await person.sees("restarts the loop: 's1' stop now and are resumed")
            await person.sees("'agent-loop': agents changed, restarted with it")
            await person.sends("greet her")
            await person.sees("Hello, Ines", "turn 2 done")
            await person.presses("C-d")
            await person.is_at_the_shell("saved s1")
        verified = await here.run("sessions", "verify", "s1")
    assert verified.code == 0, verified.out
    messages = orjson.loads(server.requests[-1].body)["messages"]
    assert [m["content"] for m in messages if m["role"] == "user"] == ["hello", "greet her"]


@pytest.mark.holds("CL25")
async def test_ctrl_z_suspends_and_resumes_and_the_terminal_is_the_same_each_time(
    cli: CommandLine,
) -> None:
    async with open_model_server([DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with sitting(here) as person:
            await person.sends("stty -g > before; clear")
            await person.sends("dsh chat --session s1")
            await person.sees("idle")
            await person.types("a draft")
            await person.presses("C-z")
            await person.is_at_the_shell("Stopped")
            await person.sends("stty -g > between; clear; fg")
            await person.sees("> a draft", "idle")
            await person.presses("Enter")
            await person.sees("turn 1 done")
            await person.presses("C-d")
            await person.is_at_the_shell("saved s1")
            await person.sends("stty -g > after; echo $?")
            await person.is_at_the_shell("\n0\n")
    states = {(cli.workspace / name).read_text() for name in ("before", "between", "after")}
    assert len(states) == 1
