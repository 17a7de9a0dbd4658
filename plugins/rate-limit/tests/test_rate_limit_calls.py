"""Limits: exact at their edge, by agent, for calls that run; also when calls start together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from dsh import catalog as ev
from dsh.hooks.live import ToolSuccess
from dsh.testing import BatchBench, always_pre, call_block, echo_tool, open_tool_room, told
from dsh_plugins.rate_limit import rate_limit
from dsh_plugins.rate_limit.catalog import RateLimit, RateLimitConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock as Clock

    from dsh.testing import ToolRoom

TWO = RateLimitConfig(limits=(RateLimit(tool="echo*", calls=2, per_ms=1_000),))


@pytest.fixture
async def room() -> AsyncIterator[ToolRoom]:
    async with open_tool_room() as opened:
        yield opened


async def furnished(room: ToolRoom, config: RateLimitConfig) -> None:
    await room.kernel.mount(rate_limit, config).ready()
    ctx = await room.plugin("author")
    room.tools.register(ctx, echo_tool())
    room.tools.register(ctx, echo_tool(name="other"))


async def test_one_call_more_is_refused_until_the_first_is_a_span_ago(
    room: ToolRoom, autojump_clock: Clock
) -> None:
    del autojump_clock
    await furnished(room, TWO)
    assert told(await room.run("echo")).text == "x"
    await trio.sleep(0.6)
    assert told(await room.run("echo")).text == "x"
    refused = await room.run("echo")
    assert told(refused).text == (
        "Error: rate limit: at most 2 calls of echo* in 1 s; try again in 1 s"
    )
    assert refused.decided_by == "rate-limit"
    assert told(await room.run("other")).text == "x"
    await trio.sleep(0.39)
    assert not isinstance((await room.run("echo")).result, ToolSuccess)
    await trio.sleep(0.01)
    assert told(await room.run("echo")).text == "x"


async def test_calls_that_do_not_run_are_not_counted(room: ToolRoom, autojump_clock: Clock) -> None:
    del autojump_clock
    await furnished(room, TWO)
    ctx = await room.plugin("strict", slot=9)
    always_pre(ctx, ev.tools.Deny(reason="no"))
    for _ in range(5):
        assert told(await room.run("echo")).text == "Error: no"


async def test_calls_without_an_agent_are_not_limited(
    room: ToolRoom, autojump_clock: Clock
) -> None:
    del autojump_clock
    await furnished(room, TWO)
    for _ in range(5):
        assert told(await room.run("echo", agent=False)).text == "x"


async def test_calls_that_start_together_are_limited_too(
    room: ToolRoom, autojump_clock: Clock
) -> None:
    del autojump_clock
    limit = RateLimit(tool="par", calls=2)
    await room.kernel.mount(rate_limit, RateLimitConfig(limits=(limit,))).ready()
    bench = BatchBench(room)
    await bench.register()
    await room.batch(*[call_block(f"c{number}", "par") for number in range(5)])
    assert len(bench.started) == 2
    assert len(bench.ids) == 5
    refused = [one for one in room.host.results if one.text.startswith("Error: rate limit")]
    assert len(refused) == 3
