"""Effects: undone once, last first, whatever raises, hangs or is cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from dsh.errors import InactiveEffect
from dsh.kernel import Context, open_kernel, plugin
from dsh.testing.kernel_parts import TOLD, Told, managed, plain

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
    )


@pytest.mark.holds("KN10", "XT85")
async def test_everything_is_undone_last_first_and_awaited() -> None:
    trail: list[str] = []

    async def setup() -> Callable[[], Awaitable[None]]:
        trail.append("+async")

        async def undo() -> None:
            await trio.lowlevel.checkpoint()
            trail.append("-async")

        return undo

    def sync() -> Callable[[], None]:
        trail.append("+sync")
        return lambda: trail.append("-sync")

    async def works() -> None:
        trail.append("+task")
        try:
            await trio.sleep_forever()
        finally:
            trail.append("-task")

    @plugin(name="all")
    async def everything(ctx: Context) -> None:
        ctx.effect(sync, label="sync")
        await ctx.aeffect(setup, label="async")
        assert ctx.enter(plain(trail, "cm"), label="cm") == "cm"
        assert await ctx.aenter(managed(trail, "acm"), label="acm") == "acm"
        ctx.spawn(works, label="task")
        await trio.testing.wait_all_tasks_blocked()

    async with open_kernel() as kernel:
        fiber = await kernel.mount(everything).ready()
        assert trail == ["+sync", "+async", "+cm", "+acm", "+task"]
        await fiber.dispose()
        assert trail[5:] == ["-task", "-acm", "-cm", "-async", "-sync"]
        await fiber.dispose()
        assert len(trail) == 10


async def test_a_setup_that_raises_undoes_its_parts_last_first() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        root = kernel.root

        def half() -> Callable[[], None]:
            root.enter(plain(trail, "a"), label="a")
            root.on(TOLD)(lambda told: trail.append("heard"))
            root.enter(plain(trail, "b"), label="b")
            raise ValueError("half")

        with pytest.raises(ValueError, match="half"):
            root.effect(half, label="half")
        assert trail == ["+a", "+b", "-b", "-a"]
        root.emit(Told())
        assert "heard" not in trail

        async def half_async() -> Callable[[], Awaitable[None]]:
            await root.aenter(managed(trail, "c"), label="c")
            root.enter(plain(trail, "d"), label="d")
            raise ValueError("half")

        trail.clear()
        with pytest.raises(ValueError, match="half"):
            await root.aeffect(half_async, label="half")
        assert trail == ["+c", "+d", "-d", "-c"]
        assert root.activation.effects == {}


async def test_parts_belong_to_the_effect_that_made_them() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        root = kernel.root

        def whole() -> Callable[[], None]:
            root.enter(plain(trail, "a"), label="a")
            root.enter(plain(trail, "b"), label="b")
            return lambda: trail.append("-whole")

        handle = root.effect(whole, label="whole")
        assert [effect.label for effect in root.activation.effects] == ["whole"]
        states = [handle.active, handle.dispose(), handle.active]
        assert states == [True, True, False]
        assert trail == ["+a", "+b", "-whole", "-b", "-a"]
        assert not handle.dispose()
        await handle.aclose()
        assert len(trail) == 5


async def test_undo_runs_once_however_many_ask() -> None:
    async with open_kernel() as kernel:
        runs: list[int] = []
        go = trio.Event()

        async def setup() -> Callable[[], Awaitable[None]]:
            async def undo() -> None:
                runs.append(1)
                await go.wait()

            return undo

        handle = await kernel.root.aeffect(setup, label="slow")
        assert not handle.dispose(), "it needs an await"
        returned: list[int] = []

        async def ask() -> None:
            await handle.aclose()
            returned.append(1)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert (runs, returned) == ([1], [])
            go.set()
        assert (runs, returned) == ([1], [1, 1, 1])


@pytest.mark.holds("KN11")
async def test_a_disposer_that_raises_or_hangs_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    trail: list[str] = []

    async def hangs() -> Callable[[], Awaitable[None]]:
        return trio.sleep_forever

    def raises() -> Callable[[], None]:
        def undo() -> None:
            raise RuntimeError("bad disposer")

        return undo

    @plugin(name="messy")
    async def messy(ctx: Context) -> None:
        ctx.enter(plain(trail, "first"), label="first")
        await ctx.aeffect(hangs, label="the hanging one")
        ctx.effect(raises, label="the raising one")

    async with open_kernel() as kernel:
        fiber = await kernel.mount(messy).ready()
        began = trio.current_time()
        await fiber.dispose()
        assert trio.current_time() - began == 10
        assert trail == ["+first", "-first"]
        assert [type(e) for e in fiber.activation.teardown_errors] == [RuntimeError, TimeoutError]
    assert {record.name for record in caplog.records} == {"dsh.plugin.messy"}
    text = caplog.text
    for word in ("the hanging one", "not undone after 10 s", "the raising one", "bad disposer"):
        assert word in text


@pytest.mark.holds("KN11")
async def test_undoing_is_shielded_from_cancellation() -> None:
    trail: list[str] = []
    with trio.CancelScope() as scope:
        async with open_kernel() as kernel:

            async def setup() -> Callable[[], Awaitable[None]]:
                async def undo() -> None:
                    await trio.lowlevel.checkpoint()
                    trail.append("undone")

                return undo

            await kernel.root.aeffect(setup, label="x")
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trail == ["undone"]


@pytest.mark.holds("KN12", "case-069")
async def test_registering_during_or_after_unload_is_refused() -> None:
    refused: list[str] = []
    kept: list[Context] = []

    @plugin(name="late")
    async def late(ctx: Context) -> None:
        kept.append(ctx)

        def tries() -> None:
            with pytest.raises(InactiveEffect) as caught:
                ctx.on(TOLD)(lambda told: None)
            refused.append(str(caught.value))

        ctx.effect(lambda: tries, label="tries")

    async with open_kernel() as kernel:
        fiber = await kernel.mount(late).ready()
        await fiber.dispose()
        assert "'late'" in refused[0]
        assert "on('test/told')" in refused[0]
        with pytest.raises(InactiveEffect):
            kept[0].spawn(trio.sleep_forever, label="zombie")
        assert kernel.listeners() == []


async def test_a_context_of_a_past_life_is_refused_after_a_restart() -> None:
    kept: list[Context] = []

    @plugin(name="phoenix")
    async def phoenix(ctx: Context) -> None:
        kept.append(ctx)

    async with open_kernel() as kernel:
        fiber = await kernel.mount(phoenix).ready()
        fiber.restart()
        await fiber.ready()
        assert len(kept) == 2
        with pytest.raises(InactiveEffect):
            kept[0].on(TOLD)(lambda told: None)
        kept[1].on(TOLD)(lambda told: None)


async def test_aclose_of_a_listener_waits_for_its_running_call() -> None:
    from dsh.hooks import Next, Waterfall

    ask: Waterfall[Told, int] = Waterfall(
        "test/effect-ask", Told, answers=(int,), errors="propagate", scope_of=None, owner="core"
    )
    async with open_kernel() as kernel:
        go = trio.Event()
        trail: list[str] = []

        @kernel.root.on(ask)
        async def slow(_told: Told, call_next: Next[int]) -> int:
            await go.wait()
            trail.append("listener done")
            return await call_next()

        async def one() -> int:
            return 1

        async def closes() -> None:
            await slow.aclose()
            trail.append("closed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kernel.root.waterfall(ask), Told(), one)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(closes)
            await trio.testing.wait_all_tasks_blocked()
            assert trail == []
            go.set()
        assert trail == ["listener done", "closed"]


async def test_the_bodys_own_exception_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_kernel():
            raise KeyError("mine")
