"""Capability seams: the provider is swapped, and nobody who uses the capability changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.boot import Harness, ProcessEnviron, Row, open_harness, process_environ
from dsh.catalog import records
from dsh.kernel import Context, Plugin, plugin
from dsh.seams.persistence import PERSISTENCE, SessionPersistence
from dsh.session import SESSIONS, verify
from dsh.testing import MemoryFiles, MemoryStore, PlayedShell, memory_files, played_shell

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCRIPTED = records.AgentOptions(provider="scripted", model="scripted")
CALL = {"text": "Which?", "tools": ({"name": "bash", "arguments": {"command": "uname"}},)}
ROWS = (
    Row(name="scripted", config={"script": (CALL, {"text": "Done."}) * 3}),
    Row(name="permissions", config={"rules": ({"decision": "allow", "tool": "bash"},)}),
)


def results(harness: Harness) -> list[str]:
    """What each call returned, as the model reads it."""
    session = harness.service(SESSIONS).get("mine")
    assert session is not None
    texts: list[str] = []
    for event in session.events:
        if isinstance(event.data, ev.tool.Result):
            (block,) = event.data.message.content
            assert isinstance(block, records.TextBlock)
            texts.append(block.text)
    return texts


def printed(harness: Harness) -> str:
    """What the last command printed."""
    return results(harness)[-1]


@pytest.mark.holds("BO24")
async def test_another_shell_changes_no_tool_and_may_come_while_a_session_runs(
    tmp_path: Path,
) -> None:
    first, second = PlayedShell({"uname": "Plan 9\n"}), PlayedShell({"uname": "Multics\n"})
    async with open_harness(
        profile="demo",
        rows=(*ROWS, Row(name="shell-local", disabled=True)),
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=ProcessEnviron({}),
        plugins=[played_shell(first)],
    ) as harness:
        handle = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        await handle.agent.ask(user_message("which system?"))
        assert printed(harness) == "Plan 9"
        assert [ran.command for ran in first.ran] == ["uname"]
        await harness.rows["played-shell"].fiber.dispose()
        await harness.kernel.settled()
        await handle.agent.ask(user_message("and without one?"))
        assert "no tool named 'bash'" in printed(harness)
        await harness.kernel.mount(played_shell(second), slot=99).ready()
        await harness.kernel.settled()
        await handle.agent.ask(user_message("and now?"))
        assert printed(harness) == "Multics"
        assert len(first.ran) == len(second.ran) == 1


@pytest.mark.holds("BO24")
async def test_the_kept_shell_takes_the_place_of_the_other_and_ends_with_its_agent(
    tmp_path: Path,
) -> None:
    call = {"text": "Which?", "tools": ({"name": "bash", "arguments": {"command": "echo $$"}},)}
    async with open_harness(
        profile="demo",
        rows=(
            *ROWS[1:],
            Row(name="scripted", config={"script": (call, {"text": "Done."}) * 2}),
            Row(name="shell-local", disabled=True),
            Row(name="shell-session"),
        ),
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=process_environ(),
    ) as harness:
        handle = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        for _ in range(2):
            await handle.agent.ask(user_message("which process?"))
        one, other = results(harness)
        assert one == other  # both commands ran in the same bash
        await handle.aclose()
        with pytest.raises(ProcessLookupError):
            os.kill(int(one), 0)


def file_call(name: str, **arguments: str) -> Mapping[str, object]:
    """A reply that calls one file tool."""
    return {"text": "So.", "tools": ({"name": name, "arguments": arguments},)}


@pytest.mark.holds("BO24")
async def test_other_files_change_no_tool_no_rule_and_no_observation(tmp_path: Path) -> None:
    files = MemoryFiles({"/work/a.txt": "alpha\nbeta\n", "/work/b/c.txt": "gamma\n", "/out": "x\n"})
    replies = (
        file_call("edit_file", path="a.txt", old_string="beta", new_string="delta"),
        file_call("read_file", path="a.txt"),
        file_call("edit_file", path="a.txt", old_string="beta", new_string="delta"),
        file_call("grep", pattern="a$", path="/work"),
        file_call("glob", pattern="*.txt"),
        file_call("write_file", path="../out", content="escaped"),
        file_call("write_file", path="b/d.txt", content="new\n"),
        {"text": "Done."},
    )
    rules = tuple({"decision": "allow", "tool": tool} for tool in ("edit_file", "write_file"))
    async with open_harness(
        profile="demo",
        rows=(
            Row(name="scripted", config={"script": replies}),
            Row(name="permissions", config={"rules": rules}),
            Row(name="fs-local", disabled=True),
        ),
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=ProcessEnviron({}),
        plugins=[memory_files(files)],
    ) as harness:
        handle = await harness.agents.create("mine", options=SCRIPTED, cwd="/work")
        await handle.agent.ask(user_message("look around"))
        unread, read, edited, grepped, found, escaped, written = results(harness)
    assert "was not read in this session" in unread
    assert read.startswith("1\talpha\n2\tbeta\n[lines 1-2 of 2")
    assert edited == "edited a.txt (1 place, the first in line 2)"
    assert grepped.splitlines()[0] == "a.txt:1: alpha"
    assert found.splitlines()[:2] == ["a.txt", "b/c.txt"]
    assert "outside the workspace (/out)" in escaped
    assert written == "created b/d.txt (4 bytes)"
    assert files.texts == {
        "/out": "x\n",
        "/work/a.txt": "alpha\ndelta\n",
        "/work/b/c.txt": "gamma\n",
        "/work/b/d.txt": "new\n",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["home"]  # noqa: ASYNC240 - a test's own folder


@plugin(name="session-memory", provides=(PERSISTENCE,))
async def session_memory(ctx: Context) -> None:
    """A third store behind the seam: it keeps nothing when the house is gone."""
    ctx.provide(PERSISTENCE, MemoryStore())


async def logged(tmp_path: Path, name: str, rows: tuple[Row, ...], *given: Plugin) -> list[str]:
    """What a turn leaves in the store: the types of its events, and what `verify` says of them."""
    async with open_harness(
        profile="demo",
        rows=(*ROWS, *rows),
        home=tmp_path / name,
        cwd=tmp_path,
        environ=ProcessEnviron({}),
        plugins=given,
    ) as harness:
        handle = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        await handle.agent.ask(user_message("which system?"))
        await handle.aclose()
        store: SessionPersistence = harness.service(PERSISTENCE)
        log = await store.read("mine")
        assert [one.id for one in await store.list()] == ["mine"]
        return [event.type for event in log.events] + [str(problem) for problem in verify(log)]


@pytest.mark.holds("BO24")
async def test_every_store_keeps_the_same_log_of_the_same_turn(tmp_path: Path) -> None:
    without = Row(name="session-jsonl", disabled=True)
    sqlite = Row(name="session-sqlite", config={"path": str(tmp_path / "sessions.db")})
    files = await logged(tmp_path, "files", ())
    assert files.count("tool/result") == 1
    assert await logged(tmp_path, "database", (without, sqlite)) == files
    assert await logged(tmp_path, "memory", (without,), session_memory) == files
