"""Faults of a real server on 127.0.0.1, each a classified failure."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.catalog.records import StopFinish, TextBlock
from dsh.llm import ScriptedCall, ScriptEntry, grammar_fault
from dsh.testing import (
    Close,
    Hang,
    Reset,
    Wait,
    WireReply,
    broken_off,
    delta,
    error_reply,
    event,
    open_model_server,
    reply_of,
    sse_reply,
)
from dsh.testing.model_seam import ask, user
from dsh.testing.wires import OpenServer, answered, failure
from dsh_plugins.openai_chat.catalog import ProviderProfile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dsh.testing.model_server import Answer, Step


LIMIT = 5.0
PINGS: tuple[Step, ...] = (b": ping\n\n", Wait(0.06)) * 1000
GOOD = ScriptEntry(text="all is well")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang: real time, so real limits."""
    with trio.fail_after(4 * LIMIT):
        yield


HALF_CALL = ScriptEntry(tools=(ScriptedCall(name="rm", arguments='{"path": "/"}'),))


@pytest.mark.holds("case-041", "LM10")
@pytest.mark.parametrize(
    ("reply", "codes"),
    [
        (broken_off(reply_of(GOOD), 0, Close()), {"STREAM_CLOSED"}),
        (broken_off(reply_of(GOOD), 130, Close()), {"STREAM_CLOSED"}),
        (broken_off(reply_of(HALF_CALL), 300, Reset()), {"TRANSPORT", "STREAM_CLOSED"}),
        (broken_off(reply_of(GOOD), 130, Hang()), {"TIMEOUT"}),
        (WireReply(before=(Close(),)), {"TRANSPORT"}),
        (WireReply(before=(Reset(),)), {"TRANSPORT"}),
        (WireReply(before=(Hang(),)), {"TIMEOUT"}),
        (WireReply(before=(b"rubbish that is no HTTP\r\n\r\n", Close())), {"TRANSPORT"}),
        (
            WireReply(steps=(b"\x1f\x8bnot gzip",), headers=(
                ("content-type", "text/event-stream"), ("content-encoding", "gzip"))),
            {"MALFORMED_RESPONSE"},
        ),
    ],
    ids=[
        "after headers", "inside a chunk", "reset in a call", "stall", "close before headers",
        "reset before headers", "silent before headers", "no http", "broken gzip",
    ],
)  # fmt: skip
async def test_every_break_is_a_classified_failure_and_the_next_call_works(
    open_chat: OpenServer[ProviderProfile], reply: WireReply, codes: set[str]
) -> None:
    answers: list[Answer] = [reply, GOOD]
    async with open_model_server(answers) as server:
        profile = ProviderProfile(base_url=server.base_url, idle_timeout_ms=150)
        async with open_chat(profile=profile) as chat:
            error = await failure(chat)
            assert error.code in codes
            assert server.url in str(error)
            assert (await answered(chat)).blocks() == (TextBlock(text="all is well"),)


@pytest.mark.holds("case-038", "LM10")
async def test_a_refusal_names_the_wait_that_the_server_asks_for(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    limited = error_reply(
        429, {"error": {"message": "slow"}}, headers=(("retry-after", "1382400"),)
    )
    async with open_model_server([limited]) as server, open_chat(server.base_url) as chat:
        error = await failure(chat)
    assert "it asks to wait 1382400 s" in str(error)
    assert error.retry_after_ms == 1_382_400_000


async def test_comments_count_as_life_and_a_slow_consumer_does_not_count(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    alive = sse_reply(*PINGS[:12], delta("stop", content="x"))
    two = sse_reply(delta(content="a"), delta("stop", content="b"))
    async with open_model_server([alive, two]) as server:
        profile = ProviderProfile(base_url=server.base_url, idle_timeout_ms=200)
        async with open_chat(profile=profile) as chat:
            assert (await answered(chat)).finish == StopFinish()
            async with chat.stream(ask(user("hi"))) as chunks:
                first = await anext(aiter(chunks))
                with trio.move_on_after(0.3):
                    await trio.sleep(math.inf)
                rest = [chunk async for chunk in chunks]
            assert grammar_fault([first, *rest]) is None


@pytest.mark.holds("LM9", "LM10")
@pytest.mark.parametrize(
    ("status", "body", "headers", "code", "words"),
    [
        (401, {"error": {"message": "bad key"}}, (), "AUTH", "check the key in K"),
        (402, {"error": {"message": "Insufficient Balance"}}, (), "QUOTA", "add credit"),
        (404, {"error": {"message": "no model"}}, (), "HTTP_404", "check the model's name"),
        (
            400,
            {"error": {"message": "bad field"}},
            (),
            "INVALID_REQUEST",
            "answered 400: bad field",
        ),
        (400, {"error": {"message": "prompt is too long"}}, (), "CONTEXT_WINDOW_EXCEEDED", "long"),
        (503, b"<html>down</html>", (), "SERVER", "<html>down</html>"),
        (500, b"", (), "SERVER", "(no words)"),
        (307, b"", (("location", "http://evil.example/x?t=1"),), "HTTP_307", "'evil.example'"),
        (302, b"", (("location", "http://[::1"),), "HTTP_302", "'elsewhere'"),
        (422, b"\xff\xfe broken", (), "INVALID_REQUEST", "broken"),
    ],
)
async def test_refusals_keep_the_servers_words_and_add_the_remedy(
    open_chat: OpenServer[ProviderProfile],
    status: int,
    body: dict[str, dict[str, str]] | bytes,
    headers: tuple[tuple[str, str], ...],
    code: str,
    words: str,
) -> None:
    reply = error_reply(status, body, headers=headers)
    async with open_model_server([reply]) as server:
        profile = ProviderProfile(base_url=server.base_url, api_key_env="K")
        async with open_chat(profile=profile, variables={"K": "sk-1"}) as chat:
            error = await failure(chat)
        assert (error.code, error.status) == (code, status)
        assert words in str(error)
        # Nothing is sent anywhere but to the configured server, not even after a redirect.
        assert len(server.requests) == 1


@pytest.mark.holds("case-038")
async def test_the_wait_a_server_asks_for_and_its_request_id_are_kept(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    limited = error_reply(
        429,
        {"error": {"message": "slow down"}},
        headers=(("retry-after", "7"), ("x-request-id", "req-1")),
    )
    past = error_reply(
        429,
        {"error": {"message": "slow down"}},
        headers=(
            ("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT"),
            ("date", "Wed, 21 Oct 2026 07:28:00 GMT"),
        ),
    )
    async with (
        open_model_server([limited, past]) as server,
        open_chat(server.base_url) as chat,
    ):
        error = await failure(chat)
        assert (error.code, error.retry_after_ms, error.request_id) == ("RATE_LIMIT", 7000, "req-1")
        # A date in the past is "now": the local backoff is used, so nothing spins.
        assert (await failure(chat)).retry_after_ms is None


@pytest.mark.holds("case-086")
async def test_an_error_body_is_read_within_bounds_compressed_or_endless(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    bomb = zlib.compress(b"A" * 50_000_000, wbits=31)
    packed = WireReply(
        status=429,
        steps=(bomb,),
        headers=(("content-type", "text/plain"), ("content-encoding", "gzip")),
    )
    broken = WireReply(
        status=500,
        steps=(b"no gzip at all",),
        headers=(("content-type", "text/plain"), ("content-encoding", "gzip")),
    )
    endless = WireReply(status=503, steps=(b"B" * 65536,) * 400, headers=())
    async with (
        open_model_server([packed, broken, endless]) as server,
        open_chat(server.base_url) as chat,
    ):
        for code in ("RATE_LIMIT", "SERVER", "SERVER"):
            error = await failure(chat)
            assert error.code == code
            assert len(str(error)) < 900


async def test_an_error_inside_the_stream_is_classified_like_a_status(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    in_band = sse_reply(
        delta(content="half"),
        event({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}),
        headers=(("x-request-id", "req-9"),),
    )
    async with open_model_server([in_band]) as server, open_chat(server.base_url) as chat:
        error = await failure(chat)
    assert (error.code, error.request_id) == ("RATE_LIMIT", "req-9")


async def test_a_line_without_end_is_cut_off(open_chat: OpenServer[ProviderProfile]) -> None:
    endless = sse_reply(b"data: ", *[b"x" * 262144] * 40)
    async with open_model_server([endless]) as server, open_chat(server.base_url) as chat:
        assert (await failure(chat)).code == "MALFORMED_RESPONSE"
        await server.when_open(0)


async def test_an_unreachable_server_is_named_with_what_to_check(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    async with open_chat("http://127.0.0.1:9/v1") as chat:
        error = await failure(chat)
    assert error.code == "TRANSPORT"
    assert str(error).startswith(
        "cannot connect to http://127.0.0.1:9; check that it runs, and `baseUrl`"
    )
