"""Mounting and unloading with a real process, over and over: nothing is left of any of them."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
import trio

from dsh.boot import ProcessEnviron
from dsh.boot.environ import EnvironCredentials, environ_plugin
from dsh.kernel import FiberState
from dsh.testing import open_tool_room
from dsh_plugins.mcp import mcp
from dsh_plugins.mcp.catalog import McpConfig, McpServer

SERVER = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["method"] == "initialize": r = {"protocolVersion": "2025-06-18", "capabilities": {}}
    else: r = {"tools": [{"name": "echo"}]}
    if "id" in m: print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""
TIMES = 8


def children() -> int:
    """Processes of ours, zombies too."""
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return len(task.read_text().split())


def descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.holds("MC8")
async def test_nothing_is_left_of_servers_that_come_and_go() -> None:
    environ = ProcessEnviron({"PATH": os.defpath})
    good = McpServer(command=sys.executable, args=("-I", "-S", "-c", SERVER))
    bad = McpServer(command=sys.executable, args=("-I", "-S", "-c", "exit(1)"), restarts=0)
    config = McpConfig(servers={"good": good, "bad": bad}, wait_ms=20_000)
    async with open_tool_room() as room:
        await room.kernel.mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        seen: list[tuple[int, int, int]] = []
        for _ in range(TIMES):
            with trio.fail_after(20):
                fiber = room.kernel.mount(mcp, config)
                await fiber.ready()
                assert room.tools.names() == {"mcp__good__echo"}
                await fiber.dispose()
            assert fiber.state is FiberState.DISPOSED
            assert room.tools.names() == frozenset()
            tasks = trio.lowlevel.current_statistics().tasks_living
            seen.append((children(), descriptors(), tasks))
    assert len(set(seen[1:])) == 1
    assert seen[-1][0] == seen[0][0]
