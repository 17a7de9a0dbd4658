"""Servers behind an address: sessions, streams of events, refusals, and keys that nobody sees."""

from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs
import pytest
import trio
import trio.testing

from dsh.boot import ProcessEnviron
from dsh.boot.environ import EnvironCredentials, environ_plugin
from dsh.errors import PluginError
from dsh.testing import (
    Committed,
    HttpAnswer,
    HttpAsked,
    HttpStub,
    ToolRoom,
    open_http_stub,
    open_tool_room,
)
from dsh_plugins.mcp import mcp
from dsh_plugins.mcp.catalog import McpConfig, McpServer
from dsh_plugins.mcp.settings import target_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from dsh.kernel import Fiber

PATIENCE = 20
KEY = "canary-key-51e2"

Body: TypeAlias = "dict[str, object]"


@attrs.frozen
class Asked:
    """A message of the plugin, and what came with it."""

    verb: str
    headers: Mapping[str, str]
    message: Body

    @property
    def method(self) -> object:
        return self.message.get("method")


def read(asked: HttpAsked) -> Asked:
    message = cast("Body", json.loads(asked.body)) if asked.body else {}
    return Asked(asked.verb, asked.headers, message)


def result(message: Body, value: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()


def text(words: str) -> Body:
    return {"content": [{"type": "text", "text": words}]}


def events(*data: bytes) -> bytes:
    return b": hello\n\n" + b"".join(b"event: message\ndata: %s\n\n" % one for one in data)


class Stub:
    """A server with one tool `echo`. Put a function into `says` to answer a method otherwise."""

    def __init__(self) -> None:
        self.sessions = 0
        self.says: dict[object, Callable[[Asked], HttpAnswer | None]] = {}

    def answer(self, request: HttpAsked) -> HttpAnswer:
        asked = read(request)
        own = self.says.get(asked.method or asked.verb)
        found = None if own is None else own(asked)
        if found is not None:
            return found
        message = asked.message
        match asked.method:
            case "initialize":
                self.sessions += 1
                session = {"Mcp-Session-Id": f"session-{self.sessions}"}
                greeting: Body = {"protocolVersion": "2025-06-18", "capabilities": {}}
                return HttpAnswer(body=result(message, greeting), headers=session)
            case "tools/list":
                tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
                return HttpAnswer(body=result(message, {"tools": tools}))
            case "tools/call":
                return HttpAnswer(body=result(message, text("from json")))
            case _:
                return HttpAnswer(status=202)


@attrs.define
class Desk:
    """A tool room with the plugin and the stub as its server `s`."""

    room: ToolRoom
    fiber: Fiber
    stub: Stub
    http: HttpStub
    caplog: pytest.LogCaptureFixture

    @property
    def asked(self) -> list[Asked]:
        return [read(asked) for asked in self.http.asked]

    async def until(self, method: str) -> Asked:
        with trio.fail_after(PATIENCE):
            return read(await self.http.until(lambda asked: read(asked).method == method))

    async def echo(self) -> Committed:
        with trio.fail_after(PATIENCE):
            finished = await self.room.run("mcp__s__echo", {})
        return Committed("c", 0, finished.result, finished.decided_by)

    def said(self) -> str:
        return "\n".join(one.getMessage() for one in self.caplog.records)


@asynccontextmanager
async def open_desk(
    caplog: pytest.LogCaptureFixture, stub: Stub, given: McpServer | None = None
) -> AsyncGenerator[Desk, None]:
    caplog.set_level(logging.WARNING, "dsh.plugin.mcp")
    environ = ProcessEnviron({"MCP_KEY": KEY, "SPACED": "a b"})
    async with open_http_stub(stub.answer) as served, open_tool_room() as room:
        base = McpServer(restarts=0) if given is None else given
        servers = {"s": attrs.evolve(base, url=base.url or f"{served.origin}/mcp?q=canary-path")}
        await room.kernel.mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        fiber = room.kernel.mount(mcp, McpConfig(servers=servers, wait_ms=20_000))
        with trio.fail_after(PATIENCE):
            await fiber.ready()
        yield Desk(room, fiber, stub, served, caplog)


@pytest.mark.holds("MC9")
async def test_a_session_from_greeting_to_goodbye(caplog: pytest.LogCaptureFixture) -> None:
    async with open_desk(caplog, Stub(), McpServer(bearer_env="MCP_KEY")) as desk:
        done = await desk.echo()
        assert (done.code, done.text) == (None, "from json")
        with trio.fail_after(PATIENCE):
            await desk.fiber.dispose()
        asked = desk.asked
    first, *rest = asked
    assert first.method == "initialize"
    assert "mcp-session-id" not in first.headers
    assert {one.headers["mcp-session-id"] for one in rest} == {"session-1"}
    assert {one.headers["mcp-protocol-version"] for one in rest} == {"2025-06-18"}
    assert {one.headers["authorization"] for one in asked} == {f"Bearer {KEY}"}
    assert asked[-1].verb == "DELETE"
    assert desk.said() == ""


async def test_an_answer_may_be_a_stream_of_events(caplog: pytest.LogCaptureFixture) -> None:
    stub = Stub()

    def streamed(asked: Asked) -> HttpAnswer:
        progress = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
        data = events(progress, result(asked.message, text("from events")))
        return HttpAnswer(body=data, kind="text/event-stream; charset=utf-8")

    stub.says["tools/call"] = streamed
    async with open_desk(caplog, stub) as desk:
        assert (await desk.echo()).text == "from events"


@pytest.mark.holds("MC10")
async def test_a_server_that_asks_without_end_is_answered_within_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stub = Stub()

    def asking(asked: Asked) -> HttpAnswer:
        pings = [b'{"jsonrpc":"2.0","id":"p%d","method":"ping"}' % n for n in range(200)]
        data = events(*pings, result(asked.message, text("asked")))
        return HttpAnswer(body=data, kind="text/event-stream")

    stub.says["tools/call"] = asking
    stub.says["POST"] = lambda _answer: HttpAnswer(hangs=True)
    async with open_desk(caplog, stub) as desk:
        assert (await desk.echo()).text == "asked"
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert 0 < sum("result" in one.message for one in desk.asked) <= 32


@pytest.mark.holds("MC9")
async def test_a_forgotten_session_is_opened_again_once(caplog: pytest.LogCaptureFixture) -> None:
    stub = Stub()
    old = {"session-1"}
    stub.says["tools/call"] = lambda asked: (
        HttpAnswer(status=404) if asked.headers["mcp-session-id"] in old else None
    )
    async with open_desk(caplog, stub) as desk:
        assert (await desk.echo()).text == "from json"
        assert stub.sessions == 2
        old.update({"session-2", "session-3", "session-4"})
        assert (await desk.echo()).code == "MCP_SESSION_EXPIRED"
        assert stub.sessions == 3


@pytest.mark.holds("MC9")
@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (HttpAnswer(status=307, headers={"location": "http://evil/x"}), "MCP_REFUSED", "'evil'"),
        (HttpAnswer(status=302, headers={"location": "http://h:x"}), "MCP_REFUSED", "'elsewhere'"),
        (HttpAnswer(status=401, body=KEY.encode()), "MCP_REFUSED", "check MCP_KEY"),
        (HttpAnswer(status=500, body=f"no {KEY}".encode()), "MCP_REFUSED", "value of MCP_KEY"),
        (HttpAnswer(status=200, body=b"<html>", kind="text/html"), "MCP_PROTOCOL", "'text/html'"),
        (HttpAnswer(status=200, body=b"{}"), "MCP_PROTOCOL", "no message of the protocol"),
        (HttpAnswer(body=events(), kind="text/event-stream"), "MCP_PROTOCOL", "before the result"),
        (HttpAnswer(body=b"x", cut=True), "MCP_SERVER_GONE", "broke"),
        (HttpAnswer(body=b"[" * (8 * 1024 * 1024 + 1)), "MCP_TOO_LARGE", "more than 8388608 bytes"),
    ],
)  # fmt: skip
async def test_what_is_no_answer_fails_the_call_and_no_more(
    caplog: pytest.LogCaptureFixture, answer: HttpAnswer, code: str, words: str
) -> None:
    stub = Stub()
    async with open_desk(caplog, stub, McpServer(bearer_env="MCP_KEY")) as desk:
        stub.says["tools/call"] = lambda _asked: answer
        done = await desk.echo()
        del stub.says["tools/call"]
        assert (await desk.echo()).text == "from json"
    assert done.code == code
    assert words in done.text
    assert KEY not in done.text + desk.said()
    assert "canary-path" not in done.text


@pytest.mark.holds("MC4")
async def test_a_call_that_is_cancelled_is_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    stub = Stub()
    stub.says["tools/call"] = lambda _asked: HttpAnswer(hangs=True)
    async with open_desk(caplog, stub) as desk, trio.open_nursery() as nursery:
        done: list[Committed] = []

        async def call() -> None:
            done.append(await desk.echo())

        nursery.start_soon(call)
        number = (await desk.until("tools/call")).message["id"]
        desk.room.signal.cancel()
        told = await desk.until("notifications/cancelled")
    assert done[0].code == "ABORTED"
    assert told.message["params"] == {"requestId": number}


async def test_a_server_that_cannot_be_reached_is_told(caplog: pytest.LogCaptureFixture) -> None:
    given = McpServer(url="http://127.0.0.1:9/x?canary-path", bearer_env="MCP_KEY", restarts=0)
    async with open_desk(caplog, Stub(), given) as desk:
        assert desk.room.tools.names() == frozenset()
    assert "MCP server 's' at http://127.0.0.1:9 cannot be reached (ConnectError)" in desk.said()
    assert "canary" not in desk.said()


@pytest.mark.parametrize("variable", ["NOT_SET", "SPACED"])
async def test_a_missing_key_is_named(caplog: pytest.LogCaptureFixture, variable: str) -> None:
    given = McpServer(header_env={"X-Key": variable}, restarts=0)
    async with open_desk(caplog, Stub(), given) as desk:
        assert desk.asked == []
    assert variable in desk.said()
    assert "a b" not in desk.said()


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("a b", McpServer(command="x"), "is no name"),
        ("x" * 25, McpServer(command="x"), "at most 24"),
        ("s", McpServer(), "neither `command` nor `url`"),
        ("s", McpServer(command="x", url="http://h"), "both `command` and `url`"),
        ("s", McpServer(command="x", bearer_env="K"), "`envFrom`"),
        ("s", McpServer(url="http://h", args=("x",)), "nothing is started"),
        ("s", McpServer(url="ftp://h"), "no http:// or https:// address"),
        ("s", McpServer(url="http://h:x"), "is no address"),
        ("s", McpServer(url="http://u:canary@h"), "user name or password"),
        ("s", McpServer(url="http://h", headers={"X": "é"}), "'X' that cannot be sent"),
        ("s", McpServer(url="http://h", header_env={"X:": "K"}), "'X:' that cannot be sent"),
    ],
)
def test_settings_that_mean_nothing_are_refused(name: str, given: McpServer, words: str) -> None:
    environ = ProcessEnviron({})
    with pytest.raises(PluginError, match=r"mcp\.servers") as caught:
        target_of(name, given, environ, EnvironCredentials(environ))
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)
