"""Sessions: which one is meant, resuming, and reading what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.command_line import CommandLine, refused
from dsh.testing.model_server import RecordedRequest, open_model_server

if TYPE_CHECKING:
    from pathlib import Path


def says(*texts: str) -> list[ScriptEntry]:
    return [ScriptEntry(text=text) for text in texts]


def prompts(request: RecordedRequest) -> list[str]:
    """What the user said in a recorded request."""
    body = orjson.loads(request.body)
    return [message["content"] for message in body["messages"] if message["role"] == "user"]


@pytest.mark.holds("CL14")
async def test_session_is_created_on_first_use_and_resumed_after(cli: CommandLine) -> None:
    async with open_model_server(says("one", "two"), strict=True) as server:
        here = cli.talking_to(server)
        assert (await here.run("run", "--session", "work", "first")).out == "one\n"
        assert (await here.run("run", "--session", "work", "second")).out == "two\n"
    assert [text for text in prompts(server.requests[1]) if text in ("first", "second")] == [
        "first", "second",
    ]  # fmt: skip


@pytest.mark.holds("CL14")
async def test_resume_takes_a_prefix_or_the_newest_of_this_directory(
    cli: CommandLine, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with open_model_server(says("1", "2", "3", "4", "5")) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "alpha", "p-alpha")
        await here.run("run", "--session", "beta", "p-beta")
        await here.run("run", "--session", "gamma", "--cwd", str(other), "p-gamma")
        assert (await here.run("run", "--resume", "last", "x")).code == 0
        assert "p-beta" in prompts(server.requests[-1])
        assert (await here.run("run", "--resume", "al", "x")).code == 0
        assert "p-alpha" in prompts(server.requests[-1])
        refused(
            await here.run("run", "--resume", "delta", "x"), "no session 'delta'", "nearest", code=2
        )
        refused(await here.run("run", "--resume", "", "x"), "no session ''", code=2)


@pytest.mark.holds("CL14")
async def test_an_ambiguous_prefix_names_what_it_could_be(cli: CommandLine) -> None:
    async with open_model_server(says("1", "2")) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "ab1", "x")
        await here.run("run", "--session", "ab2", "x")
        refused(
            await here.run("run", "--resume", "ab", "x"),
            "2 sessions begin with 'ab'",
            "ab1",
            code=2,
        )


@pytest.mark.holds("CL14")
async def test_a_resumed_session_keeps_its_route_and_its_workspace(
    cli: CommandLine, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (cli.workspace / "a.txt").write_text("here\n", encoding="utf-8")
    read = ScriptedCall(name="read_file", arguments='{"path": "a.txt"}')
    script = [*says("1"), ScriptEntry(tools=(read,)), *says("3")]
    async with open_model_server(script) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "s", "--model", "special", "x")
        ran = await here.run("run", "--cwd", str(other), "--resume", "s", "y")
    assert orjson.loads(server.requests[1].body)["model"] == "special"
    assert f"works in {cli.workspace}" in ran.err
    assert b"here" in server.requests[2].body


@pytest.mark.holds("CL14")
async def test_without_either_there_is_a_new_id_on_standard_error(cli: CommandLine) -> None:
    async with open_model_server(says("1", "2")) as server:
        here = cli.talking_to(server)
        ids = {(await here.run("run", "x")).err.split()[1] for _ in range(2)}
        listed = await here.run("sessions", "list")
    assert len(ids) == 2
    assert {line.split()[0] for line in listed.lines} == ids


@pytest.mark.holds("CL8")
async def test_sessions_are_listed_shown_and_verified(cli: CommandLine) -> None:
    async with open_model_server(says("the \x1b answer")) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "s1", "the question")
    shown = await here.run("sessions", "show", "s1")
    assert shown.code == 0
    for word in ("session  s1", "deepseek/deepseek-chat", "the question", "the \\x1b answer"):
        assert word in shown.out
    verified = await here.run("sessions", "verify", "last")
    assert verified.out.startswith("ok s1: ")
    (row,) = (await here.run("sessions", "list")).lines
    assert row.startswith("s1   ")
    assert row.endswith("   1 turn     done             the question")
    assert (await here.run("sessions", "list", "--ids")).out == "s1\n"


@pytest.mark.holds("CL8", "CL50")
async def test_a_session_is_shown_as_markdown_and_what_is_not_there_is_refused(
    cli: CommandLine,
) -> None:
    async with open_model_server(says("<img src=x>", "**two**")) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "s1", "the garden question")
        await here.run("run", "--session", "s1", "and the next")
    shown = await here.run("sessions", "show", "--format", "md")
    assert shown.code == 0
    assert shown.out.startswith("# Session `s1`\n\n- title: `the garden question`\n")
    assert "**Reply**\n\n```markdown\n<img src=x>\n```\n" in shown.out
    assert "**Reply**\n\n> **two**\n\n*Turn 2:* `done`\n" in shown.out
    second = await here.run("sessions", "show", "garden", "--format", "md", "--turn", "2")
    assert second.out.startswith("\n## Turn 2\n")
    show = ("sessions", "show", "s1")
    refused(await here.run(*show, "--turn", "9"), "has no turn 9; its last one is 2", code=2)
    refused(await here.run(*show, "--step", "2.9"), "has no step 2.9; its last one is 2.1", code=2)
    refused(await here.run(*show, "--format", "md", "--turn", "9"), "has no turn 9", code=2)
    wrong = await here.run(*show, "--format", "md", "--grep", "x")
    refused(wrong, "--format md tells whole turns; leave out --grep", code=2)
    refused(await here.run("sessions", "rm", "garden"), "no session 'garden' is stored", code=2)


@pytest.mark.holds("CL8")
async def test_a_damaged_session_is_listed_with_its_reason_and_fails_to_verify(
    cli: CommandLine,
) -> None:
    async with open_model_server(says("1", "2")) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "good", "x")
        await here.run("run", "--session", "bad", "x")
    (log,) = cli.home.rglob("bad*/*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join((*lines[:3], b'{"garbage\n', *lines[3:])))
    ran = await here.run("sessions", "verify", "bad")
    refused(ran, "bad", code=2)
    assert (await here.run("sessions", "verify", "good")).code == 0
    log.write_bytes(b"nonsense\n" + b"".join(lines[1:]))
    listed = await here.run("sessions", "list")
    assert any(line.startswith("bad") and "unreadable: " in line for line in listed.lines)


@pytest.mark.holds("CL8")
async def test_a_broken_composition_does_not_keep_anybody_from_reading(cli: CommandLine) -> None:
    async with open_model_server(says("1")) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "s1", "x")
    (cli.workspace / "dsh.yml").write_text("- {name: no-such-plugin}\n", encoding="utf-8")
    (cli.home / "settings.yml").write_text("- {id: fs, config: {nope: 1}}\n", encoding="utf-8")
    assert (await here.run("sessions", "show", "s1")).code == 0


async def test_a_setting_may_put_sessions_elsewhere(cli: CommandLine, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    setting = f"- {{id: session-jsonl, config: {{root: {root}}}}}\n"
    (cli.home / "settings.yml").write_text(setting, encoding="utf-8")
    async with open_model_server(says("1")) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "s1", "x")
        assert "s1" in (await here.run("sessions", "list")).out
    assert list(root.rglob("*.jsonl"))
