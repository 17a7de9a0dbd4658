"""Cancelling wherever an attempt is: the server sees the close at once, no connection is left.

`DSH_CANCELS=1000` cancels so often; the ordinary run does a few of each kind.
"""

from __future__ import annotations

import gc
import ssl
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpcore
import pytest
import trio

from dsh import catalog as ev
from dsh import user_message
from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin, process_environ
from dsh.catalog import records
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing import (
    Hang,
    TestHouse,
    WireReply,
    broken_off,
    messages_reply_of,
    open_model_server,
    open_test_house,
    reply_of,
)
from dsh.testing.model_seam import Seam, ask, open_seam, user
from dsh_plugins.anthropic_messages import anthropic_messages
from dsh_plugins.anthropic_messages.catalog import AnthropicMessagesConfig, MessagesProfile
from dsh_plugins.llm_retry import llm_retry
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from dsh.kernel import Kernel
    from dsh.testing import RecordedRequest

CANCELS: Final = int(process_environ().get("DSH_CANCELS") or 48)
#: How soon the server must see the close, in seconds.
PROMPT: Final = 0.2
CERTIFICATE: Final = Path(__file__).with_name("tls") / "loopback.pem"
TEXT: Final = ScriptEntry(text="all is well, and there is more to say of it")
CALL: Final = ScriptEntry(tools=(ScriptedCall(name="rm", arguments='{"path": "/tmp/x/y/z"}'),))
PLACES: Final = ("headers", "first event", "delta", "tool delta", "error body")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang: real time, so real limits."""
    with trio.fail_after(30 + CANCELS / 10):
        yield


async def mount_both(
    kernel: Kernel, base_url: str, variables: Mapping[str, str] | None = None
) -> None:
    environ = ProcessEnviron(variables or {})
    await kernel.mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
    chat = OpenAiChatConfig(providers={"chat": ProviderProfile(base_url=f"{base_url}/v1")})
    await kernel.mount(openai_chat, chat).ready()
    messages = AnthropicMessagesConfig(providers={"messages": MessagesProfile(base_url=base_url)})
    await kernel.mount(anthropic_messages, messages).ready()


@asynccontextmanager
async def open_both(
    base_url: str, variables: Mapping[str, str] | None = None
) -> AsyncGenerator[Seam]:
    async with open_seam() as seam:
        await mount_both(seam.kernel, base_url, variables)
        yield seam


def stalled(request: RecordedRequest, place: str) -> WireReply:
    """A reply that never comes to its end."""
    make = messages_reply_of if request.path.endswith("/messages") else reply_of
    match place:
        case "headers":
            return WireReply(before=(Hang(),))
        case "first event":
            return WireReply(steps=(Hang(),))
        case "delta":
            return broken_off(make(TEXT), 700, Hang())
        case "tool delta":
            return broken_off(make(CALL), 760 if make is messages_reply_of else 330, Hang())
        case _:
            return WireReply(status=500, steps=(b"x", Hang()), headers=())


@pytest.mark.holds("LM8")
@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_the_server_sees_every_cancel_at_once_and_no_connection_is_left(wire: str) -> None:
    places = [PLACES[at % len(PLACES)] for at in range(CANCELS)]
    slowest = 0.0
    async with (
        open_model_server(lambda one: stalled(one, places[len(server.requests) - 1])) as server,
        open_both(server.url) as seam,
    ):
        for count in range(1, CANCELS + 1):
            began = trio.current_time()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(seam.run, ask(user("hi"), provider=wire))
                    await server.when_requests(count)
                    # Long enough for what the server sends, of whatever size.
                    await trio.testing.wait_all_tasks_blocked(0.002)
                    began = trio.current_time()
                    scope.cancel()
            with trio.fail_after(PROMPT):
                await server.when_open(0)
            slowest = max(slowest, trio.current_time() - began)
        assert server.connections == CANCELS
        pools = [one for one in gc.get_objects() if isinstance(one, httpcore.AsyncConnectionPool)]
        assert sum(len(pool.connections) for pool in pools) == 0
    print(f"\n{CANCELS} cancels on {wire}: slowest close {slowest * 1000:.0f} ms")  # noqa: T201


@pytest.mark.holds("LM8")
@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_a_cancel_while_connecting_gives_the_connection_up(wire: str) -> None:
    arrived, gone = trio.Event(), trio.Event()

    async def silent(stream: trio.SocketStream) -> None:
        """Accepts, and never answers the handshake."""
        arrived.set()
        async with stream:
            try:
                while await stream.receive_some(4096):
                    pass
            except trio.BrokenResourceError:
                pass
            gone.set()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, silent, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        async with open_both(f"https://127.0.0.1:{port}") as seam:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as inner:
                    inner.start_soon(seam.run, ask(user("hi"), provider=wire))
                    await arrived.wait()
                    scope.cancel()
            with trio.fail_after(PROMPT):
                await gone.wait()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_house(base_url: str) -> AsyncGenerator[TestHouse]:
    async with open_test_house(plugins=[llm_retry]) as house:
        await mount_both(house.kernel, base_url)
        yield house


@pytest.mark.holds("LM8", "E14")
@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_a_cancel_in_the_wait_for_a_retry_ends_the_turn_at_once(wire: str) -> None:
    busy = records.LlmFailure(
        message="busy", code="SERVER", status=503, provider_retry_after_ms=9000
    )
    async with (
        open_model_server([ScriptEntry(error=busy), TEXT]) as server,
        open_house(server.url) as house,
    ):
        handle = await house.agent(options=records.AgentOptions(provider=wire, model="m"))
        waits = trio.Event()
        house.ctx.on(ev.llm.RETRY)(lambda _event: waits.set())
        handle.agent.followup(user_message("go"))
        await waits.wait()
        with trio.fail_after(PROMPT):
            handle.agent.cancel(records.UserCause())
            await handle.agent.when_idle()
        assert len(server.requests) == 1
        assert (await handle.agent.ask(user_message("again"))).text == TEXT.text


@pytest.mark.holds("case-041", "LM10")
@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_a_tls_connection_that_ends_without_a_farewell_is_tried_again(wire: str) -> None:
    """Variant D: the server's socket is gone, without TLS saying so."""
    served = 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    make = reply_of if wire == "chat" else messages_reply_of
    body = b"".join(step for step in make(TEXT).steps if isinstance(step, bytes))
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    )

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        nonlocal served
        served += 1
        await stream.receive_some(65536)
        await stream.send_all(head + (body[:200] if served == 1 else body))
        await stream.transport_stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            partial(trio.serve_ssl_over_tcp, serve, 0, context, host="127.0.0.1")
        )
        port = listeners[0].transport_listener.socket.getsockname()[1]
        async with open_test_house(plugins=[llm_retry]) as house:
            await mount_both(
                house.kernel,
                f"https://127.0.0.1:{port}",
                {"SSL_CERT_FILE": str(CERTIFICATE)},
            )
            handle = await house.agent(options=records.AgentOptions(provider=wire, model="m"))
            outcome = await handle.agent.ask(user_message("go"))
            assert outcome.reason == records.CompletedTurnEnd()
            assert outcome.text == TEXT.text
            (retry,) = [
                event.data
                for event in house.session(handle).events
                if isinstance(event.data, ev.llm.Retry)
            ]
            assert retry.failure.code in {"STREAM_CLOSED", "TRANSPORT"}
        nursery.cancel_scope.cancel()
    assert served == 2
