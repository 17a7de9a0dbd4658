"""The calls of one message: overlap, barriers, the order of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.hooks.live import ToolFailed, ToolSuccess
from dsh.testing import BatchBench, call_block
from dsh.tools import BatchOutcome, Call

if TYPE_CHECKING:
    from dsh import Next
    from dsh.tools import Finished


def block(call_id: str, name: str = "par", **arguments: str) -> ev.records.ToolCallBlock:
    return call_block(call_id, name, **arguments)


@pytest.mark.holds("TC01", "F4")
async def test_parallel_siblings_all_start_before_any_ends(bench: BatchBench) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            bench.room.batch, *(block(f"c{number}", gate="g") for number in range(3))
        )
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["c0", "c1", "c2"]
        assert bench.ended == []
        bench.gate("g").set()
    assert bench.ids == ["c0", "c1", "c2"]


@pytest.mark.holds("TC02", "F3")
async def test_an_exclusive_call_is_a_barrier_between_groups(bench: BatchBench) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            bench.room.batch,
            block("a", gate="1"),
            block("b", gate="1"),
            block("x", "exc", gate="2"),
            block("c", gate="3"),
            block("d", gate="3"),
        )
        for gate, started in (("1", ["a", "b"]), ("2", ["a", "b", "x"])):
            await wait_all_tasks_blocked()
            assert sorted(bench.started) == started
            bench.gate(gate).set()
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["a", "b", "c", "d", "x"]
        assert bench.room.host.log == [
            "call a", "call b", "result a", "result b", "call x", "result x", "call c", "call d",
        ]  # fmt: skip
        bench.gate("3").set()


@pytest.mark.holds("TC05", "TC06", "F5", "F6")
async def test_a_later_call_that_ends_first_is_committed_in_its_place(bench: BatchBench) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.room.batch, block("a", gate="a"), block("b"), block("c"))
        await wait_all_tasks_blocked()
        assert sorted(bench.ended) == ["b", "c"]
        assert bench.ids == []
        bench.gate("a").set()
    assert bench.ids == ["a", "b", "c"]
    log = bench.room.host.log
    seqs = {committed.call_id: committed.seq for committed in bench.room.host.results}
    assert {call: log[seq] for call, seq in seqs.items()} == {
        "a": "call a",
        "b": "call b",
        "c": "call c",
    }


@pytest.mark.holds("TC10", "TC12", "F4")
async def test_never_more_than_the_limit_and_refilled_at_each_end(bench: BatchBench) -> None:
    bench.room.host.cap = 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            bench.room.batch, *(block(f"c{number}", gate=f"g{number}") for number in range(5))
        )
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["c0", "c1"]
        bench.gate("g1").set()
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["c0", "c1", "c2"]
        bench.room.host.cap = 3  # live
        bench.gate("g2").set()
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["c0", "c1", "c2", "c3", "c4"]
        for number in range(5):
            bench.gate(f"g{number}").set()
    assert bench.peak == 3
    assert bench.ids == [f"c{number}" for number in range(5)]


@pytest.mark.holds("TC11")
@pytest.mark.parametrize("cap", [1, 0, -3])
async def test_a_limit_of_one_is_serial(bench: BatchBench, cap: int) -> None:
    bench.room.host.cap = cap
    await bench.room.batch(*(block(f"c{number}") for number in range(4)))
    assert bench.peak == 1
    assert bench.ids == ["c0", "c1", "c2", "c3"]


@pytest.mark.holds("TC13", "F5")
async def test_policies_see_model_order_one_at_a_time(bench: BatchBench) -> None:
    ctx = await bench.room.plugin("policy")
    order: list[str] = []
    inside = 0

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        nonlocal inside
        inside += 1
        assert inside == 1
        await trio.lowlevel.checkpoint()
        order.append(f"pre {event.exec.call_id}")
        inside -= 1
        return await call_next()

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        order.append(f"post {event.exec.call_id}")
        return await call_next()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.room.batch, block("a", gate="a"), block("b"), block("c"))
        await wait_all_tasks_blocked()
        bench.gate("a").set()
    assert order == ["pre a", "pre b", "pre c", "post a", "post b", "post c"]


@pytest.mark.holds("TC14", "F7")
async def test_contexts_come_in_model_order_after_all_results(bench: BatchBench) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            bench.room.batch, block("a", gate="a", end="context"), block("b", end="context")
        )
        await wait_all_tasks_blocked()
        bench.gate("a").set()
    assert [message.id for message in bench.room.host.contexts] == ["of a", "of b"]
    assert bench.room.host.log[-3:] == ["result a", "result b", "contexts"]


@pytest.mark.holds("TC15", "F12")
async def test_denials_and_errors_are_ordered_and_not_dispatched(bench: BatchBench) -> None:
    ctx = await bench.room.plugin("policy")

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        if event.exec.call_id == "b":
            return ev.tools.Deny(reason="no")
        if event.exec.call_id == "c":
            raise ValueError("broken policy")
        return await call_next()

    await bench.room.batch(block("a"), block("b"), block("c"), block("d", "nope"), block("e"))
    assert sorted(bench.started) == ["a", "e"]
    assert bench.ids == ["a", "b", "c", "d", "e"]
    assert [committed.decided_by for committed in bench.room.host.results] == [
        None, "policy", None, None, None,
    ]  # fmt: skip


@pytest.mark.holds("case-064")
async def test_one_failure_touches_no_sibling(bench: BatchBench) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            bench.room.batch, block("a", gate="a"), block("b", end="raise"), block("c", gate="a")
        )
        await wait_all_tasks_blocked()
        bench.gate("a").set()
    results = [committed.result for committed in bench.room.host.results]
    assert [type(result) for result in results] == [ToolSuccess, ToolFailed, ToolSuccess]
    assert bench.room.host.results[1].text == "Error: b failed"


@pytest.mark.holds("F19")
async def test_only_a_committed_success_concludes_the_turn(bench: BatchBench) -> None:
    outcome = await bench.room.batch(block("a", end="conclude"), block("b"))
    assert outcome == BatchOutcome(concludes_turn=True, aborted=False)
    ctx = await bench.room.plugin("policy")

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        _event: ev.tools.PostExecute, _call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        return ev.tools.Block(feedback=())

    outcome = await bench.room.batch(block("c", end="conclude"))
    assert not outcome.concludes_turn


async def test_a_call_that_cannot_be_finished_is_not_tried_for_ever(
    bench: BatchBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Call.finish

    async def finish(call: Call) -> Finished:
        if call.execution.call_id == "b":
            raise RuntimeError("the machinery is broken")
        return await whole(call)

    monkeypatch.setattr(Call, "finish", finish)
    with pytest.raises(RuntimeError, match="machinery"):
        await bench.room.batch(*[call_block(name, "par") for name in "abc"])
    assert bench.ids == ["a", "c"]
    assert sorted(bench.ended) == ["a", "b", "c"]
