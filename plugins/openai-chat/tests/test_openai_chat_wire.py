"""The adapter against a real server on 127.0.0.1: odd but good replies, connections."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.catalog.records import StopFinish, TextBlock, TextDeltaChunk, ToolCallsFinish
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing import (
    Gate,
    Wait,
    WireReply,
    at_random,
    by_bytes,
    delta,
    open_model_server,
    sse_reply,
)
from dsh.testing.model_seam import ask, user
from dsh.testing.wires import OpenServer, answered, failure
from dsh_plugins.openai_chat.catalog import ProviderProfile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dsh.testing.model_server import Step


LIMIT = 5.0
PINGS: tuple[Step, ...] = (b": ping\n\n", Wait(0.06)) * 1000
GOOD = ScriptEntry(text="all is well")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang: real time, so real limits."""
    with trio.fail_after(4 * LIMIT):
        yield


@pytest.mark.holds("case-001")
@pytest.mark.parametrize("cut", [None, by_bytes, at_random(1), at_random(7, longest=3)])
async def test_a_reply_is_the_same_however_its_body_is_cut(
    open_chat: OpenServer[ProviderProfile], cut: Callable[[bytes], list[bytes]] | None
) -> None:
    entry = ScriptEntry(
        text="你好🦀é\u2028 there",
        reasoning="hm hm",
        tools=(ScriptedCall(name="read_file", arguments='{"path": "文档/été-🦀.md"}'),),
    )
    async with open_model_server([entry], cut=cut) as server, open_chat(server.base_url) as chat:
        reply = await answered(chat)
    assert TextBlock(text="你好🦀é\u2028 there") in reply.blocks()
    assert reply.finish == ToolCallsFinish()


@pytest.mark.holds("LM7")
async def test_fifty_steps_use_one_connection_and_a_strict_server_accepts_them(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    async with (
        open_model_server([GOOD] * 50, strict=True) as server,
        open_chat(server.base_url) as chat,
    ):
        for _ in range(50):
            assert (await answered(chat)).blocks() == (TextBlock(text="all is well"),)
        assert len(server.requests) == 50
        assert server.connections == 1
        assert server.refusals == []


@pytest.mark.holds("case-006", "LM7")
async def test_a_server_that_lingers_after_done_is_left(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    lingering = sse_reply(
        delta("stop", content="done"), b"data: [DONE]\n\n", b": ping\n\n",
        *PINGS, done=False,
    )  # fmt: skip
    async with (
        open_model_server([lingering, GOOD]) as server,
        open_chat(server.base_url) as chat,
    ):
        with trio.fail_after(1.0):
            assert (await answered(chat)).blocks() == (TextBlock(text="done"),)
        await server.when_open(0)
        assert (await answered(chat)).finish == StopFinish()
        assert server.connections == 2


@pytest.mark.holds("case-006", "LM7")
async def test_what_follows_done_is_ignored_and_the_connection_is_kept(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    talkative = sse_reply(
        delta("stop", content="done"),
        b"data: [DONE]\n\ndata: nonsense\n\n",
        Wait(0.02),
        delta(content="late"),
        done=False,
    )
    async with (
        open_model_server([talkative, GOOD]) as server,
        open_chat(server.base_url) as chat,
    ):
        assert (await answered(chat)).blocks() == (TextBlock(text="done"),)
        await answered(chat)
        assert server.connections == 1


@pytest.mark.holds("case-004")
async def test_a_body_of_comments_alone_is_a_closed_stream(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    comments = sse_reply(b": OPENROUTER PROCESSING\n\n", b":\n\n: ping\n\n", done=False)
    async with open_model_server([comments]) as server, open_chat(server.base_url) as chat:
        assert (await failure(chat)).code == "STREAM_CLOSED"


@pytest.mark.holds("case-008")
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"<!doctype html><html><head><title>Sign in</title></head></html>"),
        ("application/json", b'{"data":{"choices":[]},"success":true}'),
        ("application/json", b"{" + b"x" * 2000),
        ("text/plain", b"data: {}\n\n"),
    ],
)
async def test_a_200_that_is_no_stream_names_its_type_and_shows_a_piece(
    open_chat: OpenServer[ProviderProfile], kind: str, body: bytes
) -> None:
    reply = WireReply(steps=(body,), headers=(("content-type", kind),))
    async with open_model_server([reply]) as server, open_chat(server.base_url) as chat:
        error = await failure(chat)
    assert error.code == "MALFORMED_RESPONSE"
    assert kind in str(error)
    assert body[:20].decode().strip() in str(error)
    assert len(str(error)) < 900


@pytest.mark.holds("case-008")
async def test_one_json_completion_counts_as_the_reply(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    body = (
        b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":'
        b'"assistant","content":"hi"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":1}}'
    )
    reply = WireReply(steps=(body,), headers=(("content-type", "application/json"),))
    async with open_model_server([reply]) as server, open_chat(server.base_url) as chat:
        found = await answered(chat)
    assert found.blocks() == (TextBlock(text="hi"),)
    assert found.usage is not None


@pytest.mark.holds("case-086")
async def test_a_compressed_stream_with_a_wrong_charset_is_read_as_it_comes(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    packer = zlib.compressobj(wbits=31)

    def packed(data: bytes) -> bytes:
        return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)

    gate = trio.Event()
    first, second = packed(delta(content="你")), packed(delta("stop", content="好"))
    reply = WireReply(
        steps=(first, Gate(gate), second, packed(b"data: [DONE]\n\n"), packer.flush()),
        headers=(
            ("content-type", "text/event-stream; charset=iso-8859-1"),
            ("content-encoding", "gzip"),
        ),
    )
    async with open_model_server([reply]) as server, open_chat(server.base_url) as chat:
        texts: list[str] = []
        async with chat.stream(ask(user("hi"))) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextDeltaChunk):
                    texts.append(chunk.text)
                    # The second event is sent only after the first was seen.
                    gate.set()
        assert texts == ["你", "好"]
        assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.holds("case-086")
@pytest.mark.parametrize(
    "reply",
    [
        WireReply(steps=(delta("stop", content="x"), b"data: [DONE]\n\n"), framing="close"),
        WireReply(
            steps=(delta("stop", content="x"), b"data: [DONE]\n\n"),
            framing="close",
            version="HTTP/1.0",
        ),
        WireReply(
            before=(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n",),
            steps=(delta("stop", content="x"), b"data: [DONE]\n\n"),
        ),
        WireReply(before=(Wait(0.05),), steps=(delta("stop", content="x"), b"data: [DONE]\n\n")),
        WireReply(steps=(delta("stop", content="x"), b"data: [DONE]"), framing="length"),
        WireReply(steps=(delta("stop", content="x"), b"data: [DONE]\n\n"), headers=()),
    ],
    ids=["close", "http10", "early hints", "slow headers", "no last newline", "no type"],
)
async def test_odd_but_lawful_answers_are_read(
    open_chat: OpenServer[ProviderProfile], reply: WireReply
) -> None:
    async with open_model_server([reply]) as server, open_chat(server.base_url) as chat:
        assert (await answered(chat)).blocks() == (TextBlock(text="x"),)


async def test_done_may_be_missing_only_where_the_server_is_known_for_it(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    no_done = sse_reply(delta("stop", content="x"), done=False)
    async with open_model_server([no_done] * 2) as server:
        async with open_chat(server.base_url) as chat:
            assert (await answered(chat)).finish == StopFinish()
        strict = ProviderProfile(base_url=server.base_url, family="deepseek", api_key_env="K")
        async with open_chat(profile=strict, variables={"K": "k"}) as chat:
            assert (await failure(chat)).code == "STREAM_CLOSED"
