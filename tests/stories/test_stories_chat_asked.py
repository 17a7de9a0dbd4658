"""A person with a narrower window, with a second agent, and back after a crash: what is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson
import pytest
import trio

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import Gate, RecordedRequest, delta, open_model_server, sse_reply
from dsh.testing.talking import Person, talking

if TYPE_CHECKING:
    from dsh.testing.command_line import CommandLine

DONE = ScriptEntry(text="Done.")
HELPER = '''
from dsh import Context, catalog as ev, plugin, user_message
from dsh.agent import AGENTS, Agents
from dsh.kernel import required
from attrs import frozen


@frozen
class Deps:
    agents: Agents = required(AGENTS)


@plugin(name="helper", deps=Deps)
async def helper(ctx: Context, _config: None, deps: Deps) -> None:
    """A second agent begins to work when the first one does."""
    options = ev.records.AgentOptions(provider="deepseek", model="deepseek-chat")

    @ctx.observe(ev.turn.START)
    async def begin(event: object) -> None:
        if event.session.id == "main" and deps.agents.get("helper") is None:
            handle = await deps.agents.create("helper", options=options)
            handle.agent.followup(user_message("help"))
'''


def with_helper(cli: CommandLine) -> CommandLine:
    """The command with the plugin `helper` installed, and a composition that mounts it."""
    folder = cli.home / "plugins"
    meta = folder / "helper-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[dsh.plugins]\nhelper = story_helper:helper\n")
    (folder / "story_helper.py").write_text(HELPER, encoding="utf-8")
    (cli.workspace / "my.yml").write_text("- {name: helper}\n", encoding="utf-8")
    path = cli.environment().get("PYTHONPATH", "")
    return cli.having(PYTHONPATH=f"{folder}:{path}")


def bash(command: str) -> ScriptEntry:
    call = ScriptedCall(name="bash", arguments=json.dumps({"command": command}))
    return ScriptEntry(tools=(call,))


async def allows(person: Person) -> None:
    """Read the question, answer it, and see the answer before it is sent."""
    await person.reads(0.8)
    await person.presses("y")
    await person.until(lambda one: "approve> y" in "\n".join(one.terminal.screen), "the answer")
    await person.reads(0.1)  # keys that come together answer nothing
    await person.presses("\r")


@pytest.mark.holds("CL23")
async def test_a_question_is_laid_out_for_the_window_as_it_is_now(cli: CommandLine) -> None:
    async with open_model_server([bash("echo one"), DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", columns=100) as person:
            await person.sees("idle")
            person.resizes(50)
            await person.until(
                lambda one: len(max(one.terminal.screen[-2:], key=len)) <= 50, "a narrow status"
            )
            await person.sends("go")
            await person.sees("then Enter")
            await allows(person)
            await person.sees("turn 1 done")
            await person.presses("\x04")
            assert await person.ended() == 0
    assert "approve bash?\n  asked by permissions: no rule for bash\n    echo one\n" in person.shown


@pytest.mark.holds("CL23")
async def test_an_answer_that_comes_with_its_enter_wants_another_enter(cli: CommandLine) -> None:
    async with open_model_server([bash("touch made"), DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1") as person:
            await person.sends("go")
            await person.sees("then Enter")
            await person.reads(0.8)
            await person.presses("y\r")
            await person.sees("Enter again sends it")
            assert not (cli.workspace / "made").exists()
            await person.presses("\r")
            await person.sees("bash allowed once by you")
            await person.sees("turn 1 done")
            await person.presses("\x04")
            assert await person.ended() == 0
    assert (cli.workspace / "made").exists()


@pytest.mark.holds("CL23")
async def test_the_question_of_another_agent_says_whose_it_is(cli: CommandLine) -> None:
    def answers(request: RecordedRequest) -> ScriptEntry:
        last = orjson.loads(request.body)["messages"][-1]
        return DONE if last["role"] == "tool" else bash(f"echo {last['content']}")

    async with open_model_server(answers, strict=True) as server:
        here = with_helper(cli).talking_to(server)
        async with talking(here, "--session", "main", "--config", "my.yml") as person:
            await person.sends("go")
            await person.sees("then Enter")
            await allows(person)
            await person.sees("then Enter", times=2)
            await allows(person)
            await person.sees("bash of agent helper allowed once by you")
            await person.sees("turn 1 done")
            await person.presses("\x04")
            assert await person.ended() == 0
    assert person.shown.count("approve bash?") == 2
    assert "  for agent helper   " in person.shown


@pytest.mark.holds("CL24")
async def test_a_conversation_that_was_killed_is_idle_when_it_is_resumed(cli: CommandLine) -> None:
    hangs = sse_reply(delta(content="Let me see"), Gate(trio.Event()))
    async with open_model_server([hangs, DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with here.running("run", "--session", "s1", "count") as first:
            await server.when_requests(1)
            first.kill()
            await first.ended()
        async with talking(here, "--resume", "s1") as person:
            await person.sees("-- turn 1 interrupted by a crash")
            await person.sees("idle")
            await person.sends("go on")
            await person.sees("turn 2 done")
            await person.presses("\x04")
            assert await person.ended() == 0
