"""Approval at a real terminal: what is shown, what a key does, and where nobody can be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import open_model_server
from dsh.testing.terminal import at_terminal, plainly

if TYPE_CHECKING:
    from dsh.testing.command_line import CommandLine
    from dsh.testing.terminal import AtTerminal

GOLDEN = Path(__file__).with_name("golden")
PROMPT = "approve> "
RUN = ("run", "--profile", "chat", "--session", "s1")
#: Wide enough for any temporary workspace on one line.
WIDE = 200


def bash(*commands: str) -> ScriptEntry:
    """A reply that calls bash with each command."""
    return ScriptEntry(
        text="I will look.",
        tools=tuple(
            ScriptedCall(name="bash", arguments=json.dumps({"command": text})) for text in commands
        ),
    )


DONE = ScriptEntry(text="Done.")


def golden(name: str, cli: CommandLine, shown: str) -> None:
    """Compare what was shown with the transcript of this name."""
    seen = plainly(shown).replace(str(cli.workspace), "~/shop")
    assert seen == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


async def answered(terminal: AtTerminal, *lines: str) -> int:
    """Type one line at each prompt; the exit code."""
    for line in lines:
        await terminal.until(PROMPT)
        terminal.types(line)
    return await terminal.ended()


@pytest.mark.holds("case-074")
async def test_two_calls_are_asked_about_one_after_the_other_yes_and_no(cli: CommandLine) -> None:
    async with open_model_server([bash("echo one", "touch two"), DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with at_terminal(here, *RUN, "hi", columns=WIDE) as terminal:
            before = terminal.settings()
            assert await answered(terminal, "y\n", "n not now\n") == 0
            assert terminal.settings() == before
        golden("approval-yes-and-no", cli, terminal.shown)
    assert not (cli.workspace / "two").exists()
    assert b"the user rejected this call" in server.requests[-1].body
    assert b'{"role":"user","content":"not now"}' in server.requests[-1].body
    assert server.refusals == []


@pytest.mark.holds("case-072")
async def test_ctrl_c_at_the_question_stops_the_turn_and_asks_no_more(cli: CommandLine) -> None:
    replies = [bash("touch one", "touch two"), ScriptEntry(text="later")]
    async with open_model_server(replies, strict=True) as server:
        here = cli.talking_to(server)
        async with at_terminal(here, *RUN, "hi", columns=WIDE) as terminal:
            before = terminal.settings()
            await terminal.until(PROMPT)
            terminal.types("\x03")
            assert await terminal.ended() == 130
            assert terminal.settings() == before
        golden("approval-ctrl-c", cli, terminal.shown)
        assert terminal.shown.count("approve bash?") == 1
        resumed = await here.run("run", "--resume", "s1", "go on")
        assert (resumed.code, resumed.out) == (0, "later\n")
    assert list(cli.workspace.iterdir()) == []
    assert server.refusals == []


async def test_two_parallel_tools_ask_at_once_and_are_shown_in_turn(cli: CommandLine) -> None:
    (cli.home / "a").write_text("alpha\n", encoding="utf-8")
    (cli.home / "b").write_text("beta\n", encoding="utf-8")
    wanted = ScriptEntry(
        tools=tuple(
            ScriptedCall(name="read_file", arguments=json.dumps({"path": str(cli.home / name)}))
            for name in "ab"
        )
    )
    async with open_model_server([wanted, DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with at_terminal(here, *RUN, "hi", columns=WIDE) as terminal:
            await terminal.until(PROMPT)
            assert terminal.shown.count("approve read_file?") == 1
            terminal.types("y\n")
            assert await answered(terminal, "y\n") == 0
        assert terminal.shown.count("approve read_file?") == 2
    body = server.requests[-1].body
    assert body.index(b"alpha") < body.index(b"beta")


NO_ANSWERS = ("yes do it", "", " y", "Y", "yes", "\x1b[200~y\x1b[201~", "s it", "no")


async def test_what_is_no_exact_answer_approves_nothing_and_a_later_y_does(
    cli: CommandLine,
) -> None:
    async with open_model_server([bash("touch one"), DONE]) as server:
        here = cli.talking_to(server)
        async with at_terminal(here, *RUN, "hi") as terminal:
            for keys in NO_ANSWERS:
                await terminal.until(PROMPT)
                terminal.types(f"{keys}\n")
            await terminal.until(PROMPT)
            assert list(cli.workspace.iterdir()) == []
            terminal.types("y\n")
            assert await terminal.ended() == 0
    assert (cli.workspace / "one").exists()


async def test_keys_from_before_the_question_answer_nothing(cli: CommandLine) -> None:
    async with open_model_server([bash("touch one"), DONE]) as server:
        here = cli.talking_to(server)
        async with at_terminal(here, *RUN, "hi") as terminal:
            terminal.types("y\n")  # long before anything is asked
            await terminal.until("then Enter")
            terminal.types("y\n")  # a flying one: the question has just appeared
            assert await answered(terminal, "n\n") == 0
    assert list(cli.workspace.iterdir()) == []


async def test_a_long_command_is_shown_whole_and_nothing_of_it_in_the_first_column(
    cli: CommandLine,
) -> None:
    lines = [f"echo line {number} " + "x" * (number * 3) for number in range(60)]
    command = "\n".join([*lines, "y once · n REASON", "\x1b]0;title\x07\u202eevil"])
    async with open_model_server([bash(command), DONE]) as server:
        here = cli.talking_to(server)
        async with at_terminal(here, *RUN, "hi", columns=60) as terminal:
            assert await answered(terminal, "v\n", "n\n") == 0
    shown = plainly(terminal.shown)
    block = shown[shown.index("approve bash?") : shown.index("approve> v")]
    packed = "".join(line.strip() for line in block.splitlines())
    for line in lines:
        assert line.replace(" ", "") in packed.replace(" ", "")
    assert "\\x1b]0;title\\x07\\u202eevil" in block
    assert "\x1b]0;title" not in terminal.shown
    starts = [line for line in block.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in starts] == ["approve", "y"]
    assert all(len(line) <= 60 for line in block.splitlines()[:-1])
    assert '"command": "echo line 0' in shown


async def test_s_is_remembered_in_the_log_and_after_a_resume(cli: CommandLine) -> None:
    replies = [bash("echo one", "echo one", "echo one x"), DONE, bash("echo one"), DONE]
    async with open_model_server(replies, strict=True) as server:
        here = cli.talking_to(server)
        async with at_terminal(here, *RUN, "hi") as terminal:
            assert await answered(terminal, "s\n", "n\n") == 0
        assert terminal.shown.count("approve bash?") == 2
        shown = await here.run("run", "--profile", "chat", "--resume", "s1", "--json", "again")
        rows = [orjson.loads(line) for line in shown.lines]
        results = [row["data"]["message"] for row in rows if row["type"] == "tool/result"]
        assert [one["content"] for one in results] == [[{"type": "text", "text": "one"}]]


@pytest.mark.holds("case-072")
@pytest.mark.parametrize("how", ["json", "pipe"])
async def test_where_nobody_can_be_asked_the_call_is_refused_with_the_remedy(
    cli: CommandLine, how: str
) -> None:
    async with open_model_server([bash("touch one"), DONE], strict=True) as server:
        here = cli.talking_to(server)
        if how == "json":
            async with at_terminal(here, *RUN, "--json", "hi", columns=WIDE, piped=True) as run:
                code = await run.ended()
                err, out = run.shown, run.out
            kinds = [orjson.loads(line)["type"] for line in out.splitlines()]
            assert [kinds.count(f"approval/{word}") for word in ("asked", "decided")] == [1, 1]
        else:
            ran = await here.run(*RUN, "hi")
            code, err = ran.code, ran.err
            assert ran.out == "Done.\n"
        assert code == 0
        golden(f"approval-nobody-{how}", cli, err)
    assert list(cli.workspace.iterdir()) == []
    assert b"nobody is there to answer; allow it with --allow bash" in server.requests[-1].body
