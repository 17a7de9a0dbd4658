"""Host tasks: managers and functions that live, end and fail in tasks of their own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.errors import PluginError
from dsh.kernel import Context, FiberState, open_kernel, plugin
from dsh.testing.kernel_parts import managed, plain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.mark.holds("KN13")
async def test_managers_with_nurseries_may_be_left_in_any_order_and_from_any_task() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        root = kernel.root
        for name in ("a", "b", "c"):
            await root.aenter(managed(trail, name), label=name)
        handles = {effect.label: effect for effect in root.activation.effects}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handles["a"].aclose)
        await handles["c"].aclose()
        assert trail == ["+a", "+b", "+c", "-a", "-c"]
    assert trail[5:] == ["-b"]


@pytest.mark.holds("KN13")
async def test_a_spawned_tasks_failure_fails_its_fiber_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trail: list[str] = []
    go = trio.Event()

    async def dies() -> None:
        await go.wait()
        raise RuntimeError("task died")

    @plugin(name="fragile")
    async def fragile(ctx: Context) -> None:
        ctx.enter(plain(trail, "res"), label="res")
        ctx.spawn(dies, label="worker")

    @plugin(name="sibling")
    async def sibling(ctx: Context) -> None:
        ctx.spawn(trio.sleep_forever, label="worker")

    async with open_kernel() as kernel:
        weak = await kernel.mount(fragile).ready()
        strong = await kernel.mount(sibling).ready()
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="task died"):
            await weak.ready()
        assert weak.state.value == "failed"
        assert strong.state.value == "active"
        assert trail == ["+res", "-res"]
        (problem,) = kernel.audit()
        assert "task died" in problem.reason
        go = trio.Event()
        weak.restart()
        await weak.ready()
        assert weak.state.value == "active"
    assert "'fragile'" in caplog.text
    assert "worker" in caplog.text


@pytest.mark.holds("KN13")
@pytest.mark.parametrize("error", [RuntimeError("inside"), SystemExit(3)], ids=str)
async def test_a_manager_that_fails_later_fails_its_fiber_only(error: BaseException) -> None:
    go = trio.Event()

    async def dies() -> None:
        await go.wait()
        raise error

    @asynccontextmanager
    async def fails_later() -> AsyncGenerator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dies)
            yield

    @plugin(name="fragile")
    async def fragile(ctx: Context) -> None:
        await ctx.aenter(fails_later(), label="later")

    async with open_kernel() as kernel:
        fiber = await kernel.mount(fragile).ready()
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        await fiber.settled()
        assert fiber.state.value == "failed"
        assert fiber.activation.effects == {}


async def test_what_entering_raises_is_raised_to_the_caller_and_leaves_nothing() -> None:
    entry: str | None = None

    @asynccontextmanager
    async def refuses() -> AsyncGenerator[None]:
        if entry is None:
            raise LookupError("no entry")
        yield

    async with open_kernel() as kernel:
        with pytest.raises(LookupError, match="no entry"):
            await kernel.root.aenter(refuses(), label="refuses")
        assert kernel.root.activation.effects == {}
        assert kernel.root.fiber.state.value == "active"


async def test_cancelled_while_entering_leaves_the_manager_first() -> None:
    trail: list[str] = []

    @asynccontextmanager
    async def slow() -> AsyncGenerator[None]:
        try:
            trail.append("entering")
            await trio.Event().wait()
            yield
        finally:
            trail.append("left")

    async with open_kernel() as kernel:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: kernel.root.aenter(slow(), label="slow"))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert trail == ["entering", "left"]
        assert kernel.root.activation.effects == {}


async def test_the_root_stands_when_a_task_of_its_own_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def dies() -> None:
        raise RuntimeError("root task")

    async with open_kernel() as kernel:
        child = await kernel.root.child("child")
        kernel.root.spawn(dies, label="dies")
        await trio.testing.wait_all_tasks_blocked()
        assert {kernel.root.fiber.state, child.fiber.state} == {FiberState.ACTIVE}
        assert [effect.label for effect in kernel.root.activation.effects] == ["child 'child'"]
    assert "root task" in caplog.text


async def test_a_task_that_ends_by_itself_leaves_no_effect() -> None:
    async with open_kernel() as kernel:

        async def short() -> None: ...

        handle = kernel.root.spawn(short, label="short")
        await trio.testing.wait_all_tasks_blocked()
        assert not handle.active
        assert kernel.root.activation.effects == {}


async def test_spawn_passes_arguments_and_aclose_joins() -> None:
    trail: list[object] = []

    async def works(a: int, b: str) -> None:
        trail.append((a, b))
        try:
            await trio.sleep_forever()
        finally:
            trail.append("ended")

    async with open_kernel() as kernel:
        handle = kernel.root.spawn(works, 1, "x", label="works")
        await trio.testing.wait_all_tasks_blocked()
        await handle.aclose()
        assert trail == [(1, "x"), "ended"]


async def test_a_cancel_scope_cannot_be_kept_open() -> None:
    async with open_kernel() as kernel:
        with pytest.raises(PluginError, match="cancel scope"):
            kernel.root.enter(trio.CancelScope(), label="scope")
