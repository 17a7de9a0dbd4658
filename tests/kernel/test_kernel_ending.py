"""The end of a kernel: bounded by its grace, and whoever cannot be ended is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from dsh.kernel import Context, Fiber, FiberState, Plugin, open_kernel, plugin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock


def quiet(name: str, trail: list[str]) -> Plugin:
    """A plugin that notes its own undoing."""

    @plugin(name=name)
    async def apply(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trail.append(name), label="own")

    return apply


def state_of(fiber: Fiber) -> FiberState:
    """Read anew: a type checker would keep the last answer."""
    return fiber.state


async def hold_on(release: trio.Event) -> None:
    """Ignore cancellation, as no plugin should."""
    with trio.CancelScope(shield=True):
        await release.wait()


def deaf_disposer(release: trio.Event) -> Plugin:
    @plugin(name="deaf-disposer")
    async def apply(ctx: Context) -> None:
        async def setup() -> Callable[[], Awaitable[None]]:
            async def undo() -> None:
                await hold_on(release)

            return undo

        await ctx.aeffect(setup, label="a connection")

    return apply


def deaf_task(release: trio.Event) -> Plugin:
    @plugin(name="deaf-task")
    async def apply(ctx: Context) -> None:
        ctx.spawn(hold_on, release, label="polling")

    return apply


def deaf_apply(release: trio.Event) -> Plugin:
    @plugin(name="deaf-apply")
    async def apply(ctx: Context) -> None:
        await hold_on(release)
        ctx.effect(lambda: lambda: None, label="too late")

    return apply


def deaf_config(release: trio.Event) -> Plugin:
    @plugin(name="hung-disposer")
    async def apply(ctx: Context) -> None:
        async def setup() -> Callable[[], Awaitable[None]]:
            return release.wait  # It never ends by itself, but it can be cancelled.

        await ctx.aeffect(setup, label="a connection")

    return apply


@pytest.mark.holds("KN35", "case-067")
@pytest.mark.parametrize("make", [deaf_disposer, deaf_task, deaf_apply])
async def test_the_house_is_undone_within_the_grace_whoever_ignores_cancellation(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[trio.Event], Plugin],
) -> None:
    trail: list[str] = []
    told: list[tuple[str, ...]] = []
    ended = 0.0
    release = trio.Event()

    def held(lines: tuple[str, ...]) -> None:
        nonlocal ended
        told.append(lines)
        ended = trio.current_time()
        assert trail == ["after", "before"]
        release.set()

    async with open_kernel(held=held) as kernel:
        kernel.mount(quiet("before", trail))
        stuck = kernel.mount(make(release))
        kernel.mount(quiet("after", trail))
        await kernel.fibers[0].ready()
        await kernel.fibers[2].ready()
        if make is not deaf_apply:
            await stuck.ready()
        await trio.testing.wait_all_tasks_blocked()  # it holds on by now
        begun = trio.current_time()
    assert ended - begun <= 10.0
    ((line,),) = told
    for word in (stuck.id, "ignores cancellation", "test_kernel_ending.py:", "hold_on"):
        assert word in line
    logged = [(r.name, r.getMessage()) for r in caplog.records]
    assert ("dsh.kernel", line) in logged
    assert any(name == f"dsh.plugin.{stuck.id}" for name, _ in logged), logged


@pytest.mark.holds("KN35")
async def test_many_that_hang_share_one_grace(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trail: list[str] = []
    release = trio.Event()
    hung = 8
    async with open_kernel() as kernel:
        kernel.mount(quiet("before", trail))
        for number in range(hung):
            await kernel.mount(deaf_config(release), id=f"hung-{number}").ready()
        begun = trio.current_time()
    assert trio.current_time() - begun <= 10 + hung * 0.25
    assert trail == ["before"]
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == hung
    assert all("a connection" in line and "the rest goes on" in line for line in warnings)


@pytest.mark.holds("KN35")
async def test_disposing_of_a_deaf_plugin_returns_and_its_late_effects_are_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    release = trio.Event()
    async with open_kernel() as kernel:
        stuck = kernel.mount(deaf_apply(release))
        await trio.testing.wait_all_tasks_blocked()
        begun = trio.current_time()
        await stuck.dispose()
        assert trio.current_time() - begun == pytest.approx(10)
        assert state_of(stuck) is FiberState.LOADING
        (line,) = [record.getMessage() for record in caplog.records]
        assert "it was cancelled and does not end" in line
        assert "test_kernel_ending.py:" in line
        release.set()
        await stuck.dispose()
        assert state_of(stuck) is FiberState.DISPOSED
        assert kernel.fibers == ()
