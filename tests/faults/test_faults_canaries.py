"""Planted keys: whatever a server says and whatever fails, a key shows up on the wire alone."""

from __future__ import annotations

import gc
import logging
import traceback
from typing import TYPE_CHECKING, Final

import pytest
import trio

from dsh import catalog as ev
from dsh import user_message
from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin
from dsh.catalog import records
from dsh.errors import HarnessError
from dsh.llm import ScriptEntry
from dsh.testing import (
    MemoryStore,
    Reset,
    WireReply,
    delta,
    error_reply,
    event,
    messages_error,
    messages_event,
    open_model_server,
    open_test_house,
    sse_reply,
)
from dsh.wire import encode_line
from dsh_plugins.anthropic_messages import anthropic_messages
from dsh_plugins.anthropic_messages.catalog import AnthropicMessagesConfig, MessagesProfile
from dsh_plugins.llm_retry import llm_retry
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


CHAT: Final = "sk-chat-canary-91fe2b"
MESSAGES: Final = "sk-messages-canary-47d0aa"


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang."""
    with trio.fail_after(60):
        yield


def answers(wire: str, key: str) -> list[WireReply | ScriptEntry]:
    """Failures of every kind that repeat the key; the last one ends the turn."""
    words = f"the key {key} is limited"
    if wire == "chat":
        inside = event({"error": {"message": words, "code": "server_error"}})
        refused = error_reply(401, {"error": {"message": words}}, headers=(("x-request-id", "r"),))
        stopped = sse_reply(delta(f"odd_{key}", content="x"))
    else:
        inside = messages_event({"type": "error", "error": {"type": "api_error", "message": words}})
        refused = messages_error(401, "authentication_error", words)
        stopped = WireReply(
            steps=(
                messages_event({"type": "message_delta", "delta": {"stop_reason": f"odd_{key}"}}),
                messages_event({"type": "message_stop"}),
            )
        )
    return [
        error_reply(500, words.encode()),
        error_reply(429, {"error": {"message": words}}, headers=(("retry-after", "1"),)),
        WireReply(steps=(inside,)),
        WireReply(before=(Reset(),)),
        refused,
        WireReply(steps=(f"<html>{words}".encode(),), headers=(("content-type", "text/html"),)),
        WireReply(steps=(f"data: {words}\n\n".encode(),)),
        stopped,
        ScriptEntry(text="hello"),
    ]


@pytest.mark.holds("LM9", "case-087")
@pytest.mark.parametrize(("wire", "key"), [("chat", CHAT), ("messages", MESSAGES)])
async def test_no_key_is_in_any_log_event_error_or_repr(
    wire: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store, shown = MemoryStore(), ""
    environ = ProcessEnviron({"CHAT_KEY": CHAT, "MESSAGES_KEY": MESSAGES})
    credentials = EnvironCredentials(environ)
    async with open_model_server(answers(wire, key)) as server:
        chat = ProviderProfile(
            base_url=server.base_url,
            api_key_env="CHAT_KEY",
            retry_policy=records.NormalRetryPolicy(initial_delay_ms=1, max_delay_ms=2000),
        )
        messages = MessagesProfile(
            base_url=server.url, api_key_env="MESSAGES_KEY", retry_policy=chat.retry_policy
        )
        async with open_test_house(plugins=[llm_retry, token_meter], store=store) as house:
            mount = house.kernel.mount
            await mount(environ_plugin(environ, credentials)).ready()
            await mount(openai_chat, OpenAiChatConfig(providers={"chat": chat})).ready()
            both = AnthropicMessagesConfig(providers={"messages": messages})
            await mount(anthropic_messages, both).ready()
            told: list[ev.agent.Error] = []
            house.ctx.on(ev.agent.ERROR)(told.append)
            handle = await house.agent(options=records.AgentOptions(provider=wire, model="m"))
            outcomes = [await handle.agent.ask(user_message("go"))]
            while outcomes[-1].text != "hello":
                assert len(outcomes) < 9
                outcomes.append(await handle.agent.ask(user_message("go")))
            shown += repr(outcomes) + repr(told) + repr(credentials) + repr(environ.get)
            for error in told:
                shown += "".join(traceback.format_exception(error.error))
            session = house.session(handle)
            shown += repr(tuple(session.events)) + repr(session.derive_messages())
            shown += b"\n".join(encode_line(one) for one in session.events).decode()
            adapters = [one for one in gc.get_objects() if type(one).__name__.endswith("Adapter")]
            shown += repr(adapters) + repr([getattr(one, "__dict__", None) for one in adapters])
            await handle.aclose()
        stored = await store.read("s")
        shown += b"\n".join(encode_line(one) for one in stored.events).decode()
        sent = [repr(request) for request in server.requests]
        used = [request.headers for request in server.requests]
    shown += caplog.text + repr([record.__dict__ for record in caplog.records]) + repr(sent)
    where = shown.find(key[:16])
    assert where < 0, shown[max(0, where - 300) : where]
    assert key not in shown
    assert key[:16] not in shown
    # It did reach the server, in the one header it belongs to, and the other key did not.
    assert any(key in value for headers in used for value in headers.values())
    other = MESSAGES if wire == "chat" else CHAT
    assert not any(other in value for headers in used for value in headers.values())


async def test_a_missing_key_names_its_variable_alone() -> None:
    environ = ProcessEnviron({})
    async with open_test_house() as house:
        mount = house.kernel.mount
        await mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        await mount(openai_chat).ready()
        await mount(anthropic_messages).ready()
        for route, name in (("deepseek", "DEEPSEEK_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")):
            with pytest.raises(HarnessError, match=name):
                house.llm.verify(route)
