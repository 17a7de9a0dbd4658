"""Deadlines of tools: keyed off the timer, never off the shape of what the body raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen

from dsh import catalog as ev
from dsh.hooks.live import ToolSuccess
from dsh.testing import context_of, open_tool_room, told
from dsh.tools import define_tool
from dsh_plugins.tool_timeout import tool_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio.testing import MockClock as Clock

    from dsh import Next
    from dsh.hooks.live import ToolRun
    from dsh.testing import ToolRoom


@frozen
class Nothing:
    """No arguments."""


@pytest.fixture
async def room() -> AsyncIterator[ToolRoom]:
    async with open_tool_room() as opened:
        await opened.kernel.mount(tool_timeout).ready()
        yield opened


async def register(
    room: ToolRoom,
    body: Callable[[Nothing, ToolRun], Awaitable[str]],
    timeout: float | None = 2.0,  # noqa: ASYNC109 - the option under test
) -> None:
    ctx = await room.plugin("author")
    tool = define_tool(
        name="work", description="", args=Nothing, output=str, execute=body, timeout=timeout
    )
    room.tools.register(ctx, tool)


async def test_a_call_that_is_fast_enough_is_left_alone(
    room: ToolRoom, autojump_clock: Clock
) -> None:
    del autojump_clock

    async def body(_args: Nothing, _run: ToolRun) -> str:
        await trio.sleep(1.99)
        return "ready"

    await register(room, body)
    assert told(await room.run("work")).text == "ready"


async def test_a_call_that_is_not_is_ended_and_waited_for(
    room: ToolRoom, autojump_clock: Clock
) -> None:
    del autojump_clock
    ended = False

    async def body(_args: Nothing, run: ToolRun) -> str:
        nonlocal ended
        run.defer_context(context_of("kept"))
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
            ended = True

    await register(room, body)
    began = trio.current_time()
    finished = await room.run("work")
    assert (trio.current_time() - began, ended) == (2.5, True)
    assert told(finished).code == "TOOL_TIMEOUT"
    assert told(finished).text.startswith("Error: the tool call timed out after 2000 ms")
    assert [message.id for message in finished.result.contexts] == ["kept"]


@pytest.mark.parametrize("how", ["raises", "returns", "own-timeout"])
async def test_what_the_body_makes_of_its_cancellation_does_not_count(
    room: ToolRoom, how: str, autojump_clock: Clock
) -> None:
    del autojump_clock

    async def body(_args: Nothing, _run: ToolRun) -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if how == "raises":
                raise ValueError("mine") from None
            if how == "own-timeout":
                raise TimeoutError from None
        return "too late"

    await register(room, body)
    assert told(await room.run("work")).code == "TOOL_TIMEOUT"


async def test_a_failure_that_only_looks_like_a_deadline_is_the_bodys_own(
    room: ToolRoom, autojump_clock: Clock
) -> None:
    del autojump_clock

    async def body(_args: Nothing, _run: ToolRun) -> str:
        raise TimeoutError("the server was slow")

    await register(room, body)
    assert told(await room.run("work")).text == "Error: the server was slow"


async def test_a_cancelled_turn_wins_over_the_deadline(
    room: ToolRoom, autojump_clock: Clock
) -> None:
    del autojump_clock

    async def body(_args: Nothing, _run: ToolRun) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
            room.signal.cancel()
            await trio.sleep(2)
        await trio.lowlevel.checkpoint()
        return ""

    await register(room, body)
    assert told(await room.run("work")).code == "ABORTED"


async def test_a_tool_without_a_deadline_has_none(room: ToolRoom, autojump_clock: Clock) -> None:
    del autojump_clock

    async def body(_args: Nothing, _run: ToolRun) -> str:
        await trio.sleep(80_000)
        return "ready"

    await register(room, body, timeout=None)
    assert isinstance((await room.run("work")).result, ToolSuccess)


@pytest.mark.holds("case-074")
async def test_the_time_before_the_body_is_not_part_of_it(
    room: ToolRoom, autojump_clock: Clock
) -> None:
    del autojump_clock

    async def body(_args: Nothing, _run: ToolRun) -> str:
        return "ready"

    await register(room, body)
    ctx = await room.plugin("asker")

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def slow(
        _event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        await trio.sleep(5)  # a person reads
        return await call_next()

    assert told(await room.run("work")).text == "ready"
