"""The end of a kernel: bounded by its grace, and whoever cannot be ended is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen

from dsh.kernel import (
    Context,
    Fiber,
    FiberState,
    Plugin,
    ServiceKey,
    core_of,
    open_kernel,
    plugin,
    required,
)

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


def worker(name: str, trail: list[str], end: Callable[[], Awaitable[None]]) -> Plugin:
    """A plugin with work that needs the others; it notes the end of both."""

    @plugin(name=name)
    async def apply(ctx: Context) -> None:
        async def end_work() -> None:
            trail.append(f"{name} ends its work")
            await end()

        core_of(ctx).on_shutdown(end_work)
        ctx.effect(lambda: lambda: trail.append(name), label="own")

    return apply


async def at_once() -> None:
    """Work that is done."""


@pytest.mark.holds("KN38")
@pytest.mark.parametrize("how", ["the block is left", "the root is closed"])
async def test_work_ends_before_the_first_plugin_leaves_the_latest_first(how: str) -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        for each in (worker("one", trail, at_once), quiet("two", trail)):
            await kernel.mount(each).ready()
        await kernel.mount(worker("three", trail, trio.lowlevel.checkpoint)).ready()
        await kernel.mount(quiet("four", trail)).ready()
        if how == "the root is closed":
            await kernel.root.close()
            assert kernel.fibers == ()
    assert trail == ["three ends its work", "one ends its work", "four", "three", "two", "one"]


@pytest.mark.holds("KN38")
async def test_a_plugin_that_is_unloaded_alone_is_not_asked() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        fiber = kernel.mount(worker("one", trail, at_once))
        await fiber.ready()
        await fiber.dispose()
    assert trail == ["one"]


@pytest.mark.holds("KN38")
async def test_work_that_fails_or_hangs_is_named_and_the_end_goes_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trail: list[str] = []

    async def fail() -> None:
        raise OSError("no more paper")

    async with open_kernel() as kernel:
        await kernel.mount(worker("first", trail, at_once)).ready()
        await kernel.mount(worker("hangs", trail, trio.sleep_forever)).ready()
        await kernel.mount(worker("fails", trail, fail)).ready()
        begun = trio.current_time()
    assert trio.current_time() - begun == pytest.approx(7.5)
    words = ["fails", "hangs", "first"]
    assert trail == [*(f"{word} ends its work" for word in words), *words]
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("plugin 'fails': undoing on_shutdown failed: ")
    assert first.endswith("OSError: no more paper")
    assert second == (
        "plugin 'hangs': undoing on_shutdown failed: not done after 7.5 s; gone on without"
    )


@pytest.mark.holds("KN38")
async def test_who_holds_up_the_end_of_work_is_named_with_file_and_line(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trail: list[str] = []
    release = trio.Event()

    @plugin(name="deaf")
    async def deaf(ctx: Context) -> None:
        core_of(ctx).on_shutdown(trio.sleep_forever)
        ctx.spawn(hold_on, release, label="polling")

    async with open_kernel(held=lambda _: release.set()) as kernel:
        await kernel.mount(quiet("before", trail)).ready()
        await kernel.mount(deaf).ready()
        await trio.testing.wait_all_tasks_blocked()
    line = caplog.records[0].getMessage()
    assert "not done after 7.5 s, held up by plugin 'deaf', in hold_on at " in line
    assert "test_kernel_ending.py:" in line
    assert trail == ["before"]


WORKSHOP: ServiceKey[str] = ServiceKey("test-workshop")


@frozen
class Needs:
    workshop: str = required(WORKSHOP)


def workshop(trail: list[str]) -> tuple[Plugin, Plugin]:
    """A provider, and a worker in what it provides."""

    @plugin(name="workshop", provides=(WORKSHOP,))
    async def provider(ctx: Context) -> None:
        ctx.provide(WORKSHOP, "tools")

    @plugin(name="smith", deps=Needs)
    async def smith(ctx: Context, _config: None, _deps: Needs) -> None:
        async def end_work() -> None:
            trail.append("smith ends its work")

        core_of(ctx).on_shutdown(end_work)
        ctx.effect(lambda: lambda: trail.append("smith"), label="own")

    return provider, smith


@pytest.mark.holds("KN39")
async def test_fibers_that_part_as_one_end_the_work_that_stands_on_them_first() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        provider, smith = workshop(trail)
        below, worked = kernel.mount(provider), kernel.mount(smith)
        kernel.mount(worker("another", trail, at_once))
        beside = kernel.mount(quiet("beside", trail))
        await kernel.settled()
        async with kernel.parting([below, beside]):
            assert trail == ["smith ends its work"]
            await beside.dispose()
            await below.dispose()
        assert trail == ["smith ends its work", "beside", "smith"]
        assert worked.state is FiberState.PENDING
        trail.clear()
    assert trail == ["another ends its work", "another"]


@pytest.mark.holds("KN39")
async def test_work_that_was_ended_begins_anew_though_its_plugin_stayed() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        provider, smith = workshop(trail)
        below, worked = kernel.mount(provider), kernel.mount(smith)
        await kernel.settled()
        before = worked.activation
        async with kernel.parting([below]):
            assert worked.activation is before
        assert worked.activation is not before
        assert worked.state is FiberState.ACTIVE
        assert trail == ["smith ends its work", "smith"]


@pytest.mark.holds("KN39", "KN14")
async def test_parting_and_disposing_from_inside_the_work_do_not_wait_for_it() -> None:
    trail: list[str] = []

    @plugin(name="self-made")
    async def self_made(ctx: Context) -> None:
        done = trio.Event()
        core_of(ctx).on_shutdown(done.wait)

        async def work() -> None:
            with trio.CancelScope(shield=True):
                async with kernel.parting([ctx.fiber]):
                    trail.append("parted")
                    await ctx.fiber.dispose()
                    trail.append("asked")
                done.set()

        ctx.spawn(work, label="work")

    async with open_kernel() as kernel:
        fiber = kernel.mount(self_made)
        with trio.fail_after(5):
            await trio.testing.wait_all_tasks_blocked()
        assert trail == ["parted", "asked"]
        assert fiber.state is FiberState.DISPOSED


@pytest.mark.holds("KN40")
def test_ctrl_c_in_the_task_of_a_plugin_unloads_everything_in_order_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trail: list[str] = []

    @plugin(name="struck")
    async def struck(ctx: Context) -> None:
        async def work() -> None:
            await trio.sleep(1)
            raise KeyboardInterrupt

        ctx.spawn(work, label="work")
        ctx.effect(lambda: lambda: trail.append("struck"), label="own")

    async def main() -> None:
        async with open_kernel() as kernel:
            for each in (quiet("before", trail), struck, worker("after", trail, at_once)):
                await kernel.mount(each).ready()
            try:
                await trio.sleep(100)
            finally:
                trail.append(f"left after {trio.current_time():g} s")

    clock = trio.testing.MockClock(autojump_threshold=0)
    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(main, clock=clock)
    assert caught.value.split(KeyboardInterrupt)[1] is None
    assert trail == ["left after 1 s", "after ends its work", "after", "struck", "before"]
    assert clock.current_time() == 1.0
    assert caplog.records == []
