"""Sessions copied and removed: fork, salvage, replay, rm, verify --all, in either kind of store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing.command_line import CommandLine, refused
from dsh.testing.model_server import open_model_server

if TYPE_CHECKING:
    from pathlib import Path


def says(*texts: str) -> list[ScriptEntry]:
    return [ScriptEntry(text=text) for text in texts]


def log_of(cli: CommandLine, session_id: str) -> Path:
    (path,) = cli.home.rglob(f"{session_id}/session.jsonl")
    return path


@pytest.fixture(params=["jsonl", "sqlite"])
def stored(request: pytest.FixtureRequest, cli: CommandLine) -> CommandLine:
    """The command with its sessions in files, or in a database."""
    if request.param == "sqlite":
        settings = f"""\
- {{id: session-jsonl, disabled: true}}
- {{name: session-sqlite, config: {{path: {cli.home / "sessions.db"}}}}}
"""
        (cli.home / "settings.yml").write_text(settings, encoding="utf-8")
    return cli


@pytest.mark.holds("CL8")
async def test_a_fork_goes_its_own_way(stored: CommandLine) -> None:
    async with open_model_server(says("one", "two", "else", "three"), strict=True) as server:
        here = stored.talking_to(server)
        await here.run("run", "--session", "s1", "first")
        await here.run("run", "--session", "s1", "second")
        forked = await here.run("sessions", "fork", "s1", "--turn", "1")
        assert forked.code == 0
        child = forked.out.strip()
        assert f"forked s1 after 1 turn, {forked.err.split()[5]} events" in forked.err
        assert (await here.run("run", "--resume", child, "other")).out == "else\n"
        assert (await here.run("run", "--resume", "s1", "third")).out == "three\n"
        assert (await here.run("sessions", "verify", "--all")).code == 0
        assert (await here.run("sessions", "show", child, "--turn", "2")).code == 0
    bodies = [request.body for request in server.requests]
    assert b"first" in bodies[2]
    assert b"second" not in bodies[2]
    assert b"other" not in bodies[3]


@pytest.mark.holds("CL51")
async def test_a_fork_may_end_with_a_step(stored: CommandLine) -> None:
    call = ScriptedCall(name="glob", arguments='{"pattern": "*"}')
    looks = ScriptEntry(text="I look.", tools=(call,))
    replies = [*says("one"), looks, looks, *says("two", "else")]
    async with open_model_server(replies, strict=True) as server:
        here = stored.talking_to(server)
        await here.run("run", "--session", "s1", "first")
        await here.run("run", "--session", "s1", "second")
        forked = await here.run("sessions", "fork", "s1", "--turn", "2.1")
        child = forked.out.strip()
        assert "forked s1 after 1 turn, " in forked.err
        assert ", up to step 2.1; go on with: " in forked.err
        shown = (await here.run("sessions", "show", child)).out
        assert "turn 2   stopped by you" in shown
        assert (await here.run("run", "--resume", child, "other")).out == "else\n"
        assert (await here.run("sessions", "verify", "--all")).code == 0
        assert (await here.run("sessions", "replay", child)).code == 0
    assert server.refusals == []
    roles = [message["role"] for message in orjson.loads(server.requests[-1].body)["messages"]]
    assert roles[-4:] == ["user", "assistant", "tool", "user"]


@pytest.mark.holds("CL8")
async def test_a_fork_that_cannot_be_is_refused(stored: CommandLine) -> None:
    async with open_model_server(says("one")) as server:
        here = stored.talking_to(server)
        await here.run("run", "--session", "s1", "first")
    refused(await here.run("sessions", "fork", "s1", "--turn", "7"), "last ended turn is 1", code=2)
    refused(await here.run("sessions", "fork", "s1", "--at", "2"), "a turn is open", code=2)
    refused(await here.run("sessions", "fork", "s1", "--at", "999"), "it has seq 0 to", code=2)
    refused(await here.run("sessions", "fork", "s1", "--id", "s1"), "stored already", code=2)
    assert len((await here.run("sessions", "list")).lines) == 1


@pytest.mark.holds("CL8")
async def test_removed_sessions_are_gone(stored: CommandLine) -> None:
    async with open_model_server(says("1", "2", "3")) as server:
        here = stored.talking_to(server)
        for name in ("a", "b", "c"):
            await here.run("run", "--session", name, "x")
    refused(await here.run("sessions", "rm", "a", "nope"), "no session 'nope'", code=2)
    removed = await here.run("sessions", "rm", "a", "c")
    assert removed.code == 0
    assert [line.split(" (")[0] for line in removed.err.splitlines()] == ["removed a", "removed c"]
    assert [line.split()[0] for line in (await here.run("sessions", "list")).lines] == ["b"]


@pytest.mark.holds("CL8")
async def test_a_damaged_log_is_told_salvaged_and_goes_on(cli: CommandLine) -> None:
    async with open_model_server(says("one", "two", "three", "four"), strict=True) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "s1", "first")
        await here.run("run", "--session", "s1", "second")
        await here.run("run", "--session", "fine", "x")
        path = log_of(here, "s1")
        lines = path.read_bytes().splitlines(keepends=True)
        place = next(i for i, line in enumerate(lines) if b'"second"' in line)
        harmed = b"".join((*lines[:place], lines[place][:-20] + b"\n", *lines[place + 1 :]))
        path.write_bytes(harmed)
        told = await here.run("sessions", "verify", "--all")
        assert told.code == 1
        assert any(line.startswith("ok fine: ") for line in told.lines)
        assert any(f"session.jsonl:{place + 1}: not JSON" in line for line in told.lines)
        saved = await here.run("sessions", "salvage", "s1", "--id", "s2")
        assert (saved.code, saved.out) == (0, "s2\n")
        assert "saved 1 turn" in saved.err
        assert f"missing: {path}:{place + 1}: not JSON" in saved.err
        assert f"{len(lines) - place - 1} lines" in saved.err
        assert path.read_bytes() == harmed
        assert (await here.run("sessions", "verify", "s2")).code == 0
        again = await here.run("run", "--resume", "s2", "go on")
        assert (again.code, again.err.splitlines()[0].split(" after ")[1]) == (0, "1 turn")
        sound = await here.run("sessions", "salvage", "fine")
        assert (sound.code, sound.out) == (0, "")
        assert "fine is sound" in sound.err


@pytest.mark.holds("CL8")
async def test_a_log_without_anything_left_is_told(cli: CommandLine) -> None:
    async with open_model_server(says("one")) as server:
        here = cli.talking_to(server)
        await here.run("run", "--session", "s1", "first")
    log_of(here, "s1").write_bytes(b"")
    refused(await here.run("sessions", "salvage", "s1"), "nothing of session 's1'", code=2)
    assert (await here.run("sessions", "rm", "s1")).code == 0
    assert (await here.run("sessions", "list")).lines == []


@pytest.mark.holds("CL8")
async def test_a_session_is_replayed_without_a_model(stored: CommandLine) -> None:
    (stored.workspace / "a.txt").write_text("here\n", encoding="utf-8")
    read = ScriptedCall(name="read_file", arguments='{"path": "a.txt"}')
    bash = ScriptedCall(name="bash", arguments='{"command": "echo x >> ran"}')
    script = [ScriptEntry(text="I look", tools=(read, bash)), *says("done", "two")]
    async with open_model_server(script, strict=True) as server:
        here = stored.talking_to(server)
        await here.run("run", "--session", "s1", "--yolo", "first")
        await here.run("run", "--session", "s1", "second")
        asked = len(server.requests)
        assert (here.workspace / "ran").read_text(encoding="utf-8") == "x\n"
        (here.workspace / "a.txt").write_text("changed\n", encoding="utf-8")
        same = await here.run("sessions", "replay", "s1")
        assert same.out == "turn 1: the same, 2 requests\nturn 2: the same, 1 request\n", same
        assert same.code == 0
        assert len(server.requests) == asked
    assert (here.workspace / "ran").read_text(encoding="utf-8") == "x\n"
    assert len((await here.run("sessions", "list")).lines) == 1
    setting = "- {id: system-prompt, config: {persona: You are somebody else.}}\n"
    with (here.home / "settings.yml").open("a", encoding="utf-8") as file:
        file.write(setting)
    changed = await here.run("sessions", "replay", "s1", "--turn", "2")
    assert changed.code == 1
    assert "turn 2: differs at turn 2, step 1: messages[" in changed.out
    assert "You are somebody else" in changed.out
