"""Servers as processes: rubbish on their output, deaths, deadlines, cancellation, and their end."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from dsh import catalog as ev
from dsh.boot import ProcessEnviron
from dsh.boot.environ import EnvironCredentials, environ_plugin
from dsh.testing import Committed, ToolRoom, open_tool_room
from dsh.testing.processes import alive, all_gone
from dsh_plugins.mcp import mcp
from dsh_plugins.mcp.catalog import McpConfig, McpServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from dsh.kernel import Fiber

#: A server of the standard library alone. A test's own part comes between the two.
BEGIN = r"""
import json, os, signal, subprocess, sys
def w(data): sys.stdout.buffer.write(data); sys.stdout.buffer.flush()
def say(**m): w(json.dumps({"jsonrpc": "2.0", **m}).encode() + b"\n")
def tool(name, **more): return {"name": name, "inputSchema": {"type": "object"}, **more}
def text(words): return {"content": [{"type": "text", "text": words}]}
seen = []
tools = [tool("echo"), tool("seen"), tool("hang"), tool("die")]
def greeted(m): return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
def listed(m): return {"tools": tools}
def called(m):
    name, given = m["params"]["name"], m["params"]["arguments"]
    if name == "die": sys.stderr.write("boom: no memory\n"); sys.exit(3)
    if name == "hang": return None
    if name == "seen": return text(json.dumps(seen))
    return text(given.get("text", "ok"))
"""
END = r"""
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m or "method" not in m:
        seen.append(m); continue
    r = {"initialize": greeted, "tools/list": listed, "tools/call": called}[m["method"]](m)
    if r is not None: say(id=m["id"], result=r)
"""
PATIENCE = 20


def server(part: str = "") -> McpServer:
    """The configuration of a server with this part of its own."""
    return McpServer(command=sys.executable, args=("-I", "-S", "-c", BEGIN + part + END))


@attrs.define
class Desk:
    """A tool room with the plugin."""

    room: ToolRoom
    fiber: Fiber
    caplog: pytest.LogCaptureFixture
    news: trio.Event = attrs.field(factory=trio.Event)

    def names(self) -> list[str]:
        return sorted(self.room.tools.names())

    async def call(self, name: str, arguments: Mapping[str, object] | None = None) -> Committed:
        with trio.fail_after(PATIENCE):
            finished = await self.room.run(name, {} if arguments is None else arguments)
        return Committed("c", 0, finished.result, finished.decided_by)

    def warnings(self) -> list[str]:
        return [one.getMessage() for one in self.caplog.records if one.name == "dsh.plugin.mcp"]

    async def has(self, name: str) -> None:
        """Wait until the tool is offered."""
        with trio.fail_after(PATIENCE):
            while name not in self.names():
                await self.news.wait()

    def changed(self, _change: ev.tools.Change) -> None:
        self.news.set()
        self.news = trio.Event()


@asynccontextmanager
async def open_desk(
    caplog: pytest.LogCaptureFixture,
    servers: Mapping[str, McpServer],
    *,
    variables: Mapping[str, str] | None = None,
    wait_ms: float = 20_000,
    root: Path | None = None,
) -> AsyncGenerator[Desk, None]:
    caplog.set_level(logging.WARNING, "dsh.plugin.mcp")
    environ = ProcessEnviron(variables if variables is not None else {"PATH": os.defpath})
    config = McpConfig(servers=servers, wait_ms=wait_ms, root=None if root is None else str(root))
    async with open_tool_room() as room:
        await room.kernel.mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        fiber = room.kernel.mount(mcp, config)
        with trio.fail_after(PATIENCE):
            await fiber.ready()
        desk = Desk(room, fiber, caplog)
        (await room.plugin("watcher")).on(ev.tools.CHANGE)(desk.changed)
        yield desk


#: The fake server of case 080, as it stands there.
POLLUTER = r"""
import json, sys
def w(b): sys.stdout.buffer.write(b); sys.stdout.buffer.flush()
w(b"Starting server v1.0\n"); w(b'{"level":"info","msg":"ready"}\n'); w(b"\xff\xfe\n"); w(b"\n")
sys.stderr.write("e" * 3_000_000); sys.stderr.flush()
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    w(b"debug: got " + m["method"].encode() + b"\n")
    if m["method"] == "initialize": r = {"protocolVersion": "2025-06-18", "capabilities": {}}
    elif m["method"] == "tools/list": r = {"tools": [{"name": "echo", "inputSchema": {}}]}
    else: r = {"content": [{"type": "text", "text": "a\u2028b"}]}
    s = json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}, ensure_ascii=False)
    s = s.encode() + b"\r\n"
    w(s[:7]); w(s[7:])
"""


@pytest.mark.holds("case-080", "MC1")
async def test_rubbish_on_the_output_is_skipped_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    polluter = McpServer(command=sys.executable, args=("-I", "-c", POLLUTER))
    async with open_desk(caplog, {"loud": polluter, "good": server()}) as desk:
        for _ in range(3):
            done = await desk.call("mcp__loud__echo")
            assert (done.code, done.text) == (None, "a\u2028b")
        assert (await desk.call("mcp__good__echo", {"text": "x"})).text == "x"
        (warning,) = desk.warnings()
    assert "'loud'" in warning
    assert "Starting server v1.0" in warning
    assert "such lines are skipped" in warning


@pytest.mark.holds("case-080", "MC1")
async def test_half_a_line_at_the_end_is_an_answer_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    part = """
def called(m):
    w(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": text("last words")}).encode())
    sys.exit(0)
"""
    async with open_desk(caplog, {"s": server(part)}) as desk:
        assert (await desk.call("mcp__s__echo")).text == "last words"


@pytest.mark.holds("MC7")
async def test_an_answer_beyond_the_bound_fails_its_own_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    part = """
def called(m):
    if m["params"]["name"] == "echo":
        big = json.dumps(text("x" * 9_000_000))
        w(b'{"result": ' + big.encode() + b', "jsonrpc": "2.0", "id": %d}\\n' % m["id"])
        return None
    return text("small")
"""
    async with open_desk(caplog, {"s": server(part)}) as desk:
        assert (await desk.call("mcp__s__echo")).code == "MCP_TOO_LARGE"
        assert (await desk.call("mcp__s__seen")).text == "small"
        assert desk.warnings() == []


@pytest.mark.holds("MC2")
async def test_a_server_that_dies_fails_its_calls_and_is_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_desk(caplog, {"s": server(), "other": server()}) as desk:
        done = await desk.call("mcp__s__die")
        assert done.code == "MCP_SERVER_GONE"
        assert "exited with status 3" in done.text
        assert "not known" in done.text
        assert "boom: no memory" in done.text
        assert "mcp__s__echo" in desk.names()  # it comes back; the prompt stays as it was
        assert (await desk.call("mcp__other__echo")).text == "ok"
        assert (await desk.call("mcp__s__echo", {"text": "again"})).text == "again"
        (warning,) = desk.warnings()
    assert "MCP server 's' exited with status 3" in warning
    assert "started again in 0.5 s" in warning


@pytest.mark.holds("MC2")
async def test_a_server_that_keeps_failing_is_given_up(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    # It serves once; whenever it is started again it fails at once.
    part = f"""
if os.path.exists({str(tmp_path / "mark")!r}): sys.exit("no licence")
open({str(tmp_path / "mark")!r}, "w").close()
"""
    async with open_desk(caplog, {"s": attrs.evolve(server(part), restarts=1)}) as desk:
        await desk.call("mcp__s__die")
        done = await desk.call("mcp__s__echo")  # waits for it, and is told
        assert done.code == "MCP_NOT_RUNNING"
        assert "no licence" in done.text
        assert desk.names() == []
        last = desk.warnings()[-1]
    assert "no licence" in last
    assert "it is given up" in last


@pytest.mark.holds("MC3")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (McpServer(command="/no/such/program"), "No such file"),
        (McpServer(command=sys.executable, args=("-c", "print()"), cwd="/no/such"), "No such file"),
        (server("sys.exit('bad key sk-canary-1')"), "bad key [the value of"),
        (server("sys.stderr.write('sk-canary-1' + 'z' * 4091); sys.exit(1)"), "zzz"),
        (server("os.kill(os.getpid(), 9)"), "was ended by signal 9"),
        (server("os.close(1); signal.pause()"), "closed its output"),
        (attrs.evolve(server("signal.pause()"), start_timeout_ms=200), "start within 0.2 s"),
        (server("def greeted(m): return {'protocolVersion': '1'}"), "version '1'"),
        (server("def listed(m): say(id=m['id'], error={'code': -1, 'message': 'n0'})"), "n0 (-1)"),
    ],
)  # fmt: skip
async def test_a_start_that_fails_is_told_and_harms_nobody(
    caplog: pytest.LogCaptureFixture, given: McpServer, words: str
) -> None:
    variables = {"PATH": os.defpath, "SERVICE_TOKEN": "sk-canary-1"}
    bad = attrs.evolve(given, env_from=("SERVICE_TOKEN",))
    async with open_desk(caplog, {"bad": bad, "good": server()}, variables=variables) as desk:
        assert (await desk.call("mcp__good__echo")).text == "ok"
        assert [name for name in desk.names() if "bad" in name] == []
        (warning,) = desk.warnings()
    assert "MCP server 'bad'" in warning
    assert words in warning
    assert "ary-1" not in warning


@pytest.mark.holds("MC3")
async def test_a_slow_server_brings_its_tools_when_it_is_ready(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = server(f"open({str(gate)!r}).read()")
    async with open_desk(caplog, {"slow": slow, "quick": server()}, wait_ms=0) as desk:
        await desk.has("mcp__quick__echo")
        assert "mcp__slow__echo" not in desk.names()
        (warning,) = desk.warnings()
        assert "still starting after 0 s: " in warning
        assert "slow" in warning
        with open(await trio.to_thread.run_sync(os.open, gate, os.O_WRONLY), "w"):  # noqa: ASYNC230, PTH123
            pass
        await desk.has("mcp__slow__echo")
        assert (await desk.call("mcp__slow__echo")).text == "ok"


@pytest.mark.holds("MC4")
async def test_a_call_that_takes_too_long_is_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    async with open_desk(caplog, {"s": attrs.evolve(server(), call_timeout_ms=100)}) as desk:
        done = await desk.call("mcp__s__hang")
        assert done.code == "MCP_TIMEOUT"
        assert "within 0.1 s" in done.text


@pytest.mark.holds("MC4")
async def test_a_cancelled_call_is_taken_back_and_keeps_its_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # It says that the call has arrived by way of its progress.
    part = """
def called(m):
    name = m["params"]["name"]
    if name == "hang":
        token = m["params"]["_meta"]["progressToken"]
        given = {"progressToken": token, "progress": 1, "message": "here\\x1b[2J"}
        say(method="notifications/progress", params=given)
        return None
    return text(json.dumps(seen))
"""
    async with open_desk(caplog, {"s": server(part)}) as desk:
        shown: list[str] = []

        @desk.room.kernel.root.on(ev.tools.PROGRESS)
        def told(event: ev.tools.Progress) -> None:
            shown.append(event.text)
            desk.room.signal.cancel()

        done = await desk.call("mcp__s__hang")
        assert done.code == "ABORTED"
        assert shown == ["here\\x1b[2J\n"]
        seen = await desk.room.tools.execute(
            attrs.evolve(desk.room.call("mcp__s__seen"), signal=type(desk.room.signal)())
        )
    text = Committed("c", 0, seen.result, None).text
    assert '"method": "notifications/cancelled"' in text
    assert '"requestId": 3' in text
    assert '"notifications/initialized"' in text


async def test_the_server_may_ask_and_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    part = """
def called(m):
    say(id="p", method="ping")
    say(id=77, method="sampling/createMessage", params={})
    answers = [json.loads(sys.stdin.readline()) for _ in range(2)]
    return text(json.dumps(answers))
"""
    async with open_desk(caplog, {"s": server(part)}) as desk:
        text = (await desk.call("mcp__s__echo")).text
    assert '{"jsonrpc": "2.0", "id": "p", "result": {}}' in text
    assert '"code": -32601' in text


@pytest.mark.holds("MC5")
async def test_a_changed_list_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    part = """
def called(m):
    tools[:] = [tool("echo"), tool("fresh")]
    say(method="notifications/tools/list_changed")
    return text("changed")
"""
    async with open_desk(caplog, {"s": server(part)}) as desk:
        kept = desk.room.tools.get("mcp__s__echo", None)
        assert (await desk.call("mcp__s__echo")).text == "changed"
        await desk.has("mcp__s__fresh")
        assert desk.names() == ["mcp__s__echo", "mcp__s__fresh"]
        assert desk.room.tools.get("mcp__s__echo", None) is kept


@pytest.mark.holds("MC8")
async def test_the_environment_has_only_the_keys_that_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    part = "def called(m): return text(json.dumps(dict(os.environ)))"
    variables = {
        "PATH": os.defpath,
        "HOME": "/home/x",
        "DEEPSEEK_API_KEY": "canary-a",
        "GITHUB_TOKEN": "canary-b",
    }
    given = attrs.evolve(server(part), env={"MODE": "fast"}, env_from=("GITHUB_TOKEN",))
    async with open_desk(caplog, {"s": given}, variables=variables) as desk:
        text = (await desk.call("mcp__s__echo")).text
    assert '"HOME": "/home/x"' in text
    assert '"MODE": "fast"' in text
    assert '"GITHUB_TOKEN": "canary-b"' in text
    assert "canary-a" not in text


@pytest.mark.holds("MC8")
async def test_unloading_leaves_nothing_alive(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    # It ignores TERM and the end of its input, and so does what it has started.
    part = f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stubborn = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", stubborn], stdout=2)
open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
import atexit; atexit.register(signal.pause)
"""
    async with open_desk(caplog, {"s": server(part)}) as desk:
        pids = [int(one) for one in (tmp_path / "pids").read_text().split()]
        assert [alive(pid) for pid in pids] == [True, True]
        with trio.fail_after(PATIENCE):
            await desk.fiber.dispose()
        # The grandchild is reaped by whoever adopted it.
        assert await all_gone(*pids, within=PATIENCE)
        assert (desk.names(), desk.warnings()) == ([], [])


@pytest.mark.holds("MC8")
async def test_a_server_ends_with_its_input_and_may_tidy_up(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    part = f"import atexit; atexit.register(lambda: open({str(tmp_path / 'tidy')!r}, 'w').close())"
    async with open_desk(caplog, {"s": server(part)}) as desk:
        await desk.fiber.dispose()
        assert (tmp_path / "tidy").exists()
