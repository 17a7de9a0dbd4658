"""What a person sees in a real terminal, kept as text in `golden/recorded-*.txt`.

`DSH_RECORD=1 python -m pytest tests/stories/test_stories_recordings.py` records anew; look at the
difference before it is committed.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.catalog.records import Usage
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.command_line import CommandLine
from dsh.testing.model_server import Gate, delta, open_model_server, sse_reply
from dsh.testing.recording import Recording
from dsh.testing.sitting import NO_TMUX, Sitting, sitting

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.hooks import JsonValue

pytestmark = pytest.mark.skipif(NO_TMUX is not None, reason=NO_TMUX or "")

GOLDEN = Path(__file__).with_name("golden")
DONE = ScriptEntry(text="Done.")
#: More than any recording needs: what scrolls away depends on how high the live lines once were.
ROWS = 50


@pytest.fixture
def home(tmp_path: Path) -> CommandLine:
    """The command in a home in which the workspace is `~/shop`."""
    shop = tmp_path / "shop"
    shop.mkdir()
    return CommandLine(tmp_path, shop, {"TMPDIR": "/tmp"})


@asynccontextmanager
async def recorded(
    name: str, cli: CommandLine, *, columns: int = 90
) -> AsyncGenerator[tuple[Sitting, Recording]]:
    async with sitting(cli, columns=columns, rows=ROWS) as person:
        film = Recording(GOLDEN / f"recorded-{name}.txt", person)
        yield person, film
        film.ends()


def calls(name: str, *arguments: dict[str, str], text: str = "") -> ScriptEntry:
    """A reply that calls one tool, once with each of these arguments."""
    return ScriptEntry(
        text=text, tools=tuple(ScriptedCall(name=name, arguments=json.dumps(a)) for a in arguments)
    )


@pytest.mark.holds("CL38")
async def test_the_first_run_without_a_key_and_the_demo(home: CommandLine) -> None:
    async with recorded("first-run", home) as (person, film):
        await person.sends("dsh chat")
        await film.back_at_the_shell("no key", "DEEPSEEK_API_KEY is not set")
        await person.sends("clear; dsh chat --profile demo")
        await film.moment("the demo waits", "idle")
        await person.sends("what happened in the garden?")
        await film.moment("the demo has answered", "turn 1 done", "idle")
        await person.types("/co")
        await film.moment("a word with a slash", "/compact", "/context")
        await person.presses("C-c", "C-d")
        await film.back_at_the_shell("left", "saved s")


@pytest.mark.holds("CL38")
async def test_an_approval_with_a_diff_and_steering(home: CommandLine) -> None:
    (home.workspace / "money.py").write_text("def cents(a):\n    return round(a)\n")
    go = trio.Event()
    edit = {
        "path": "money.py",
        "old_string": "    return round(a)",
        "new_string": "    return up(a)",
    }
    opened: JsonValue = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "edit_file", "arguments": json.dumps(edit)},
    }
    slow = sse_reply(
        delta(content="The helper rounds half-even."),
        Gate(go),
        delta(tool_calls=[opened]),
        delta("tool_calls"),
    )
    read = calls("read_file", {"path": "money.py"}, text="I read it first.")
    last = ScriptEntry(
        text="Fixed.", usage=Usage(input_tokens=3000, output_tokens=612, cache_read_tokens=15400)
    )
    async with open_model_server([read, slow, last], strict=True) as server:
        here = home.talking_to(server)
        async with recorded("approval", here) as (person, film):
            await person.sends("dsh chat --session s1")
            await person.sees("idle")
            await person.sends("The rounding test fails. Fix it.")
            await person.sees("half-even.")
            await person.sends("only invoices, please")
            await film.moment("steering is queued", "queued for next step")
            go.set()
            await film.moment("the edit is asked about", "then Enter", "waits for you")
            await person.reads(0.8)
            await person.sends("y")
            await film.moment("done", "turn 1 done", "idle")


@pytest.mark.holds("CL38")
async def test_cancelling_and_leaving(home: CommandLine) -> None:
    hangs = sse_reply(delta(content="Let me see"), Gate(trio.Event()))
    async with open_model_server([hangs, DONE], strict=True) as server:
        here = home.talking_to(server)
        async with recorded("cancel", here) as (person, film):
            await person.sends("dsh chat --session s1")
            await person.sees("idle")
            await person.sends("count the lines")
            await film.moment("it writes", "Let me see", "Ctrl-C stops")
            await person.presses("C-c")
            await film.moment("stopped", "stopped by you", "idle")
            await person.presses("C-c")
            await film.moment("again leaves", "Ctrl-C again to leave")
            await person.presses("C-c")
            await film.back_at_the_shell("left", "saved s1")


@pytest.mark.holds("CL38")
async def test_choosing_a_session_and_going_on(home: CommandLine) -> None:
    async with open_model_server([DONE] * 3, strict=True) as server:
        here = home.talking_to(server)
        for name, prompt in (("s1", "fix the rounding test"), ("s2", "add the invoice PDF")):
            assert (await here.run("run", "--session", name, prompt)).code == 0
        async with recorded("resume", here) as (person, film):
            await person.sends("dsh chat --resume")
            await film.moment("the list", "[here (2)]", "> add the invoice", "views")
            await person.types("fix")
            await person.sees("> fix the rounding")
            await person.presses("Enter")
            await film.moment("resumed", "resumed after 1 turn", "idle")
            await person.sends("and the docs?")
            await film.moment("gone on", "turn 2 done", "idle")


@pytest.mark.holds("CL38")
async def test_a_narrow_terminal(home: CommandLine) -> None:
    fails = calls("bash", {"command": "seq 1 5; exit 1"}, text="I run it.")
    async with open_model_server([fails, DONE], strict=True) as server:
        here = home.talking_to(server)
        async with recorded("narrow", here, columns=40) as (person, film):
            await person.sends("dsh chat --session s1")
            await film.moment("it waits", "idle")
            await person.sends("The rounding test fails.")
            await film.moment("it asks", "then Enter", "waits for you")
            await person.reads(0.8)
            await person.sends("y")
            await film.moment("done", "turn 1 done", "idle")


@pytest.mark.holds("CL38", "CL39")
async def test_a_server_that_cannot_be_reached(home: CommandLine) -> None:
    here = home.having(DEEPSEEK_API_KEY="sk-test", DEEPSEEK_BASE_URL="http://127.0.0.1:9/v1")
    async with recorded("unreachable", here) as (person, film):
        await person.sends("dsh chat --session s1")
        await person.sees("idle")
        await person.sends("hello")
        await person.sees("the same again", "try 3 of 6 in")
        await person.presses("C-c")
        await film.moment("told at once, and stopped", "stopped by you", "idle")
