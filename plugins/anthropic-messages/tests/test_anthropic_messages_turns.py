"""The messages wire in the real loop, against a strict server, and beside the other wire."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson
import pytest
import trio
from attrs import evolve, frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin
from dsh.catalog import records
from dsh.errors import MissingCredential
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing import (
    Hang,
    MemoryStore,
    ModelServer,
    TestHouse,
    broken_laws,
    broken_off,
    messages_error,
    messages_reply_of,
    open_model_server,
    open_test_house,
)
from dsh_plugins.anthropic_messages import anthropic_messages
from dsh_plugins.anthropic_messages.catalog import AnthropicMessagesConfig, MessagesProfile
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from dsh.hooks import Next, live
    from dsh.tools import Tool

CANARY = "sk-ant-canary-5a1c"
CLAUDE = records.AgentOptions(provider="anthropic", model="claude", reasoning_effort="low")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang: real time, so real limits."""
    with trio.fail_after(20):
        yield


@frozen
class Nothing:
    """No arguments."""


async def look(_args: Nothing, _run: live.ToolRun) -> str:
    """A tool."""
    return "seen"


LOOK: Tool = define_tool(name="look", description="Looks", args=Nothing, output=str, execute=look)


@asynccontextmanager
async def running(
    server: ModelServer, *, store: MemoryStore | None = None, key: str | None = CANARY
) -> AsyncGenerator[TestHouse]:
    environ = ProcessEnviron({} if key is None else {"ANTHROPIC_API_KEY": key})
    async with open_test_house(tools=[LOOK], store=store) as house:
        mount = house.kernel.mount
        await mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        claude = MessagesProfile(base_url=server.base_url)
        await mount(
            anthropic_messages, AnthropicMessagesConfig(providers={"anthropic": claude})
        ).ready()
        other = ProviderProfile(base_url=server.base_url, family="generic")
        await mount(openai_chat, OpenAiChatConfig(providers={"other": other})).ready()
        yield house


def thinks(text: str, *, call: str | None = None) -> ScriptEntry:
    tools = () if call is None else (ScriptedCall(name="look", arguments="{}", id=call),)
    return ScriptEntry(reasoning=f"\n\nAbout {text}.  ", text=text, tools=tools)


@pytest.mark.holds("LM14", "LM12")
async def test_turns_with_thinking_and_tools_pass_a_strict_server_and_survive_a_resume() -> None:
    store = MemoryStore()
    replies = [thinks("one", call="t1"), thinks("two"), thinks("three"), thinks("four")]
    async with open_model_server(replies, strict=True) as server:
        async with running(server, store=store) as house:
            handle = await house.agent(options=CLAUDE)
            assert (await handle.agent.ask(user_message("go"))).text == "two"
            assert (await handle.agent.ask(user_message("on"))).text == "three"
            assert broken_laws(house.session(handle)) == []
            await handle.aclose()
        async with running(server, store=store) as house:
            again = await house.agents.resume("s", options=CLAUDE)
            assert (await again.agent.ask(user_message("more"))).text == "four"
        assert server.refusals == []
        assert server.requests[0].path == "/v1/messages"
        assert server.requests[0].headers["x-api-key"] == CANARY
        assert server.requests[0].headers["anthropic-version"] == "2023-06-01"
        last = orjson.loads(server.requests[-1].body)
        kinds = [[block["type"] for block in one["content"]] for one in last["messages"]]
        assert kinds[1] == ["thinking", "text", "tool_use"]


@pytest.mark.holds("LM16")
@pytest.mark.parametrize("first", ["anthropic", "other"])
async def test_one_session_moves_between_the_wires_within_and_between_turns(first: str) -> None:
    second = "other" if first == "anthropic" else "anthropic"
    order = [first, second, first, second, second, first, first]
    replies = [thinks(f"r{at}", call=f"fn.x:{at}" if at < 4 else None) for at in range(7)]
    async with open_model_server(replies, strict=True) as server, running(server) as house:
        asked: list[str] = []

        async def route(
            _ask: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            config = await call_next()
            provider = order[len(asked)]
            asked.append(provider)
            effort = "low" if provider == "anthropic" else None
            return evolve(config, provider=provider, model="m", reasoning_effort=effort)

        house.ctx.on(ev.agent.REQUEST)(route)
        handle = await house.agent(options=CLAUDE)
        # The first turn has five steps, on both wires in turn.
        for text in ("r4", "r5", "r6"):
            outcome = await handle.agent.ask(user_message("go"))
            assert (outcome.reason, outcome.text) == (records.CompletedTurnEnd(), text)
        assert server.refusals == []
        assert asked == order
        paths = [request.path.rpartition("/")[2] for request in server.requests]
        assert [path == "messages" for path in paths] == [one == "anthropic" for one in order]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("LM9")
async def test_no_key_is_an_early_failure_and_a_repeated_key_is_hidden(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = messages_error(401, "authentication_error", f"invalid x-api-key: {CANARY}")
    async with open_model_server([refused]) as server:
        async with running(server, key=None) as house:
            with pytest.raises(MissingCredential, match="ANTHROPIC_API_KEY"):
                house.llm.verify("anthropic")
            assert server.connections == 0
        async with running(server) as house:
            handle = await house.agent(options=CLAUDE)
            outcome = await handle.agent.ask(user_message("go"))
            assert isinstance(outcome.reason, records.ErrorTurnEnd)
            assert outcome.reason.error.code == "AUTH"
            shown = repr(tuple(house.session(handle).events)) + repr(outcome) + caplog.text
            assert CANARY not in shown
            assert "ANTHROPIC_API_KEY" in outcome.reason.error.message


@pytest.mark.holds("LM8")
async def test_a_cancel_closes_the_connection_and_keeps_what_could_be_read() -> None:
    stalls = broken_off(messages_reply_of(thinks("a long answer")), 900, Hang())
    async with (
        open_model_server([stalls, thinks("again")], strict=True) as server,
        running(server) as house,
    ):
        handle = await house.agent(options=CLAUDE)
        session = house.session(handle)
        handle.agent.followup(user_message("go"))
        while not any(isinstance(e.data, ev.assistant.Chunk) for e in session.events):
            await trio.testing.wait_all_tasks_blocked(0.005)
        handle.agent.cancel(records.UserCause())
        with trio.fail_after(0.5):
            await server.when_open(0)
        await handle.agent.when_idle()
        # The cut thinking has no signature: it stays in the log and does not go back.
        assert (await handle.agent.ask(user_message("again"))).text == "again"
        assert server.refusals == []


@pytest.mark.holds("CO9")
async def test_a_prompt_that_is_too_long_is_known_as_such() -> None:
    async with (
        open_model_server([thinks("x")], token_limit=300) as server,
        running(server) as house,
    ):
        handle = await house.agent(options=CLAUDE)
        outcome = await handle.agent.ask(user_message("word " * 1000))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == "CONTEXT_WINDOW_EXCEEDED"
