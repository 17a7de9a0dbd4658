"""Cancelling a batch: what started is waited for and recorded, what did not is paired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.hooks.live import ToolRun, ToolSuccess
from dsh.testing import BatchBench, BenchArgs, call_block, context_of
from dsh.tools import BatchOutcome, define_tool, run_batch

if TYPE_CHECKING:
    from dsh import Next


def block(call_id: str, name: str = "par", **arguments: str) -> ev.records.ToolCallBlock:
    return call_block(call_id, name, **arguments)


@pytest.mark.holds("TC16", "F8", "M17")
async def test_a_signal_set_before_starts_nothing_and_pairs_everything(bench: BatchBench) -> None:
    bench.room.signal.cancel()
    outcome = await bench.room.batch(block("a"), block("b", "exc"), block("c", "nope"))
    assert outcome == BatchOutcome(concludes_turn=False, aborted=True)
    assert bench.started == []
    assert bench.codes == ["ABORTED_BEFORE_DISPATCH"] * 3
    assert bench.room.host.log == [
        "call a", "result a", "call b", "result b", "call c", "result c",
    ]  # fmt: skip
    assert bench.room.host.results[0].text == "Error: tool call aborted before dispatch"


@pytest.mark.holds("TC17", "F8")
async def test_a_cancel_during_policy_starts_no_sibling(bench: BatchBench) -> None:
    ctx = await bench.room.plugin("policy")

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        if event.exec.call_id == "b":
            bench.room.signal.cancel()
        return await call_next()

    await bench.room.batch(block("a", gate="never"), block("b"), block("c"))
    assert bench.started == []  # a was admitted, but had not begun
    assert bench.codes == ["ABORTED_BEFORE_DISPATCH"] * 3
    assert bench.ids == ["a", "b", "c"]


@pytest.mark.holds("TC19", "F8", "F14", "XT63")
async def test_a_cancel_ends_bodies_and_never_reaches_the_barrier(bench: BatchBench) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            bench.room.batch, block("a"), block("b", gate="never"), block("x", "exc"), block("c")
        )
        await wait_all_tasks_blocked()
        bench.room.signal.cancel()
    assert set(bench.started) == set(bench.ended) == {"a", "b"}
    assert bench.codes == [None, "ABORTED", "ABORTED_BEFORE_DISPATCH", "ABORTED_BEFORE_DISPATCH"]


@pytest.mark.holds("F14", "XT56", "XT59")
@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [("value", "ABORTED", "aborted"), ("own", None, "my own"), ("mixed", None, "my own")],
)
async def test_what_a_body_does_after_the_cancel_decides(
    bench: BatchBench, ending: str, code: str | None, words: str
) -> None:
    ctx = await bench.room.plugin("p")

    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("my own")

    async def body(_args: BenchArgs, run: ToolRun) -> str:
        run.defer_context(context_of("deferred"))
        if ending == "mixed":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fails)
                nursery.start_soon(trio.sleep_forever)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if ending == "own":
                raise ValueError("my own") from None
            return "too late"

    tool = define_tool(
        name="odd",
        description="",
        args=BenchArgs,
        output=str,
        execute=body,
    )
    bench.room.tools.register(ctx, tool)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.room.batch, block("a", "odd"))
        await wait_all_tasks_blocked()
        bench.room.signal.cancel()
    (committed,) = bench.room.host.results
    assert committed.code == code
    assert words in committed.text
    assert [message.id for message in bench.room.host.contexts] == ["deferred"]


@pytest.mark.holds("F14")
async def test_two_cancelled_children_of_a_body_are_only_a_cancellation(bench: BatchBench) -> None:
    ctx = await bench.room.plugin("p")

    async def body(_args: BenchArgs, _run: ToolRun) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
        return ""

    tool = define_tool(name="two", description="", args=BenchArgs, output=str, execute=body)
    bench.room.tools.register(ctx, tool)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.room.batch, block("a", "two"))
        await wait_all_tasks_blocked()
        bench.room.signal.cancel()
    assert bench.codes == ["ABORTED"]


@pytest.mark.holds("F14", "M15")
async def test_a_shielded_body_is_waited_for(
    bench: BatchBench, autojump_clock: trio.testing.MockClock
) -> None:
    ctx = await bench.room.plugin("p")

    async def body(_args: BenchArgs, _run: ToolRun) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return "done anyway"

    tool = define_tool(name="slow", description="", args=BenchArgs, output=str, execute=body)
    bench.room.tools.register(ctx, tool)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.room.batch, block("a", "slow"), block("b"))
        await trio.sleep(1)
        bench.room.signal.cancel()
    assert trio.current_time() - start == 5
    assert bench.codes == ["ABORTED", "ABORTED_BEFORE_DISPATCH"]


@pytest.mark.holds("F14", "XT51", "XT52", "XT58", "XT60")
async def test_a_success_from_before_the_cancel_is_kept_and_reviewed(bench: BatchBench) -> None:
    ctx = await bench.room.plugin("p")

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        bench.room.signal.cancel()
        await trio.lowlevel.checkpoint()  # the tail of a started call is shielded
        assert isinstance(event.result, ToolSuccess)
        return await call_next()

    await bench.room.batch(block("a"))
    assert bench.codes == [None]
    assert isinstance(bench.room.host.results[0].result, ToolSuccess)


@pytest.mark.parametrize("position", ["policy", "exclusive", "parallel", "review"])
async def test_an_outer_cancellation_is_recorded_and_goes_on(
    bench: BatchBench, position: str
) -> None:
    ctx = await bench.room.plugin("p")
    scope = trio.CancelScope()

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        _event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        if position == "policy":
            await trio.sleep_forever()
        return await call_next()

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        _event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        if position == "review":
            scope.cancel()
        await trio.lowlevel.checkpoint()
        return await call_next()

    name = "exc" if position == "exclusive" else "par"
    gate = "" if position == "review" else "never"
    returned: list[BatchOutcome] = []

    async def run() -> None:
        with scope:
            calls = [block("a", name, gate=gate), block("b", name, gate=gate), block("c", "exc")]
            returned.append(await run_batch(bench.room.tools, calls, bench.room.host))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        scope.cancel()
    assert returned == []
    assert scope.cancelled_caught
    assert bench.ids == ["a", "b", "c"]
    assert sorted(bench.started) == sorted(bench.ended)
    first = {"policy": "ABORTED_BEFORE_DISPATCH", "review": None}.get(position, "ABORTED")
    assert bench.codes[0] == first
