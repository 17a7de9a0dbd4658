"""What a plugin shows and holds up while somebody talks: live output, a message that was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import open_model_server
from dsh.testing.talking import talking

if TYPE_CHECKING:
    from pathlib import Path

    from dsh.testing.command_line import CommandLine

SOURCE = '''
from pathlib import Path
import trio
from attrs import frozen
from dsh import Context, Next, catalog as ev, define_tool, plugin
from dsh.kernel import required
from dsh.hooks.live import ToolRun
from dsh.tools import TOOLS, ToolRuntime


@frozen
class Deps:
    tools: ToolRuntime = required(TOOLS)


@frozen
class Wait:
    """For a file."""

    path: str


async def appears(path: str) -> None:
    while not Path(path).exists():
        await trio.sleep(0.01)


async def wait(args: Wait, run: ToolRun) -> str:
    run.progress("collected 40 items\\nrunning \\x1b[2J the third\\n")
    await appears(args.path)
    run.progress("all but done\\n")
    await appears(args.path + "2")
    return "waited"


async def stubborn(args: Wait, run: ToolRun) -> str:
    with trio.CancelScope(shield=True):
        await appears(args.path)
    return "waited"


async def crash() -> None:
    await appears("crash")
    raise RuntimeError("the house falls down")


@plugin(name="waiter", deps=Deps)
async def waiter(ctx: Context, config: None, deps: Deps) -> None:
    trio.lowlevel.spawn_system_task(crash)  # outside of everything that contains failures
    deps.tools.register(
        ctx, define_tool(name="wait", description="Waits.", args=Wait, output=str, execute=wait)
    )
    deps.tools.register(
        ctx, define_tool(name="stay", description="Stays.", args=Wait, output=str, execute=stubborn)
    )

    @ctx.on(ev.agent.PRE_STEP)
    async def hold(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        if step.step > 1:
            await appears("go-on")
        return await call_next()
'''
DONE = ScriptEntry(text="Done.")


@pytest.fixture
def here(tmp_path: Path, cli: CommandLine) -> CommandLine:
    """The command with the plugin `waiter` installed, and a composition that mounts it."""
    folder = tmp_path / "plugins"
    meta = folder / "waiter-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: waiter\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[dsh.plugins]\nwaiter = story_waiter:waiter\n")
    (folder / "story_waiter.py").write_text(SOURCE, encoding="utf-8")
    (cli.workspace / "my.yml").write_text("- {name: waiter}\n", encoding="utf-8")
    path = cli.environment().get("PYTHONPATH", "")
    return cli.having(PYTHONPATH=f"{folder}:{path}")


@pytest.mark.holds("CL37", "CL22")
async def test_live_output_is_shown_and_a_message_that_was_read_is_not_taken_back(
    here: CommandLine,
) -> None:
    call = ScriptedCall(name="wait", arguments='{"path": "one"}')
    options = ("--session", "s1", "--config", "my.yml", "--allow", "wait")
    async with open_model_server([ScriptEntry(tools=(call,)), DONE], strict=True) as server:
        async with talking(here.talking_to(server), *options) as person:
            await person.sends("go")
            await person.sees("collected 40 items\n             running \\x1b[2J the third")
            (here.workspace / "one").touch()
            await person.sees("all but done")
            await person.sees_no("collected 40 items")
            await person.sends("only invoices")
            await person.sees('queued for next step: "only invoices"')
            (here.workspace / "one2").touch()
            await person.sees("waited")
            # The step that will send it waits for its hook: it cannot be taken back any more.
            await person.presses("\x1b[A")
            await person.sees("already sent in step 2")
            await person.sees("preparing the next step")
            (here.workspace / "go-on").touch()
            await person.sees("> only invoices (steered into step 2)")
            await person.sees("turn 1 done")
            await person.sees("idle")
            await person.presses("\x04")
            assert await person.ended() == 0
        assert "all but done" not in person.lines[-20:]
    logs = [path.read_text() for path in here.home.rglob("*.jsonl")]
    assert [text for text in logs if "collected" in text] == []
    messages = orjson.loads(server.requests[-1].body)["messages"]
    assert [m["content"] for m in messages if m["role"] == "user"] == ["go", "only invoices"]


@pytest.mark.holds("CL25")
async def test_a_crash_leaves_the_terminal_as_it_was_and_says_so_in_a_sentence(
    here: CommandLine,
) -> None:
    async with open_model_server([DONE] * 2, strict=True) as server:
        there = here.talking_to(server)
        async with talking(there, "--session", "s1", "--config", "my.yml") as person:
            await person.sends("go")
            await person.sees("turn 1 done")
            await person.types("a draft")
            (here.workspace / "crash").touch()
            assert await person.ended() == 1
            assert person.restored
            assert "dsh: an unexpected TrioInternalError" in person.shown
            assert "Traceback" not in person.shown
            assert "saved s1 · dsh chat --resume s1" in person.shown
        assert (await there.run("run", "--resume", "s1", "go on")).code == 0


@pytest.mark.holds("CL24")
async def test_ctrl_c_while_a_tool_will_not_stop_leaves_and_the_next_resume_repairs(
    here: CommandLine,
) -> None:
    call = ScriptedCall(name="stay", arguments='{"path": "never"}')
    options = ("--config", "my.yml", "--allow", "stay")
    async with open_model_server([ScriptEntry(tools=(call,)), DONE], strict=True) as server:
        there = here.talking_to(server)
        async with talking(there, "--session", "s1", *options) as person:
            await person.sends("go")
            await person.sees("running")
            await person.presses("\x03")
            await person.sees("stopping: stay may finish")
            await person.presses("\x03")
            assert await person.ended() == 130
            assert person.restored
            assert "saved s1" in person.shown
        ran = await there.run("run", "--resume", "s1", "again")
        assert (ran.code, ran.out) == (0, "Done.\n")
