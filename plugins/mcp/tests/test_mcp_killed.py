"""The harness is killed: no server outlives it, whatever the server ignores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.testing.processes import alive, all_gone

if TYPE_CHECKING:
    from pathlib import Path

#: A harness as far as the plugin goes. It writes its tools when they are there, and waits.
HARNESS = """
import os, sys, trio
from dsh.boot import ProcessEnviron
from dsh.boot.environ import EnvironCredentials, environ_plugin
from dsh.testing import open_tool_room
from dsh_plugins.mcp import mcp
from dsh_plugins.mcp.catalog import McpConfig, McpServer

async def main(*sources):
    environ = ProcessEnviron({"PATH": os.defpath})
    servers = {
        f"s{number}": McpServer(command=sys.executable, args=("-I", "-S", "-c", source))
        for number, source in enumerate(sources)
    }
    async with open_tool_room() as room:
        await room.kernel.mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        await room.kernel.mount(mcp, McpConfig(servers=servers, wait_ms=20_000)).ready()
        print(*sorted(room.tools.names()), flush=True)
        await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""
#: It ignores signals and the end of its input, and so do two that it started: one in its group,
#: one in a group of its own.
STUBBORN = """
import json, os, signal, subprocess, sys
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
wait = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
null = subprocess.DEVNULL
started = [subprocess.Popen(wait, stdin=null, stdout=null, stderr=null, process_group=group)
           for group in (None, 0)]
open({pids!r}, "w").write(" ".join(str(pid) for pid in (os.getpid(), *(p.pid for p in started))))
for line in sys.stdin:
    m = json.loads(line)
    if m["method"] == "initialize": r = {{"protocolVersion": "2025-06-18", "capabilities": {{}}}}
    else: r = {{"tools": [{{"name": "echo"}}]}}
    if "id" in m: print(json.dumps({{"jsonrpc": "2.0", "id": m["id"], "result": r}}), flush=True)
signal.pause()
"""
PATIENCE = 30


@pytest.mark.holds("MC8")
async def test_no_server_outlives_a_harness_that_is_killed(tmp_path: Path) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    process = subprocess.Popen(  # noqa: ASYNC220 - a process of its own, to be killed
        [sys.executable, "-c", HARNESS, *(STUBBORN.format(pids=str(file)) for file in files)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    pids: list[int] = []
    try:
        assert process.stdout is not None
        with trio.fail_after(PATIENCE):
            names = await trio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
        assert names.split() == [b"mcp__s0__echo", b"mcp__s1__echo"]
        pids = [int(pid) for file in files for pid in file.read_text().split()]
        assert [alive(pid) for pid in pids] == [True] * 6
        process.send_signal(signal.SIGKILL)
        assert await all_gone(*pids, within=PATIENCE)
    finally:
        process.kill()
        process.communicate()
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
