"""A turn over a real socket whose server fails first and answers then: it recovers by itself."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest
import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin
from dsh.catalog import records
from dsh.llm import ScriptEntry
from dsh.testing import (
    Close,
    Hang,
    Reset,
    WireReply,
    broken_laws,
    broken_off,
    error_reply,
    open_model_server,
    open_test_house,
    reply_of,
)
from dsh_plugins.llm_retry import llm_retry
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.hooks import Next
    from dsh.testing import TestHouse

ANSWER: Final = reply_of(ScriptEntry(text="all is well"))
#: Waits that nobody has to wait for.
POLICY: Final = records.NormalRetryPolicy(
    max_retries=3, initial_delay_ms=1, max_delay_ms=5, jitter_ratio=0
)
OPTIONS: Final = records.AgentOptions(provider="chat", model="m")
FAILING: Final[dict[str, tuple[WireReply, str]]] = {
    "closes after the headers": (broken_off(ANSWER, 0, Close()), "STREAM_CLOSED"),
    "closes inside the text": (broken_off(ANSWER, 90, Close()), "STREAM_CLOSED"),
    "resets inside the text": (broken_off(ANSWER, 90, Reset()), "TRANSPORT"),
    "ends the body early": (
        evolve(broken_off(ANSWER, 90, Close()), framing="length"),
        "STREAM_CLOSED",
    ),
    "says nothing": (reply_of(ScriptEntry()), "EMPTY_RESPONSE"),
    "falls silent": (broken_off(ANSWER, 90, Hang()), "TIMEOUT"),
    "is overloaded": (error_reply(529, {"error": {"message": "busy"}}), "SERVER"),
}


@asynccontextmanager
async def talking_to(url: str) -> AsyncGenerator[TestHouse]:
    environ = ProcessEnviron({})
    async with open_test_house(plugins=[llm_retry]) as house:
        await house.kernel.mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        profile = ProviderProfile(
            base_url=url, idle_timeout_ms=150, connect_timeout_ms=1000, retry_policy=POLICY
        )
        config = OpenAiChatConfig(providers={"chat": profile})
        await house.kernel.mount(openai_chat, config).ready()
        yield house


async def outcome_of(house: TestHouse, failed: str) -> None:
    """Ask once: the answer is whole, and stands alone; the one retry names what failed."""
    handle = await house.agent(options=OPTIONS)
    outcome = await handle.agent.ask(user_message("how is it?"))
    assert (outcome.text, outcome.reason) == ("all is well", records.CompletedTurnEnd())
    session = house.session(handle)
    retries = [e.data.failure.code for e in session.events if isinstance(e.data, ev.llm.Retry)]
    assert retries == [failed]
    assert [message.role for message in session.derive_messages()] == ["user", "assistant"]
    assert broken_laws(session) == []


@pytest.mark.holds("YT02", "YT03", "YT05")
@pytest.mark.parametrize("what", FAILING)
async def test_a_server_that_fails_once_is_asked_again(what: str) -> None:
    reply, code = FAILING[what]
    with trio.fail_after(30):
        async with (
            open_model_server([reply, ANSWER]) as server,
            talking_to(server.base_url) as house,
        ):
            await outcome_of(house, code)
            assert len(server.requests) == 2


@pytest.mark.holds("YT01")
async def test_a_server_that_is_not_there_yet_is_asked_again() -> None:
    async with open_model_server([]) as gone:
        port, url = gone.port, gone.base_url
    with trio.fail_after(30):
        async with talking_to(url) as house, trio.open_nursery() as nursery:
            up = trio.Event()
            done = trio.Event()

            async def serve() -> None:
                async with open_model_server([ANSWER], port=port):
                    up.set()
                    await done.wait()

            async def wait_for_it(
                failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
            ) -> ev.agent.Retry | None:
                del failed
                nursery.start_soon(serve)
                await up.wait()
                return await call_next()

            house.ctx.on(ev.agent.REQUEST_ERROR, prepend=True)(wait_for_it)
            await outcome_of(house, "TRANSPORT")
            done.set()
