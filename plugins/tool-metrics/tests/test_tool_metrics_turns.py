"""Measurements of tool calls in the real loop: one summary a turn, also for the last turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing
from attrs import frozen

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.testing import MemoryStore, always_pre, call, calls, open_test_house, says
from dsh_plugins.tool_metrics import tool_metrics
from dsh_plugins.tool_metrics.catalog import ToolUse
from dsh_plugins.tool_metrics.catalog import tool_metrics as events

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks.live import ToolRun
    from dsh.testing import TestHouse
    from dsh.tools import Tool


@frozen
class Args:
    """How long it takes, and whether it fails."""

    seconds: float = 0.0
    fails: bool = False


async def work(args: Args, _run: ToolRun) -> str:
    await trio.sleep(args.seconds)
    if args.fails:
        raise ValueError("no")
    return "été"


WORK: Tool = define_tool(name="work", description="", args=Args, output=str, execute=work)
IDLE: Tool = define_tool(name="idle", description="", args=Args, output=str, execute=work)


def logged(house: TestHouse, handle: AgentHandle) -> list[events.Turn]:
    return [e.data for e in house.session(handle).events if isinstance(e.data, events.Turn)]


async def test_a_turn_is_summed_up_by_tool(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    one = calls(
        call("work", '{"seconds": 1.5}'), call("work", '{"seconds": 2, "fails": true}'),
        call("idle"),
    )  # fmt: skip
    async with open_test_house(replies=[one, says("x"), says("y")], tools=[WORK, IDLE]) as house:
        await house.kernel.mount(tool_metrics).ready()
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        await trio.testing.wait_all_tasks_blocked()
        (turn,) = logged(house, handle)
        assert turn.turn == 1
        assert turn.tools == (
            ToolUse(
                name="idle", calls=1, ran=1, failed=0, total_ms=0, longest_ms=0, result_bytes=5
            ),
            ToolUse(
                name="work", calls=2, ran=2, failed=1,
                total_ms=3500, longest_ms=2000, result_bytes=len("été".encode()) + len("Error: no"),
            ),
        )  # fmt: skip
        await handle.agent.ask(user_message("a turn without tools"))
        await trio.testing.wait_all_tasks_blocked()
        assert len(logged(house, handle)) == 1


async def test_refused_calls_are_counted_and_did_not_run() -> None:
    replies = [calls(call("work"), call("nothing")), says("x")]
    async with open_test_house(replies=replies, tools=[WORK]) as house:
        await house.kernel.mount(tool_metrics).ready()
        always_pre(house.ctx, ev.tools.Deny(reason="no"))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        await trio.testing.wait_all_tasks_blocked()
        (turn,) = logged(house, handle)
        assert [(use.name, use.calls, use.ran, use.failed) for use in turn.tools] == [
            ("nothing", 1, 0, 1),
            ("work", 1, 0, 1),
        ]


async def test_the_last_turn_is_logged_before_the_log_closes() -> None:
    store = MemoryStore()
    replies = [calls(call("work")), says("x")]
    async with open_test_house(replies=replies, tools=[WORK], store=store) as house:
        await house.kernel.mount(tool_metrics).ready()
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        await handle.aclose()  # at once: nothing had time to run
        log = await store.read("s")
    assert [event.type for event in log.events].count(events.TURN.name) == 1
