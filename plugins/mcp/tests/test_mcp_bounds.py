"""Servers that ask, list and warn without end, and one that left something behind."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.boot import ProcessEnviron
from dsh.boot.environ import EnvironCredentials, environ_plugin
from dsh.testing import Committed, ToolRoom, open_tool_room
from dsh.testing.processes import alive
from dsh_plugins.mcp import mcp
from dsh_plugins.mcp.catalog import McpConfig, McpServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

PATIENCE = 20
#: A test puts its own part between the two.
BEGIN = r"""
import json, os, subprocess, sys
def say(**m): print(json.dumps({"jsonrpc": "2.0", **m}), flush=True)
def text(words): return {"content": [{"type": "text", "text": words}]}
def called(name): return text("ok")
answers = 0
tools = [{"name": "first"}, {"name": "second"}]
"""
END = r"""
for line in sys.stdin:
    m = json.loads(line)
    if "method" not in m: answers += 1
    elif m["method"] == "initialize":
        say(id=m["id"], result={"protocolVersion": "2025-06-18", "capabilities": {}})
    elif m["method"] == "tools/list": say(id=m["id"], result={"tools": tools})
    elif m["method"] == "tools/call": say(id=m["id"], result=called(m["params"]["name"]))
"""


@asynccontextmanager
async def open_server(part: str) -> AsyncGenerator[ToolRoom, None]:
    """A tool room with the plugin and one server `s`."""
    environ = ProcessEnviron({"PATH": os.defpath})
    given = McpServer(command=sys.executable, args=("-I", "-S", "-c", BEGIN + part + END))
    async with open_tool_room() as room:
        await room.kernel.mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        with trio.fail_after(PATIENCE):
            await room.kernel.mount(mcp, McpConfig(servers={"s": given}, wait_ms=20_000)).ready()
        yield room


async def call(room: ToolRoom, name: str) -> Committed:
    with trio.fail_after(PATIENCE):
        finished = await room.run(f"mcp__s__{name}", {})
    return Committed("c", 0, finished.result, finished.decided_by)


@pytest.mark.holds("MC2")
async def test_a_server_has_ended_although_what_it_started_holds_its_output(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    part = f"""
def called(name):
    if name == "second": return text("ok")
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
    open({str(pid)!r}, "w").write(str(child.pid))
    os._exit(3)
"""
    async with open_server(part) as room:
        done = await call(room, "first")
        assert (done.code, "exited with status 3" in done.text) == ("MCP_SERVER_GONE", True)
        assert (await call(room, "second")).text == "ok"
        assert not alive(int(pid.read_text()))


@pytest.mark.holds("MC10")
async def test_a_server_that_asks_and_does_not_read_is_answered_within_bounds() -> None:
    part = """
def called(name):
    if name == "second": return text(str(answers))
    for n in range(20_000): say(id=f"p{n}", method="ping")
    return text("asked")
"""
    async with open_server(part) as room:
        assert (await call(room, "first")).text == "asked"
        answered = int((await call(room, "second")).text)
    assert 200 < answered < 10_000  # the pipe holds some, too


@pytest.mark.holds("MC10")
async def test_not_everything_that_may_be_said_of_a_server_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "dsh.plugin.mcp")
    part = """
tools = [{"name": "x" * 5_000 + str(n), "inputSchema": {"type": 5}} for n in range(90)]
"""
    async with open_server(part):
        warnings = [one.getMessage() for one in caplog.records if one.name == "dsh.plugin.mcp"]
    assert len(warnings) == 51
    assert "left out: " in warnings[0]
    assert max(len(one) for one in warnings) < 1_000
    assert "more to say of it" in warnings[-1]
