"""A conversation at a real terminal: turns, steering, approval, cancelling, narrow windows."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
import trio

from dsh.catalog.records import Usage
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import (
    Gate,
    ModelServer,
    WireReply,
    delta,
    open_model_server,
    sse_reply,
)
from dsh.testing.talking import Person, talking

if TYPE_CHECKING:
    from dsh.hooks import JsonValue
    from dsh.testing.command_line import CommandLine

GOLDEN = Path(__file__).with_name("golden")
DONE = ScriptEntry(text="Done.")
FORBIDDEN = ("\x1b[2J", "\x1b[3J", "\x1b[?1049h", "\x1b[?47h")


def bash(*commands: str, text: str = "I will look.") -> ScriptEntry:
    """A reply that calls bash with each command."""
    calls = (json.dumps({"command": command}) for command in commands)
    return ScriptEntry(
        text=text, tools=tuple(ScriptedCall(name="bash", arguments=a) for a in calls)
    )


def golden(name: str, cli: CommandLine, person: Person) -> None:
    """Compare everything that was shown, without the last screen's live rows, with a transcript."""
    seen = person.steady.replace(str(cli.workspace), "~/shop")
    seen = re.sub(r"( · /help) .*", r"\1", seen, count=1)  # the workspace, where it fits
    seen = re.sub(r"^warning: plugin compaction: .*\n", "", seen, flags=re.MULTILINE)
    path = GOLDEN / f"{name}.txt"
    if not path.exists():
        path.write_text(seen.strip() + "\n", encoding="utf-8")
        pytest.fail(f"{path} was not there; read what was written, then run again")
    assert seen.strip() + "\n" == path.read_text(encoding="utf-8"), seen


def user_texts(server: ModelServer, request: int) -> list[str]:
    """What the person said, as a request has it."""
    body: dict[str, list[dict[str, str]]] = orjson.loads(server.requests[request].body)
    return [one["content"] for one in body["messages"] if one["role"] == "user"]


async def quits(person: Person) -> int:
    """Leave from an empty line."""
    await person.sees("idle")
    await person.presses("\x04")
    return await person.ended()


@pytest.mark.holds("CL20", "CL21")
async def test_three_turns_scroll_away_once_and_survive_two_changes_of_width(
    cli: CommandLine,
) -> None:
    replies = [
        ScriptEntry(
            text=f"# Turn {number}\nA line of reply number {number}.\n"
            f"```\ncode {number}\n```\nEnd {number}.",
            usage=Usage(input_tokens=1200, output_tokens=30, cache_read_tokens=800),
        )
        for number in (1, 2, 3)
    ]
    async with open_model_server(replies, strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1") as person:
            for number, columns in ((1, 100), (2, 60), (3, 40)):
                person.resizes(columns)
                await person.sends(f"prompt {number}")
                await person.sees(f"turn {number} done")
            assert await quits(person) == 0
            assert person.restored
        for number in (1, 2, 3):
            for line in (
                f"> prompt {number}",
                f"A line of reply number {number}.",
                f"End {number}.",
            ):
                assert person.lines.count(line) == 1, person.shown
        assert not [one for one in FORBIDDEN if one.encode() in person.raw]
        assert person.terminal.strange == []
        assert "saved s1 · dsh chat --resume s1" in person.shown


@pytest.mark.holds("CL20")
@pytest.mark.parametrize("columns", [100, 60, 40])
async def test_a_turn_with_tools_looks_as_it_should(cli: CommandLine, columns: int) -> None:
    (cli.workspace / "money.py").write_text("a\nb\n", encoding="utf-8")
    reading = ScriptedCall(name="read_file", arguments='{"path": "money.py"}')
    first = bash("printf '1\\n2\\n3\\n4\\n5\\n'; exit 1", text="I'll run the test first.\n")
    replies = [
        first,
        ScriptEntry(text="The helper rounds half-even.\n", tools=(reading,)),
        ScriptEntry(
            text="Fixed: `to_cents` now rounds half-up.",
            usage=Usage(input_tokens=3000, output_tokens=612, cache_read_tokens=15400),
        ),
    ]
    async with open_model_server(replies, strict=True) as server:
        here = cli.talking_to(server)
        allowed = ("--session", "s1", "--allow", "bash")
        async with talking(here, *allowed, columns=columns) as person:
            await person.sends("The test fails. 修复它。")
            await person.sees("turn 1 done")
            assert await quits(person) == 0
        golden(f"chat-turn-{columns}", cli, person)


@pytest.mark.holds("CL22")
async def test_steering_reaches_the_next_step_and_what_is_taken_back_reaches_none(
    cli: CommandLine,
) -> None:
    go = trio.Event()
    call: JsonValue = {"name": "bash", "arguments": '{"command": "true"}'}
    opened: JsonValue = {"index": 0, "id": "c1", "type": "function", "function": call}
    slow = sse_reply(
        delta(content="Thinking."), Gate(go), delta(tool_calls=[opened]), delta("tool_calls")
    )
    async with open_model_server([slow, DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", "--allow", "bash") as person:
            await person.sends("go")
            await person.sees("Thinking.")
            await person.sends("only invoices")
            await person.sees('queued for next step: "only invoices"')
            await person.sends("and the docs")
            await person.sees("and the docs", times=1)
            await person.presses("\x1b[A")
            await person.sees("> and the docs")
            await person.presses("\x03")  # the draft is kept: a turn is running
            go.set()
            assert await quits_after(person) == 0
    assert len(server.requests) == 1


async def quits_after(person: Person) -> int:
    """Leave once the turn has been stopped."""
    await person.sees("stopped by you")
    await person.sees("> only invoices")
    await person.presses("\x03")
    await person.sees_no("and the docs")
    return await quits(person)


@pytest.mark.holds("CL22")
async def test_a_steered_message_is_shown_where_it_was_read(cli: CommandLine) -> None:
    go = trio.Event()
    call: JsonValue = {"name": "bash", "arguments": '{"command": "true"}'}
    opened: JsonValue = {"index": 0, "id": "c1", "type": "function", "function": call}
    slow = sse_reply(
        delta(content="Thinking."), Gate(go), delta(tool_calls=[opened]), delta("tool_calls")
    )
    async with open_model_server([slow, DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", "--allow", "bash") as person:
            await person.sends("go")
            await person.sees("Thinking.")
            await person.sends("keep this")
            await person.sees("queued for next step")
            await person.sends("take this back")
            await person.sees('"take this back"')
            await person.presses("\x1b[A")
            await person.sees("> take this back")
            go.set()
            await person.sees("> keep this (steered into step 2)")
            await person.sees("turn 1 done")
            await person.presses("\x03")
            await person.sees_no("take this back")
            assert await quits(person) == 0
        golden("chat-steering", cli, person)
    assert user_texts(server, -1) == ["go", "keep this"]


@pytest.mark.holds("CL23")
async def test_only_a_line_that_was_meant_approves(cli: CommandLine) -> None:
    command = "\n".join(f"echo line {number} of sixty >> made" for number in range(1, 61))
    async with open_model_server([bash(command), DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1") as person:
            await person.sends("go")
            await person.sees("then Enter")
            await person.presses("y")
            await person.presses("\r")  # at once: typed before anybody could read
            await person.sees('queued for next step: "y"')
            await person.reads(0.8)
            await person.presses("\r")
            await person.presses("\x1b[200~y\x1b[201~")
            await person.presses("\r")
            await person.sends("yes do it")
            await person.sees('"yes do it"')
            assert not (cli.workspace / "made").exists()
            await person.sends("y")
            await person.sees("bash allowed once by you")
            await person.sees("turn 1 done")
            assert await quits(person) == 0
        for number in range(1, 61):
            assert f"    echo line {number} of sixty >> made" in person.lines
    assert user_texts(server, -1) == ["go", "y", "y", "yes do it"]
    assert len((cli.workspace / "made").read_text(encoding="utf-8").splitlines()) == 60


@pytest.mark.holds("CL23")
async def test_approvals_yes_no_and_for_the_session(cli: CommandLine) -> None:
    replies = [bash("echo one", "touch two"), bash("echo one"), DONE]
    async with open_model_server(replies, strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1") as person:
            await person.sends("go")
            for number, answer in ((1, "s"), (2, "n not now")):
                await person.sees("then Enter", times=number)
                await person.reads(0.8)
                await person.sends(answer)
            await person.sees("turn 1 done")
            assert await quits(person) == 0
        golden("chat-approval", cli, person)
    assert not (cli.workspace / "two").exists()


@pytest.mark.holds("CL24")
@pytest.mark.parametrize("by", ["key", "signal"])
@pytest.mark.parametrize("state", ["streaming", "tool", "approval"])
async def test_ctrl_c_and_its_signal_stop_the_turn_alike_and_the_session_goes_on(
    cli: CommandLine, state: str, by: str
) -> None:
    hangs = sse_reply(delta(content="Let me see"), Gate(trio.Event()))
    firsts: dict[str, WireReply | ScriptEntry] = {
        "streaming": hangs,
        "tool": bash("sleep 60"),
        "approval": bash("rm it"),
    }
    seen = {"streaming": "Let me see", "tool": "running", "approval": "then Enter"}[state]
    allowed = ("--allow", "bash") if state == "tool" else ()
    async with open_model_server([firsts[state], DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", *allowed) as person:
            await person.sends("go")
            await person.sees(seen)
            await person.types("a draft")
            if by == "key":
                await person.presses("\x03")
            else:
                person.signals(signal.SIGINT)
            await person.sees("turn 1 stopped by you")
            await person.sees("> a draft")  # kept
            await person.presses("\x03")
            await person.sees_no("> a draft")
            await person.sends("again")
            await person.sees("turn 2 done")
            assert await quits(person) == 0
            assert person.restored
    assert user_texts(server, -1) == ["go", "again"]


@pytest.mark.holds("CL24")
async def test_ctrl_c_twice_leaves_with_130_and_the_session_resumes(cli: CommandLine) -> None:
    stubborn = "trap '' TERM; sleep 60"
    async with open_model_server([bash(stubborn), DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", "--allow", "bash") as person:
            await person.sends("go")
            await person.sees("running")
            await person.presses("\x03")
            await person.presses("\x03")
            again = "Ctrl-C again to leave"
            await person.until(lambda one: one.gone or again in one.shown, "the end, or how")
            if not person.gone:  # the turn had stopped before the second key was read
                await person.presses("\x03")
            assert await person.ended() == 130
            assert person.restored
            assert "saved s1" in person.shown
        async with talking(here, "--resume", "s1") as person:
            await person.sends("again")
            await person.sees("turn 2 done")
            assert await quits(person) == 0
        assert "> go" in person.lines


@pytest.mark.holds("CL25")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_the_terminal_is_as_before_after_term_and_hup(cli: CommandLine, number: int) -> None:
    hangs = sse_reply(delta(content="Let me see"), Gate(trio.Event()))
    async with open_model_server([hangs], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1") as person:
            await person.sends("go")
            await person.sees("Let me see")
            person.signals(number)
            assert await person.ended() == 128 + number
            assert person.restored
    verified = await cli.run("sessions", "verify", "s1")
    assert verified.code == 0


@pytest.mark.holds("CL26")
async def test_a_failed_turn_says_why_and_later_prompts_are_run(cli: CommandLine) -> None:
    go = trio.Event()
    failing = sse_reply(
        delta(content="Hm"),
        Gate(go),
        b'data: {"error": {"message": "no such model"}}\n\n',
        done=False,
    )
    async with open_model_server([failing, *[failing] * 9], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", "--set", "agent-loop.agents=[]") as person:
            await person.sends("go")
            await person.sees("Hm")
            await person.sends("/later and then this")
            await person.sees("1 later")
            go.set()
            await person.sees("turn 1 failed")
            await person.sees("!! ")
            await person.sees("> and then this")
            await person.sees("turn 2 failed")
            assert await quits(person) == 0


@pytest.mark.holds("CL1")
async def test_what_a_tool_prints_is_text_on_the_screen(cli: CommandLine) -> None:
    hostile = "printf '\\033]0;owned\\007\\033]52;c;aGk=\\007\\033[31mred\\n'"
    async with open_model_server([bash(hostile), ScriptEntry(text="bye \u202eback")]) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", "--allow", "bash") as person:
            await person.sends("go")
            await person.sees("turn 1 done")
            assert await quits(person) == 0
    assert b"\x1b]" not in person.raw
    assert "\\x1b]52;c;aGk=\\x07" in person.shown
    assert "bye \\u202eback" in person.shown
