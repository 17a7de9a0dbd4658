"""Keys: checked before use, sent in one header, and shown nowhere."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.errors import HarnessError, LlmError, MissingCredential
from dsh.llm import ScriptEntry, failure_of
from dsh.testing import Reset, WireReply, delta, error_reply, event, open_model_server, sse_reply
from dsh.testing.model_seam import ask, collect, user
from dsh_plugins.openai_chat.catalog import ProviderProfile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dsh.testing.model_server import Answer
    from dsh.testing.wires import OpenServer


CANARY = "sk-canary-7f3a91"


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    with trio.fail_after(10):
        yield


@pytest.mark.holds("case-087", "LM9")
@pytest.mark.parametrize(
    "key",
    [
        "sk-abc\n",
        " sk-abc ",
        "Bearer sk-abc",
        "sk-\u200babc",
        "sk-ключ",
        "",
        "sk-abc\r\nX-Evil: 1",
    ],
)
async def test_a_key_no_header_can_carry_fails_before_any_request(
    open_chat: OpenServer[ProviderProfile], key: str
) -> None:
    async with open_model_server([]) as server:
        profile = ProviderProfile(base_url=server.base_url, api_key_env="KEY")
        async with open_chat(profile=profile, variables={"KEY": key}) as chat:
            with pytest.raises(MissingCredential) as caught:
                chat.stream(ask(user("hi")))
            with pytest.raises(MissingCredential):
                chat.verify("p")
        failure = failure_of(caught.value)
        assert failure.code == ("INVALID_CREDENTIAL" if key else "MISSING_CREDENTIAL")
        assert "abc" not in failure.message
        assert server.connections == 0


@pytest.mark.holds("case-087", "LM9")
@pytest.mark.parametrize(
    "answer",
    [
        error_reply(401, {"error": {"message": f"Incorrect API key provided: {CANARY}"}}),
        error_reply(400, f"no json: {CANARY}{'x' * 70000}".encode()),
        error_reply(500, ("y" * 590 + CANARY).encode()),
        WireReply(steps=(f"<html>{CANARY}".encode(),), headers=(("content-type", "text/html"),)),
        sse_reply(event({"error": {"message": f"key {CANARY} is blocked"}})),
        sse_reply(f"data: {CANARY} is no json\n\n".encode()),
        sse_reply(delta(f"odd_{CANARY}", content="x")),
        WireReply(before=(Reset(),)),
    ],
)
async def test_a_key_that_a_server_repeats_is_in_no_error_log_or_repr(
    open_chat: OpenServer[ProviderProfile], answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_model_server([answer, ScriptEntry(text="ok")]) as server:
        profile = ProviderProfile(base_url=server.base_url, api_key_env="KEY")
        async with open_chat(profile=profile, variables={"KEY": CANARY}) as chat:
            shown = ""
            try:
                chunks = await collect(chat.stream(ask(user("hi"))))
                shown += repr(chunks)
            except HarnessError as error:
                shown += "".join(traceback.format_exception(error))
                shown += repr(failure_of(error)) + repr(error)
            shown += repr(chat) + repr(chat.__dict__) + caplog.text
            shown += "".join(str(record.__dict__) for record in caplog.records)
            assert CANARY not in shown
            assert CANARY[:12] not in shown
            await collect(chat.stream(ask(user("hi"))))
        # It does reach the configured server, in the one header it belongs to.
        sent = [request.headers.get("authorization") for request in server.requests]
        assert f"Bearer {CANARY}" in sent


async def test_a_server_without_a_key_gets_no_authorization(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    async with (
        open_model_server([ScriptEntry(text="ok")]) as server,
        open_chat(server.base_url, variables={"DEEPSEEK_API_KEY": CANARY}) as chat,
    ):
        await collect(chat.stream(ask(user("hi"))))
        (request,) = server.requests
    assert "authorization" not in request.headers
    assert "cookie" not in request.headers
    assert CANARY not in repr(request.headers)


@pytest.mark.holds("LM9")
async def test_no_cookie_is_kept_for_the_next_request(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    baked = sse_reply(delta("stop", content="x"), headers=(("set-cookie", "a=b; Path=/"),))
    async with (
        open_model_server([baked, ScriptEntry(text="ok")]) as server,
        open_chat(server.base_url) as chat,
    ):
        await collect(chat.stream(ask(user("hi"))))
        await collect(chat.stream(ask(user("hi"))))
        assert all("cookie" not in request.headers for request in server.requests)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "is missing"),
        ("api.example.com", "is no http:// or https:// address"),
        ("ftp://api.example.com", "is no http:// or https:// address"),
        (f"https://user:{CANARY}@api.example.com", "holds a user name or password"),
    ],
)
async def test_an_address_that_cannot_be_used_is_said_without_its_secrets(
    open_chat: OpenServer[ProviderProfile], address: str, words: str
) -> None:
    profile = ProviderProfile(base_url_env="URL")
    async with open_chat(profile=profile, variables={"URL": address}) as chat:
        with pytest.raises(LlmError, match=words) as caught:
            chat.verify("p")
    assert caught.value.code == "INVALID_REQUEST"
    assert CANARY not in str(caught.value)


async def test_address_and_key_are_looked_up_for_every_request(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    variables = {"KEY": "k-1", "DEEPSEEK_BASE_URL": ""}
    async with open_model_server([ScriptEntry(text="ok")] * 3) as server:
        variables["DEEPSEEK_BASE_URL"] = f"{server.base_url}/"
        profile = ProviderProfile(api_key_env="KEY")
        async with open_chat(profile=profile, variables=variables, provider="deepseek") as chat:
            await collect(chat.stream(ask(user("hi"), provider="deepseek")))
            chat._environ.values["KEY"] = "k-2"  # type: ignore[attr-defined]
            chat._environ.values["DEEPSEEK_BASE_URL"] = f"{server.url}/v2/chat/completions"  # type: ignore[attr-defined]
            await collect(chat.stream(ask(user("hi"), provider="deepseek")))
        assert [request.path for request in server.requests] == [
            "/v1/chat/completions",
            "/v2/chat/completions",
        ]
        assert [request.headers["authorization"] for request in server.requests] == [
            "Bearer k-1",
            "Bearer k-2",
        ]
