"""The editor of a conversation: pastes, fast typing, words with a slash, choosing a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
import trio

from dsh.catalog.records import LlmFailure, Usage
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.model_server import Gate, delta, open_model_server, sse_reply
from dsh.testing.talking import talking

if TYPE_CHECKING:
    from dsh.testing.command_line import CommandLine
    from dsh.testing.model_server import ModelServer
    from dsh.testing.talking import Person

DONE = ScriptEntry(text="Done.")


def prompt_of(server: ModelServer) -> str:
    """The last thing that the person said."""
    body: dict[str, list[dict[str, str]]] = orjson.loads(server.requests[-1].body)
    return [one["content"] for one in body["messages"] if one["role"] == "user"][-1]


async def quits(person: Person) -> int:
    await person.sees("idle")
    await person.presses("\x04")
    return await person.ended()


@pytest.mark.holds("CL27")
async def test_a_long_paste_is_folded_and_sent_whole(cli: CommandLine) -> None:
    text = "\n".join(f"line {number} of a paste, ünïcode 修复" for number in range(140))
    async with open_model_server([DONE], strict=True) as server:
        async with talking(cli.talking_to(server)) as person:
            await person.presses(f"\x1b[200~{text}\x1b[201~")
            await person.sees("[pasted 140 lines #1: Ctrl-O unfolds]")
            await person.presses("\r")
            await person.sees("turn 1 done")
            assert await quits(person) == 0
        assert prompt_of(server) == text


@pytest.mark.holds("CL27")
async def test_a_paste_without_brackets_is_one_message(cli: CommandLine) -> None:
    text = "\n".join(f"line {number}" for number in range(140))
    async with open_model_server([DONE], strict=True) as server:
        async with talking(cli.talking_to(server)) as person:
            await person.presses(text.replace("\n", "\r"))
            await person.sees("line 139")
            await person.presses("\r")
            await person.sees("turn 1 done")
            assert await quits(person) == 0
        assert prompt_of(server) == text


@pytest.mark.holds("CL27")
async def test_a_line_that_comes_with_its_enter_is_sent(cli: CommandLine) -> None:
    async with open_model_server([DONE], strict=True) as server:
        async with talking(cli.talking_to(server)) as person:
            await person.presses("typed by a program\r")
            await person.sees("turn 1 done")
            await person.presses("/quit\r")
            assert await person.ended() == 0
        assert prompt_of(server) == "typed by a program"


@pytest.mark.holds("CL27")
async def test_where_pastes_have_no_brackets_such_a_line_was_pasted(cli: CommandLine) -> None:
    async with open_model_server([DONE], strict=True) as server:
        async with talking(cli.talking_to(server).having(TERM="linux")) as person:
            await person.presses("/quit\r")
            await person.presses("\r")
            await person.sees("turn 1 done")
            assert await quits(person) == 0
        assert prompt_of(server) == "/quit\n"


@pytest.mark.holds("CL27")
async def test_a_pasted_command_is_text_and_new_lines_can_be_typed(cli: CommandLine) -> None:
    async with open_model_server([DONE, DONE], strict=True) as server:
        async with talking(cli.talking_to(server)) as person:
            await person.presses("\x1b[200~/quit\x1b[201~")
            await person.presses("\r")
            await person.sees("turn 1 done")
            assert prompt_of(server) == "/quit"
            await person.types("one")
            await person.presses("\x1b\r")
            await person.types("two\\")
            await person.presses("\r")
            await person.types("three")
            await person.presses("\r")
            await person.sees("turn 2 done")
            assert await quits(person) == 0
        assert prompt_of(server) == "one\ntwo\nthree"


@pytest.mark.holds("CL20")
async def test_six_hundred_chunks_while_somebody_types(cli: CommandLine) -> None:
    words = [f"word{number}{' ' if number % 12 else chr(10)}" for number in range(600)]
    half = trio.Event()
    pieces = [delta(content=word) for word in words]
    reply = sse_reply(*pieces[:300], Gate(half), *pieces[300:], delta("stop"))
    draft = "ein Entwurf 修复舍入测试 und mehr"
    async with open_model_server([reply], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, rows=24) as person:
            await person.sends("go")
            await person.sees("word299")
            for letter in draft:
                await person.presses(letter)
            half.set()
            await person.sees("turn 1 done")
            await person.sees(f"> {draft}")
            written = len(person.raw)
            await person.presses("\x03")
            await person.sees_no(draft)
            assert await quits(person) == 0
        text = "".join(words)
        assert [line for line in text.split("\n") if person.lines.count(line.rstrip()) != 1] == []
    assert written <= 4 * len(text) + 6000  # the draft and its redraws are in it, too


@pytest.mark.holds("CL28")
async def test_words_with_a_slash(cli: CommandLine) -> None:
    many = ScriptedCall(name="bash", arguments='{"command": "seq 1 40"}')
    options = ("--session", "s1", "--allow", "bash", "--set", "chat.toolLines=2")
    async with open_model_server([ScriptEntry(tools=(many,)), DONE, DONE], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, *options) as person:
            await person.sends("/hepl")
            await person.sees("no command 'hepl'; did you mean 'help'? Nothing was sent")
            await person.sends("/etc/hosts is a file")
            await person.sees("turn 1 done")
            await person.sees("39\n             40\n             38 more lines: /out 1")
            await person.sends("/out 1")
            await person.sees("\n17\n18\n19\n")
            await person.sends("/context")
            await person.sees("next request")
            await person.sends("/tools")
            await person.sees("bash   ")
            await person.sends("/permissions")
            await person.sees("allow  bash                             --allow")
            await person.sees("ask    everything else")
            await person.sends("/plugins")
            await person.sees("agent-loop       active")
            await person.sends("/thinking maybe")
            await person.sees("/thinking takes on or off")
            await person.presses("/qu")
            await person.presses("\t")
            await person.sees("> /quit")
            await person.presses("\r")
            assert await person.ended() == 0
    assert len(server.requests) == 2


@pytest.mark.holds("CL29")
async def test_choosing_a_session_lists_the_damaged_one_with_its_reason(cli: CommandLine) -> None:
    async with open_model_server([DONE] * 5, strict=True) as server:
        here = cli.talking_to(server)
        for name, prompt in (
            ("broken", "x"),
            ("alpha", "fix the rounding"),
            ("beta", "add an invoice"),
        ):
            assert (await here.run("run", "--session", name, prompt)).code == 0
        (log,) = (path for path in cli.home.rglob("*.jsonl") if "broken" in str(path))
        log.write_bytes(b"no log\n")
        async with talking(here, "--resume") as person:
            await person.sees("[here (2)]")
            await person.sees("fix the rounding")
            await person.presses("\t")
            await person.sees("[all (3)]")
            await person.sees("broken   ")
            await person.sees("unreadable: ")
            await person.types("round")
            await person.sees_no("add an invoice")
            await person.presses("\r")
            await person.sees("session alpha resumed after 1 turn")
            await person.sees("> fix the rounding")
            await person.sends("go on")
            await person.sees("turn 2 done")
            await person.sends("/resume be")
            await person.sees("session beta resumed after 1 turn")
            await person.sends("/new")
            await person.sees("begins; back to the other: /resume beta")
            await person.sees("idle · ctx ~0")
            await person.sends("/view")
            await person.sees("nothing has happened in this session yet")
            await person.sends("/resume rounding")
            await person.sees("session alpha resumed after 2 turns")
            await person.sends("/resume")
            await person.sees("[all (3)]")  # the list that was looked at last
            await person.sees("Ctrl-V views")
            await person.presses("\x1b")
            await person.sees_no("Ctrl-V views")
            assert await quits(person) == 0


@pytest.mark.holds("CL40", "CL50")
async def test_words_about_the_session_name_tell_and_export_it(cli: CommandLine) -> None:
    wrote = ScriptedCall(name="write_file", arguments='{"path": "n.md", "content": "one\\n"}')
    replies = [ScriptEntry(tools=(wrote,)), ScriptEntry(text="First."), DONE]
    async with open_model_server(replies, strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", "--allow", "write_file") as person:
            await person.sends("write it")
            await person.sees("turn 1 done")
            await person.sends("and on")
            await person.sees("turn 2 done")
            await person.sends("/copy 1")
            await person.sees("copied reply 1 of 2")
            await person.sends("/title The garden book")
            await person.sees("called The garden")
            await person.sends("/export talk.txt")
            await person.sees("write /export FILE.md")
            await person.sends("/export talk.md")
            await person.sees("exported s1 to")
            await person.sends("/view 1")
            await person.sees("turn 1   done")
            assert await quits(person) == 0
    talk = (cli.workspace / "talk.md").read_text(encoding="utf-8")
    assert (cli.workspace / "talk.md").stat().st_mode & 0o077 == 0
    said = ("# Session `s1`", "**Prompt**\n\n> write it", "> First.", "**Tool** `write_file n.md`")
    assert [part for part in said if part not in talk] == []


@pytest.mark.holds("CL40", "CL51")
async def test_a_session_is_copied_up_to_a_turn_or_a_step_and_from_the_list(
    cli: CommandLine,
) -> None:
    wrote = ScriptedCall(name="write_file", arguments='{"path": "n.md", "content": "one\\n"}')
    replies = [ScriptEntry(tools=(wrote,)), ScriptEntry(text="First."), *[DONE] * 3]
    async with open_model_server(replies, strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", "--allow", "write_file") as person:
            await person.sends("write it")
            await person.sees("turn 1 done")
            await person.sends("and on")
            await person.sees("turn 2 done")
            await person.sends("/title The garden book")
            await person.sees("called The garden")
            await person.sends("/fork 7")
            await person.sees("turn 7 has not ended here: its last ended turn is 2")
            await person.sends("/fork 1")
            await person.sees("is a copy of s1; back to that: /resume s1")
            await person.sends("another way")
            await person.sees("turn 2 done", times=2)
            await person.sends("/resume")
            await person.sees("The garden")
            await person.types("garden")
            await person.presses("\x16")  # Ctrl-V: only looks
            await person.sees("turn 2   done")
            await person.sees("filter: garden")  # the list comes back as it was left
            await person.presses("\x06")  # Ctrl-F: a copy of it
            await person.sees("is a copy of s1, which stays as it is")
            await person.sees("resumed after 2 turns")
            await person.sends("/fork 1.7")
            await person.sees("step 1.7 has not ended here: its last ended step is 2.1")
            await person.sends("/fork 1.1")
            await person.sees("turn 1 stopped by you")
            await person.sends("and from here")
            await person.sees("turn 2 done", times=4)
            assert await quits(person) == 0
    bodies = [orjson.loads(request.body)["messages"] for request in server.requests]
    prompts = [[m["content"] for m in body if m["role"] == "user"] for body in bodies]
    assert prompts[3:] == [["write it", "another way"], ["write it", "and from here"]]
    assert [m["role"] for m in bodies[4]][-4:] == ["user", "assistant", "tool", "user"]
    assert (await here.run("sessions", "verify", "--all")).code == 0


@pytest.mark.holds("CL40")
async def test_the_doctor_compaction_and_prices_of_a_conversation(cli: CommandLine) -> None:
    prices = '[{"provider": "deepseek", "model": "*", "input": 1000000, "output": 0}]'
    (cli.workspace / "my.yml").write_text(
        f"- {{name: budget, config: {{prices: {prices}}}}}\n- {{id: compaction, disabled: true}}\n",
        encoding="utf-8",
    )
    spent = ScriptEntry(text="Done.", usage=Usage(input_tokens=3, output_tokens=1))
    async with open_model_server([spent], strict=True) as server:
        here = cli.talking_to(server)
        async with talking(here, "--session", "s1", "--config", "my.yml") as person:
            await person.sends("go")
            await person.sees("turn 1 done")
            await person.sees("cost 3.00")
            await person.sends("/compact")
            await person.sees("nothing compacts here: add a row with the name compaction")
            await person.sends("/compacted")
            await person.sees("nothing was compacted in this session")
            await person.sends("/doctor")
            await person.sees("ok    key        deepseek: usable")
            await person.sees("ok    session    s1 is sound: 1 turn")
            await person.sees("0 to fix")
            assert await quits(person) == 0


@pytest.mark.holds("CL7")
async def test_the_wait_before_a_retry_counts_down(cli: CommandLine) -> None:
    limited = ScriptEntry(
        error=LlmFailure(
            message="slow down", code="RATE_LIMIT", status=429, provider_retry_after_ms=2500
        )
    )
    async with open_model_server([limited, DONE], strict=True) as server:
        async with talking(cli.talking_to(server)) as person:
            await person.sends("go")
            await person.sees("try 2 of")
            await person.sees("in 2 s")
            await person.sees("in 1 s")
            await person.sees("turn 1 done")
            assert await quits(person) == 0
        assert sum("slow down" in line for line in person.lines) == 1
