"""Histories on the wire through a whole life: turns, resume, fork, compaction, a strict server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson
import pytest
import trio
from attrs import frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin
from dsh.catalog import records
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.seams.compaction import COMPACTION
from dsh.session import fork_log
from dsh.testing import MemoryStore, ModelServer, TestHouse, open_model_server, open_test_house
from dsh_plugins.compaction import compaction
from dsh_plugins.compaction.catalog import CompactionConfig
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from dsh.hooks import JsonValue, Next, live
    from dsh.testing import RecordedRequest
    from dsh.tools import Tool

ROUTE = records.AgentOptions(provider="deepseek", model="m")
THOUGHT = "\n\nLet me look.  "


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang: real time, so real limits."""
    with trio.fail_after(20):
        yield


@frozen
class Pause:
    """How long the tool takes, and what it says."""

    seconds: float = 0.0
    says: str = "seen " * 200


async def look(args: Pause, _run: live.ToolRun) -> str:
    """A tool that takes a while."""
    await trio.sleep(args.seconds)
    return args.says


LOOK: Tool = define_tool(
    name="look",
    description="Looks",
    args=Pause,
    output=str,
    execute=look,
    execution_mode="parallel",
)


@asynccontextmanager
async def running(server: ModelServer, store: MemoryStore) -> AsyncGenerator[TestHouse]:
    environ = ProcessEnviron({"DEEPSEEK_API_KEY": "k"})
    profile = ProviderProfile(base_url=server.base_url)
    async with open_test_house(tools=[LOOK], plugins=[token_meter], store=store) as house:
        mount = house.kernel.mount
        await mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        await mount(openai_chat, OpenAiChatConfig(providers={"deepseek": profile})).ready()
        await mount(compaction, CompactionConfig(), slot=9).ready()
        yield house


def thinks(text: str, *calls: ScriptedCall) -> ScriptEntry:
    return ScriptEntry(reasoning=THOUGHT, text=text, tools=calls)


def messages(request: RecordedRequest) -> list[dict[str, JsonValue]]:
    found: list[dict[str, JsonValue]] = orjson.loads(request.body)["messages"]
    return found


@pytest.mark.holds("case-025")
async def test_reasoning_goes_back_exactly_through_resume_fork_and_compaction() -> None:
    store = MemoryStore()
    call = ScriptedCall(name="look", arguments="{}", id="c1")
    answers = [
        thinks("", call),
        thinks("one"),
        ScriptEntry(text="two"),
        thinks("", ScriptedCall(name="look", arguments="{}", id="c2")),
        thinks("three"),
        ScriptEntry(text="child"),
        ScriptEntry(text="We looked twice."),
        ScriptEntry(text="four"),
    ]
    async with open_model_server(answers, strict=True) as server:
        async with running(server, store) as house:
            handle = await house.agent(options=ROUTE)
            assert (await handle.agent.ask(user_message("look"))).text == "one"
            assert (await handle.agent.ask(user_message("again"))).text == "two"
            await handle.aclose()
        await fork_log(store, await store.read("s"), child_id="child", now_ms=1)
        async with running(server, store) as house:
            again = await house.agents.resume("s", options=ROUTE)
            assert (await again.agent.ask(user_message("more"))).text == "three"
            child = await house.agents.resume("child", options=ROUTE)
            assert (await child.agent.ask(user_message("you?"))).text == "child"
            # The kept tail begins after the first turn.
            nodes = house.session(again).surface.nodes
            engine = house.ctx.get(COMPACTION)
            assert engine is not None
            assert await engine.compact_region(again.agent, nodes[1], nodes[4]) is not None
            assert (await again.agent.ask(user_message("last"))).text == "four"
        assert server.refusals == []
        for request in server.requests:
            for message in messages(request):
                if message["role"] != "assistant" or message["content"] == "two":
                    assert "reasoning_content" not in message
                else:
                    assert message["reasoning_content"] == THOUGHT
        last = messages(server.requests[-1])
        assert [one["role"] for one in last][:2] == ["user", "user"]
        assert any("tool_calls" in one for one in last)


@pytest.mark.holds("case-025")
async def test_a_refusal_of_the_history_is_not_sent_again_unchanged() -> None:
    refused = ScriptEntry(
        error=records.LlmFailure(
            message="The `reasoning_content` in the thinking mode must be passed back to the API.",
            code="invalid_request_error",
            status=400,
        )
    )
    async with (
        open_model_server([refused, ScriptEntry(text="never")]) as server,
        running(server, MemoryStore()) as house,
    ):
        handle = await house.agent(options=ROUTE)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == "INVALID_REQUEST"
        assert len(server.requests) == 1


@pytest.mark.holds("case-032")
async def test_results_stand_in_the_order_of_their_calls_live_and_after_a_resume() -> None:
    store = MemoryStore()
    batch = tuple(
        ScriptedCall(name="look", arguments=f'{{"seconds": {wait}, "says": "{name}"}}', id=name)
        for name, wait in (("a", 0.09), ("b", 0.03), ("c", 0.06), ("d", 0))
    )
    answers = [ScriptEntry(tools=batch), ScriptEntry(text="one"), ScriptEntry(text="two")]
    async with open_model_server(answers, strict=True) as server:
        async with running(server, store) as house:
            handle = await house.agent(options=ROUTE)

            async def review(
                done: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
            ) -> ev.tools.PostExecuteDecision:
                if done.exec.call_id != "b":
                    return await call_next()
                handle.agent.steer(user_message("steered"))
                note = user_message("context", source=records.PluginSource(plugin="t"))
                return ev.tools.Accept(additional_contexts=(note,))

            house.ctx.on(ev.tools.POST_EXECUTE)(review)
            house.tools.guard(house.ctx, lambda one: "no" if one.call_id == "d" else None)
            assert (await handle.agent.ask(user_message("go"))).text == "one"
            await handle.aclose()
        async with running(server, store) as house:
            again = await house.agents.resume("s", options=ROUTE)
            assert (await again.agent.ask(user_message("more"))).text == "two"
        assert server.refusals == []
        live, resumed = (messages(request) for request in server.requests[1:])
        results = [one for one in live if one["role"] == "tool"]
        assert [one["tool_call_id"] for one in results] == ["a", "b", "c", "d"]
        at = live.index(results[0])
        assert live[at - 1]["role"] == "assistant"
        after = [str(one["content"]) for one in live[at + 4 :]]
        assert sorted(after) == ["context", "steered"]
        before = server.requests[1].body.rpartition(b"]")[0]
        assert server.requests[2].body.startswith(before)
        assert resumed[: len(live)] == live


@pytest.mark.holds("case-030")
@pytest.mark.parametrize("same", [True, False])
async def test_two_calls_with_one_id_have_two_ids_and_two_results(*, same: bool) -> None:
    store = MemoryStore()
    twins = tuple(
        ScriptedCall(name="look", arguments=f'{{"says": "{said}"}}', id="functions.look:1")
        for said in ("x", "x" if same else "y")
    )
    answers = [ScriptEntry(tools=twins), ScriptEntry(text="one"), ScriptEntry(text="two")]
    async with open_model_server(answers, strict=True) as server:
        async with running(server, store) as house:
            handle = await house.agent(options=ROUTE)
            assert (await handle.agent.ask(user_message("go"))).text == "one"
            await handle.aclose()
        async with running(server, store) as house:
            again = await house.agents.resume("s", options=ROUTE)
            assert (await again.agent.ask(user_message("more"))).text == "two"
        assert server.refusals == []
        for request in server.requests[1:]:
            sent = messages(request)
            (asked,) = [one["tool_calls"] for one in sent if "tool_calls" in one]
            assert isinstance(asked, list)
            ids = [call["id"] for call in asked if isinstance(call, dict)]
            assert len(set(ids)) == 2
            assert [one["tool_call_id"] for one in sent if one["role"] == "tool"] == ids
