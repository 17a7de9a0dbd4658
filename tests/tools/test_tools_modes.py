"""Which calls may overlap: classification, live and failing closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.testing import BatchBench, BenchArgs, call_block

if TYPE_CHECKING:
    from dsh import Next


def block(call_id: str, name: str = "par", **arguments: str) -> ev.records.ToolCallBlock:
    return call_block(call_id, name, **arguments)


@pytest.mark.holds("F2", "XM01", "XM02", "XM03", "XM04", "XM05", "XM10")
async def test_only_a_clear_answer_is_parallel(bench: BatchBench) -> None:
    tools, scope = bench.room.tools, bench.room.scope
    assert tools.is_parallel("par", {}, scope)
    assert not tools.is_parallel("exc", {}, scope)
    assert not tools.is_parallel("nope", {}, scope)
    assert not tools.is_parallel("par", {"gate": 5}, scope)
    assert tools.is_parallel("asks", {"mode": "parallel"}, scope)
    for mode in ("exclusive", "", "True", "PARALLEL"):
        assert not tools.is_parallel("asks", {"mode": mode}, scope)


@pytest.mark.holds("F2")
async def test_a_predicate_that_raises_or_answers_junk_is_exclusive(bench: BatchBench) -> None:
    ctx = await bench.room.plugin("p")

    def raises(_args: BenchArgs) -> Literal["exclusive", "parallel"]:
        raise ValueError

    bench.room.tools.register(ctx, bench.tool("raises", raises))
    bench.room.tools.register(ctx, bench.tool("truthy", lambda _args: True))  # type: ignore[arg-type,return-value]
    assert not bench.room.tools.is_parallel("raises", {}, bench.room.scope)
    assert not bench.room.tools.is_parallel("truthy", {}, bench.room.scope)


@pytest.mark.holds("F3", "M16")
async def test_classification_is_live(bench: BatchBench) -> None:
    ctx = await bench.room.plugin("p")
    held = bench.room.tools.register(ctx, bench.tool("late", "parallel"))
    bench.room.host.cap = 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            bench.room.batch,
            block("a", gate="a"),
            block("b", gate="b"),
            block("c", "late", gate="c"),
            block("d"),
        )
        await wait_all_tasks_blocked()
        held.dispose()
        bench.room.tools.register(ctx, bench.tool("late", "exclusive"))
        bench.gate("a").set()
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["a", "b"]  # a barrier by now: it waits for b
        bench.gate("b").set()
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["a", "b", "c"]  # alone: d waits
        bench.gate("c").set()
    assert bench.ids == ["a", "b", "c", "d"]


async def test_a_rewrite_that_makes_a_call_exclusive_is_honoured(bench: BatchBench) -> None:
    ctx = await bench.room.plugin("p")

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        if event.exec.call_id == "b":
            return ev.tools.Allow(arguments={"mode": "exclusive", "gate": "b"})
        return await call_next()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            bench.room.batch,
            block("a", "asks", mode="parallel", gate="a"),
            block("b", "asks", mode="parallel"),
            block("c", "asks", mode="parallel"),
        )
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["a"]
        bench.gate("a").set()
        await wait_all_tasks_blocked()
        assert sorted(bench.started) == ["a", "b"]
        bench.gate("b").set()
    assert bench.peak == 1
    assert bench.ids == ["a", "b", "c"]
    assert bench.room.host.log[:3] == ["call a", "call b", "rewrite b"]
    assert bench.room.host.rewrites[0][:2] == ("b", "p")
