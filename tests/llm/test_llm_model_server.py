"""The fault server that comes with dsh: what it refuses, records and plays."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import orjson
import pytest
import trio

from dsh.catalog.records import LlmFailure, Usage
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing import (
    Close,
    WireReply,
    at_random,
    broken_off,
    by_bytes,
    delta,
    open_model_server,
    recut,
    refusal_of,
    reply_of,
    sse_reply,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dsh.hooks import JsonObject, JsonValue
    from dsh.testing import ModelServer


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang: real time, so real limits."""
    with trio.fail_after(20):
        yield


async def exchange(server: ModelServer, *bodies: bytes) -> bytes:
    """Send requests over one plain socket, and read until the server closes it."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        for body in bodies:
            head = f"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)
        await stream.send_eof()
        return b"".join([bytes(piece) async for piece in stream])


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def calls(*ids: str, arguments: str = "{}", **more: JsonValue) -> JsonObject:
    made: list[JsonValue] = [
        {"id": each, "type": "function", "function": {"name": "ls", "arguments": arguments}}
        for each in ids
    ]
    return {"role": "assistant", "content": "", "tool_calls": made, **more}


def result(call_id: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([user("hi")], None),
        ([user("hi"), calls("a", "b"), result("a"), result("b"), user("on")], None),
        ([], "at least one"),
        ([{"role": "wizard", "content": "x"}], "known role"),
        ([{"role": "user", "content": None}], "content must be text"),
        ([{"role": "user"}], "content must be text"),
        ([user("hi"), {"role": "assistant", "content": ""}], "must have content or tool_calls"),
        ([user("hi"), result("a")], "must follow the tool_calls"),
        ([user("hi"), calls("a")], "without a response: a"),
        ([user("hi"), calls("a"), user("on")], "without a response: a"),
        ([user("hi"), calls("a", "b"), result("b"), result("a")], "'b' where 'a' is due"),
        ([user("hi"), calls("a"), result("a"), result("a")], "must follow the tool_calls"),
        ([user("hi"), calls("a", "a"), result("a"), result("a")], "not unique"),
        ([user("hi"), calls("a", arguments="{'x'"), result("a")], "text of a JSON object"),
        ([user("hi"), calls("a", arguments="[1]"), result("a")], "text of a JSON object"),
        ([user("hi"), calls("a", arguments=""), result("a")], "text of a JSON object"),
        (
            [user("hi"), calls("a", reasoning_content=""), result("a")],
            "left out when there is none",
        ),
        ([user("hi"), calls("r"), result("r")], "must be passed back"),
        ([user("hi"), calls("r", reasoning_content="hm "), result("r")], "must be passed back"),
        ([user("hi"), calls("r", reasoning_content="hm"), result("r")], None),
    ],
)
async def test_a_strict_server_refuses_what_real_ones_refuse(
    messages: list[JsonValue], fault: str | None
) -> None:
    body: JsonObject = {"model": "m", "messages": messages}
    found = refusal_of(body, {"r": "hm"})
    if fault is None:
        assert found is None
    else:
        assert found is not None
        assert fault in found
    async with open_model_server([ScriptEntry(text="x")], strict=True) as server:
        answer = await exchange(server, orjson.dumps(body))
        unknown_reasoning = fault == "must be passed back"
        refused = fault is not None and not unknown_reasoning
        assert answer.startswith(b"HTTP/1.1 400" if refused else b"HTTP/1.1 200")
        assert len(server.refusals) == int(refused)


BAD_TOOLS: tuple[tuple[list[JsonValue], str], ...] = (
    ([], "must not be empty"),
    ([{"type": "function"}], "a function is required"),
    ([{"type": "function", "function": {"name": "a b", "parameters": {}}}], "not proper"),
    ([{"type": "function", "function": {"name": "a", "parameters": {}}}], "type 'object'"),
)


@pytest.mark.parametrize(("tools", "fault"), BAD_TOOLS)
async def test_a_strict_server_looks_at_tools_too(tools: list[JsonValue], fault: str) -> None:
    found = refusal_of({"model": "m", "messages": [user("x")], "tools": tools})
    assert found is not None
    assert fault in found
    assert refusal_of([]) == "the body is no JSON object"
    assert refusal_of({"messages": [user("x")]}) == "model: a name is required"


async def test_requests_and_connections_are_recorded_and_kept_alive() -> None:
    body = orjson.dumps({"model": "m", "messages": [user("ä" * 50_000)]})
    async with open_model_server([ScriptEntry(text="one"), ScriptEntry(text="two")]) as server:
        answer = await exchange(server, body, body)
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert server.connections == 1
        assert [request.json for request in server.requests] == [orjson.loads(body)] * 2
        assert [request.connection for request in server.requests] == [1, 1]
        await server.when_open(0)
        past = await exchange(server, body)
        assert b"HTTP/1.1 500" in past
        assert b"script is over" in past
        assert server.requests[-1].connection == 2


async def test_a_token_limit_is_refused_in_the_words_of_an_overflow() -> None:
    body = orjson.dumps({"model": "m", "messages": [user("x" * 1000)]})
    async with open_model_server([], token_limit=100) as server:
        answer = await exchange(server, body)
    assert b"context_length_exceeded" in answer
    assert b"maximum context length is 100 tokens" in answer


async def test_other_paths_are_a_404_and_models_are_listed() -> None:
    async with open_model_server([]) as server:
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        async with stream:
            await stream.send_all(b"GET /v1/models HTTP/1.1\r\n\r\nGET /nowhere HTTP/1.1\r\n\r\n")
            await stream.send_eof()
            answer = b"".join([bytes(piece) async for piece in stream])
    assert b'"data":[{"id":"scripted"}]' in answer
    assert b"no such path: /nowhere" in answer


async def test_replies_are_frozen_repeatable_and_keep_their_bytes() -> None:
    entry = ScriptEntry(
        text="hello you",
        reasoning="hm",
        tools=(ScriptedCall(name="ls", arguments='{"a": 1}'),),
        usage=Usage(input_tokens=3, output_tokens=2, cache_read_tokens=4),
    )
    reply = reply_of(entry, 7)
    assert reply == reply_of(entry, 7)
    assert reply.reasoning == (("call_7_0", "hm"),)
    whole = b"".join(step for step in reply.steps if isinstance(step, bytes))
    for cut in (by_bytes, at_random(3), at_random(4, longest=2)):
        pieces = [step for step in recut(reply, cut).steps if isinstance(step, bytes)]
        assert b"".join(pieces) == whole
        assert len(pieces) > len(reply.steps)
    assert recut(reply, at_random(3)) == recut(reply, at_random(3))
    cut_off = broken_off(reply, 100, Close())
    assert cut_off.steps[-1] == Close()
    sent = b"".join(step for step in cut_off.steps if isinstance(step, bytes))
    assert sent == whole[:100]
    assert b'"prompt_tokens":7' in whole


async def test_errors_of_a_script_are_a_status_or_come_inside_the_stream() -> None:
    status = ScriptEntry(
        error=LlmFailure(code="X", message="m", status=503, provider_retry_after_ms=1500.0)
    )
    reply = reply_of(status)
    assert reply.status == 503
    assert ("retry-after-ms", "1500") in reply.headers
    inside = reply_of(ScriptEntry(text="half", error=LlmFailure(code="X", message="m")))
    assert inside.status == 200
    assert isinstance(inside.steps[-1], bytes)
    assert b'"error":{"message":"m","code":"X"}' in inside.steps[-1]


async def test_a_function_may_answer_each_request() -> None:
    def answer(request: object) -> WireReply:
        del request
        return sse_reply(delta("stop", content=f"{len(server.requests)}"))

    async with open_model_server(answer) as server:
        body = orjson.dumps({"model": "m", "messages": [user("x")]})
        assert b'"content":"1"' in await exchange(server, body)
        assert b'"content":"2"' in await exchange(server, body)


async def test_it_runs_from_the_command_line() -> None:
    async with trio.open_nursery() as nursery:
        command = [sys.executable, "-m", "dsh.testing.model_server", "--strict"]
        process = await nursery.start(
            partial(trio.run_process, command, stderr=subprocess.PIPE, check=False)
        )
        said = b""
        while b"Ctrl-C" not in said:
            said += await process.stderr.receive_some()
        assert said.startswith(b"model server: http://127.0.0.1:")
        process.terminate()
