"""Unloading: never waits for itself, waits for running calls, leaves nothing behind."""

from __future__ import annotations

import pytest
import trio

from dsh.hooks import Next, Waterfall
from dsh.kernel import (
    Context,
    core_of,
    open_kernel,
    plugin,
)
from dsh.testing.kernel_parts import CACHE, DB, TOLD, NeedsDb, Told, provider

ASK: Waterfall[Told, int] = Waterfall(
    "test/fiber-ask", Told, answers=(int,), errors="propagate", scope_of=None, owner="core"
)


@pytest.mark.holds("KN14", "case-069")
async def test_a_plugin_may_dispose_of_itself_from_its_own_listener() -> None:
    trail: list[str] = []

    @plugin(name="leaver")
    async def leaver(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trail.append("unwound"), label="own")

        @ctx.on(ASK)
        async def leave(_told: Told, call_next: Next[int]) -> int:
            await fiber.dispose()
            trail.append("listener goes on")
            return await call_next()

    async def one() -> int:
        return 1

    async with open_kernel() as kernel:
        fiber = await kernel.mount(leaver).ready()
        with trio.fail_after(1):
            assert await kernel.root.waterfall(ASK)(Told(), one) == 1
            await fiber.dispose()
        assert trail == ["listener goes on", "unwound"]
        assert kernel.listeners() == []


@pytest.mark.holds("KN14")
async def test_a_listener_may_dispose_of_a_provider_it_depends_on() -> None:
    @plugin(name="saw", deps=NeedsDb)
    async def saw(ctx: Context, _config: None, _deps: NeedsDb) -> None:
        @ctx.on(ASK)
        async def cut(_told: Told, call_next: Next[int]) -> int:
            await branch.dispose()
            return await call_next()

    async def one() -> int:
        return 1

    async with open_kernel() as kernel:
        branch = await kernel.mount(provider(DB, "db", [])).ready()
        await kernel.mount(saw).ready()
        with trio.fail_after(1):
            assert await kernel.root.waterfall(ASK)(Told(), one) == 1
            await branch.dispose()


async def test_a_task_may_dispose_of_its_own_plugin_and_wait() -> None:
    async def leave() -> None:
        await fiber.dispose()

    @plugin(name="worker")
    async def worker(ctx: Context) -> None:
        ctx.spawn(leave, label="leaves")

    async with open_kernel() as kernel:
        fiber = kernel.mount(worker)
        with trio.fail_after(1):
            await fiber.ready()
            while kernel.fibers:
                await trio.lowlevel.checkpoint()


@pytest.mark.holds("KN15")
async def test_unload_waits_for_running_calls_and_is_bounded(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trail: list[str] = []

    @plugin(name="busy")
    async def busy(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trail.append("unwound"), label="own")

        @ctx.on(ASK)
        async def works(told: Told, call_next: Next[int]) -> int:
            await trio.sleep(told.n)
            trail.append("call done")
            return await call_next()

    async def one() -> int:
        return 1

    async with open_kernel() as kernel:
        for seconds, expected in ((3, ["call done", "unwound"]), (60, ["unwound", "call done"])):
            trail.clear()
            fiber = await kernel.mount(busy).ready()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kernel.root.waterfall(ASK), Told(seconds), one)
                await trio.testing.wait_all_tasks_blocked()
                await fiber.dispose()
                assert trail == expected[: len(trail)]
            assert trail == expected
    assert "test_kernel_self.py:" in caplog.text
    assert "still running" in caplog.text


async def test_dispose_twice_at_once_is_one_disposal() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        fiber = await kernel.mount(provider(DB, "db", trail)).ready()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fiber.dispose)
            nursery.start_soon(fiber.dispose)
        assert trail == ["+db", "-db"]


@pytest.mark.holds("KN16")
async def test_a_thousand_mounts_leave_nothing() -> None:
    trail: list[str] = []

    async def works(_told: Told) -> None: ...

    @plugin(name="busy", deps=NeedsDb, provides=(CACHE,))
    async def busy(ctx: Context, _config: None, deps: NeedsDb) -> None:
        ctx.provide(CACHE, deps.db)
        ctx.on(TOLD)(lambda told: None)
        ctx.observe(TOLD)(works)
        ctx.spawn(trio.sleep_forever, label="task")
        child = await core_of(ctx).child("child")
        child.on(TOLD)(lambda told: None)

    async with open_kernel() as kernel:
        kernel.root.provide(DB, "db")
        tasks = trio.lowlevel.current_statistics().tasks_living
        for _ in range(1000):
            fiber = await kernel.mount(busy).ready()
            kernel.root.emit(Told())
            await fiber.dispose()
        assert kernel.listeners() == []
        assert kernel.fibers == ()
        shared = kernel.shared
        assert shared.services.names() == ("database",)
        assert shared.services.watched() == ()
        assert [effect.label for effect in kernel.root.activation.effects] == [
            "provide('database')"
        ]
        assert kernel.root.activation.entries == {}
        provision = shared.services.find(DB, kernel.root.activation)
        assert provision is not None
        assert provision.holders == set()
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert trail == []


async def test_a_task_started_from_a_listener_but_living_elsewhere_does_wait() -> None:
    trail: list[str] = []
    go = trio.Event()

    async def one() -> int:
        return 1

    async def elsewhere() -> None:
        await go.wait()
        await fiber.dispose()
        trail.append(f"elsewhere saw {fiber.state.value}")

    @plugin(name="starter")
    async def starter(ctx: Context) -> None:
        @ctx.on(ASK)
        async def starts(_told: Told, call_next: Next[int]) -> int:
            outside.start_soon(elsewhere)
            return await call_next()

    async with open_kernel() as kernel, trio.open_nursery() as outside:
        fiber = await kernel.mount(starter).ready()
        await kernel.root.waterfall(ASK)(Told(), one)
        go.set()
    assert trail == ["elsewhere saw disposed"]


async def test_a_task_inside_a_listeners_nursery_only_asks() -> None:
    async def one() -> int:
        return 1

    @plugin(name="leaver")
    async def leaver(ctx: Context) -> None:
        @ctx.on(ASK)
        async def leave(_told: Told, call_next: Next[int]) -> int:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fiber.dispose)
            return await call_next()

    async with open_kernel() as kernel:
        fiber = await kernel.mount(leaver).ready()
        with trio.fail_after(1):
            assert await kernel.root.waterfall(ASK)(Told(), one) == 1
            await fiber.dispose()


@pytest.mark.holds("KN37")
async def test_a_plugin_hears_of_its_unload_before_its_listeners_are_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trail: list[str] = []
    running, woken = trio.Event(), trio.Event()

    def wake() -> None:
        trail.append("told")
        woken.set()

    def fail() -> None:
        raise RuntimeError("not in the mood")

    @plugin(name="sleeper")
    async def sleeper(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trail.append("undone"), label="own")
        ctx.on_unload(fail)
        ctx.on_unload(wake)
        ctx.on_unload(lambda: trail.append("forgotten")).dispose()

        @ctx.on(ASK)
        async def wait(_told: Told, call_next: Next[int]) -> int:
            running.set()
            await woken.wait()
            trail.append("woken")
            return await call_next()

    async def one() -> int:
        return 1

    with trio.fail_after(5):
        async with open_kernel() as kernel, trio.open_nursery() as nursery:
            fiber = await kernel.mount(sleeper).ready()
            nursery.start_soon(kernel.root.waterfall(ASK), Told(), one)
            await running.wait()
            await fiber.dispose()
    assert trail == ["told", "woken", "undone"]
    assert "not in the mood" in caplog.text
