"""Long sessions against a strict server with a token limit: shortened in time, nothing pinned lost.

`DSH_LONG_STEPS=300` runs the full length; the ordinary run is short.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
import trio
from attrs import frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin, process_environ
from dsh.catalog import records
from dsh.llm import ScriptedCall, ScriptEntry
from dsh.testing import broken_laws, open_model_server, open_test_house
from dsh.wire import encode_line
from dsh_plugins.anthropic_messages import anthropic_messages
from dsh_plugins.anthropic_messages.catalog import AnthropicMessagesConfig, MessagesProfile
from dsh_plugins.compaction import compaction
from dsh_plugins.compaction.catalog import CompactionConfig
from dsh_plugins.llm_retry import llm_retry
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile
from dsh_plugins.token_meter import token_meter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from dsh.hooks import live
    from dsh.testing import ModelServer, RecordedRequest, TestHouse
    from dsh.tools import Tool
    from dsh.wire import StoredEvent

STEPS: Final = int(process_environ().get("DSH_LONG_STEPS") or 40)
#: So that a run is shortened about ten times, whatever its length.
LIMIT: Final = max(STEPS * 70, 5000)
FACT: Final = "The vault's code is 4711-blau."
SECOND: Final = "Second wish: paint it green."


@frozen
class Nothing:
    """No arguments."""


async def look(_args: Nothing, _run: live.ToolRun) -> str:
    """About four hundred tokens of output with many kinds of characters."""
    return "line of output, with „quotes“ and 中文字符\n" * 36


LOOK: Tool = define_tool(name="look", description="Looks", args=Nothing, output=str, execute=look)


class Model:
    """Asks for the tool again and again; writes a short summary when it is asked for one."""

    def __init__(self, *, counts: bool) -> None:
        self._counts = counts
        self.steps = 0
        self.summaries = 0
        self.bodies: list[bytes] = []

    def __call__(self, request: RecordedRequest) -> ScriptEntry:
        usage = None
        if self._counts:
            usage = records.Usage(input_tokens=len(request.body) // 4, output_tokens=20)
        if b"takes the place of everything above" in request.body:
            self.summaries += 1
            return ScriptEntry(text=f"Summary {self.summaries}: we look on.", usage=usage)
        self.bodies.append(request.body)
        self.steps += 1
        if self.steps % STEPS == 0:
            return ScriptEntry(text="done", usage=usage)
        call = ScriptedCall(name="look", arguments="{}", id=None)
        return ScriptEntry(text="Looking.", tools=(call,), usage=usage)


@asynccontextmanager
async def running(server: ModelServer, window: int | None) -> AsyncGenerator[TestHouse]:
    environ = ProcessEnviron({})
    profile = ProviderProfile(base_url=server.base_url, context_window=window)
    messages = MessagesProfile(base_url=server.base_url, context_window=LIMIT, max_tokens=1000)
    async with open_test_house(plugins=[token_meter, llm_retry], tools=[LOOK]) as house:
        mount = house.kernel.mount
        await mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
        await mount(openai_chat, OpenAiChatConfig(providers={"chat": profile})).ready()
        other = AnthropicMessagesConfig(providers={"messages": messages})
        await mount(anthropic_messages, other).ready()
        await mount(compaction, CompactionConfig(), slot=9).ready()
        yield house


def size(events: Sequence[StoredEvent]) -> int:
    return sum(len(encode_line(event)) for event in events)


@pytest.mark.holds("CO1", "CO5", "CO8", "CO9")
@pytest.mark.parametrize(
    ("wire", "counts", "known", "refusals"),
    [
        ("chat", True, True, 0),
        ("chat", False, True, 1),
        ("chat", True, False, 1),
        ("messages", True, True, 0),
        ("messages", False, True, 1),
    ],
)
async def test_a_long_session_is_shortened_again_and_again_and_goes_on(
    wire: str, *, counts: bool, known: bool, refusals: int
) -> None:
    model = Model(counts=counts)
    with trio.fail_after(30 + STEPS):
        async with (
            open_model_server(model, strict=True, token_limit=LIMIT) as server,
            running(server, LIMIT if known else None) as house,
        ):
            handle = await house.agent(options=records.AgentOptions(provider=wire, model="m"))
            outcome = await handle.agent.ask(user_message(FACT))
            assert outcome.reason == records.CompletedTurnEnd()
            half = house.session(handle).next_seq
            outcome = await handle.agent.ask(user_message(SECOND))
            assert outcome.reason == records.CompletedTurnEnd()
            events = tuple(house.session(handle).events)
            assert broken_laws(house.session(handle)) == []
            refused = list(server.refusals)
    ended = [event.data for event in events if isinstance(event.data, ev.compaction.End)]
    assert len(ended) >= 10
    assert len([end for end in ended if end.error is not None]) <= len(ended) // 5
    # Never refused for anything but its length, and never twice in a row for that.
    assert all(" tokens" in words for words in refused)
    assert len(refused) <= refusals
    assert model.summaries >= 10
    # What is pinned is in every request, once.
    for at, body in enumerate(model.bodies):
        assert body.count(FACT.encode()) == 1
        assert at < STEPS or body.count(SECOND.encode()) == 1
    # The log grows with what is done, not with how long it has been.
    first, second = size(events[:half]), size(events[half:])
    assert second < 1.15 * first
    print_figures(events, ended, refused, model)


def print_figures(
    events: Sequence[StoredEvent],
    ended: Sequence[ev.compaction.End],
    refused: Sequence[str],
    model: Model,
) -> None:
    """For `pytest -s`: what the run came to."""
    prefix = [end.prefix_tokens or 0 for end in ended]
    after = [end.tokens_after or 0 for end in ended if end.error is None]
    reused = shared_prefix(model.bodies)
    print(  # noqa: T201
        f"\n{model.steps} steps, {len(ended)} compactions ({len(after)} done), "
        f"{len(refused)} refusals, {size(events) / model.steps:.0f} log bytes a step, "
        f"{sum(after) / max(len(after), 1):.0f} tokens after one, stable prefix "
        f"{sum(prefix) / max(len(prefix), 1):.0f} tokens, {reused:.1%} of request bytes were a "
        "prefix of the request before"
    )


def shared_prefix(bodies: Sequence[bytes]) -> float:
    """The part of all bytes sent that stood, in the same place, in the request before."""
    same = 0
    for one, other in pairwise(bodies):
        low, high = 0, min(len(one), len(other))
        while low < high:
            middle = (low + high + 1) // 2
            if one[:middle] == other[:middle]:
                low = middle
            else:
                high = middle - 1
        same += low
    return same / max(sum(map(len, bodies[1:])), 1)
