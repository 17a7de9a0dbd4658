"""Cancelling, leaving early, unloading: the connection closes at once and none is left over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from dsh.catalog.records import StopFinish, StreamChunk, TextBlock
from dsh.errors import LlmError
from dsh.llm import ScriptedCall, ScriptEntry, grammar_fault
from dsh.testing import (
    Gate,
    Hang,
    Wait,
    WireReply,
    broken_off,
    by_bytes,
    delta,
    open_model_server,
    recut,
    reply_of,
    sse_reply,
)
from dsh.testing.model_seam import ask, collect, user
from dsh.testing.wires import OpenServer, answered
from dsh_plugins.openai_chat.catalog import ProviderProfile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dsh.testing.model_server import Step
    from dsh_plugins.openai_chat.catalog import ProviderProfile


LIMIT = 5.0
PINGS: tuple[Step, ...] = (b": ping\n\n", Wait(0.06)) * 1000
GOOD = ScriptEntry(text="all is well")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang: real time, so real limits."""
    with trio.fail_after(4 * LIMIT):
        yield


HALF_CALL = ScriptEntry(tools=(ScriptedCall(name="rm", arguments='{"path": "/"}'),))

PLACES = {
    "waiting for headers": WireReply(before=(Hang(),)),
    "before the first event": WireReply(steps=(Hang(),)),
    "between deltas": broken_off(reply_of(GOOD), 200, Hang()),
    "inside a call": broken_off(reply_of(HALF_CALL), 300, Hang()),
    "reading an error": WireReply(status=500, steps=(b"x", Hang()), headers=()),
    "after done": sse_reply(delta("stop", content="x"), b"data: [DONE]\n\n", Hang(), done=False),
}


@pytest.mark.holds("LM8")
@pytest.mark.parametrize("place", PLACES)
async def test_cancelling_closes_the_connection_at_once(
    open_chat: OpenServer[ProviderProfile], place: str
) -> None:
    async with (
        open_model_server([PLACES[place], GOOD]) as server,
        open_chat(server.base_url) as chat,
    ):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel() -> None:
                    await server.when_requests(1)
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    scope.cancel()

                nursery.start_soon(cancel)
                await collect(chat.stream(ask(user("hi"))))
        with trio.fail_after(LIMIT):
            await server.when_open(0)
        assert (await answered(chat)).finish == StopFinish()


@pytest.mark.holds("LM8")
async def test_leaving_early_closes_the_connection(open_chat: OpenServer[ProviderProfile]) -> None:
    stalls = broken_off(reply_of(GOOD), 200, Hang())
    async with open_model_server([stalls]) as server, open_chat(server.base_url) as chat:
        async with chat.stream(ask(user("hi"))) as chunks:
            await anext(aiter(chunks))
        with trio.fail_after(LIMIT):
            await server.when_open(0)


@pytest.mark.holds("LM8")
async def test_many_cancels_leave_no_connection_behind(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    async with (
        open_model_server(lambda _: broken_off(reply_of(GOOD), 200, Hang())) as server,
        open_chat(server.base_url) as chat,
    ):
        for _ in range(100):
            async with chat.stream(ask(user("hi"))) as chunks:
                await anext(aiter(chunks))
        with trio.fail_after(LIMIT):
            await server.when_open(0)
        assert server.connections == 100


async def test_closing_the_adapter_lets_replies_end_and_refuses_new_ones(
    open_chat: OpenServer[ProviderProfile],
) -> None:
    gate = trio.Event()
    waits = sse_reply(delta(content="a"), Gate(gate), delta("stop", content="b"))
    async with open_model_server([waits]) as server, open_chat(server.base_url) as chat:
        got: list[StreamChunk] = []

        async def read() -> None:
            got.extend(await collect(chat.stream(ask(user("hi")))))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await server.when_requests(1)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.start_soon(chat.aclose)
            await trio.testing.wait_all_tasks_blocked(0.01)
            with pytest.raises(LlmError, match="was unloaded") as caught:
                chat.stream(ask(user("hi")))
            assert caught.value.code == "NO_ADAPTER"
            gate.set()
        assert grammar_fault(got) is None


async def test_recut_replies_are_the_same_replies(open_chat: OpenServer[ProviderProfile]) -> None:
    reply = recut(reply_of(GOOD), by_bytes)
    async with open_model_server([reply]) as server, open_chat(server.base_url) as chat:
        assert (await answered(chat)).blocks() == (TextBlock(text="all is well"),)
