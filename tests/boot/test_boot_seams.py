"""Capability seams: the provider is swapped, and nobody who uses the capability changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import frozen

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.boot import Harness, ProcessEnviron, Row, open_harness
from dsh.catalog import records
from dsh.kernel import Context, Plugin, plugin, required
from dsh.seams.persistence import PERSISTENCE, SessionPersistence
from dsh.seams.shell import SHELL, Shell
from dsh.session import SESSIONS, verify
from dsh.testing import MemoryStore, PlayedShell, played_shell
from dsh.tools import TOOLS, ToolRuntime
from dsh_plugins.shell import bash_tool

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTED = records.AgentOptions(provider="scripted", model="scripted")
CALL = {"text": "Which?", "tools": ({"name": "bash", "arguments": {"command": "uname"}},)}
ROWS = (
    Row(name="scripted", config={"script": (CALL, {"text": "Done."}) * 3}),
    Row(name="permissions", config={"rules": ({"decision": "allow", "tool": "bash"},)}),
)


@frozen
class UsesShell:
    """What the consumer knows: the seam, and the room where tools are registered."""

    shell: Shell = required(SHELL)
    tools: ToolRuntime = required(TOOLS)


def consumer(loads: list[Shell]) -> Plugin:
    """The tool `bash` over whatever is behind the seam."""

    @plugin(name="bash", deps=UsesShell)
    async def bash(ctx: Context, config: None, deps: UsesShell) -> None:
        loads.append(deps.shell)
        deps.tools.register(ctx, bash_tool(deps.shell))

    return bash


def printed(harness: Harness) -> str:
    """What the last command printed, as the model reads it."""
    session = harness.service(SESSIONS).get("mine")
    assert session is not None
    results = [event.data for event in session.events if isinstance(event.data, ev.tool.Result)]
    (block,) = results[-1].message.content
    assert isinstance(block, records.TextBlock)
    return block.text


@pytest.mark.holds("BO24")
async def test_another_shell_changes_no_tool_and_may_come_while_a_session_runs(
    tmp_path: Path,
) -> None:
    first, second = PlayedShell({"uname": "Plan 9\n"}), PlayedShell({"uname": "Multics\n"})
    loads: list[Shell] = []
    one = played_shell(first)
    async with open_harness(
        profile="demo",
        rows=(*ROWS, Row(name="shell", disabled=True)),
        home=tmp_path / "home",
        cwd=tmp_path,
        environ=ProcessEnviron({}),
        plugins=[consumer(loads), one],
    ) as harness:
        handle = await harness.agents.create("mine", options=SCRIPTED, cwd=str(tmp_path))
        await handle.agent.ask(user_message("which system?"))
        assert printed(harness) == "Plan 9"
        assert [ran.command for ran in first.ran] == ["uname"]
        await harness.rows["played-shell"].fiber.dispose()
        await harness.kernel.mount(played_shell(second), slot=99).ready()
        await harness.kernel.settled()
        await handle.agent.ask(user_message("and now?"))
        assert printed(harness) == "Multics"
        assert loads == [first, second]
        assert len(first.ran) == len(second.ran) == 1


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
