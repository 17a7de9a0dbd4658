"""Fibers: six states, one driver, services that come, go and are exchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen

from dsh.errors import (
    InvariantError,
)
from dsh.kernel import (
    Context,
    FiberState,
    Plugin,
    open_kernel,
    plugin,
    required,
)
from dsh.kernel.states import MOVES
from dsh.testing.kernel_parts import CACHE, DB, TOLD, NeedsCache, NeedsDb, provider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@frozen
class NeedsBoth:
    db: str = required(DB)
    cache: str = required(CACHE)


def consumer(deps: type[NeedsDb | NeedsCache | NeedsBoth], trail: list[str], name: str) -> Plugin:
    @plugin(name=name, deps=deps)
    async def consumes(ctx: Context, _config: None, deps: NeedsDb | NeedsCache | NeedsBoth) -> None:
        values = [getattr(deps, n) for n in ("db", "cache") if hasattr(deps, n)]
        trail.append(f"+{name} {' '.join(values)}")
        ctx.effect(lambda: lambda: trail.append(f"-{name}"), label="own")

    return consumes


@pytest.mark.holds("KN1")
async def test_no_move_outside_the_table() -> None:
    assert set(MOVES) == set(FiberState)
    assert MOVES[FiberState.DISPOSED] == frozenset()
    async with open_kernel() as kernel:
        fiber = await kernel.mount(provider(DB, "db", [])).ready()
        with pytest.raises(InvariantError, match="from active to pending"):
            fiber.move(FiberState.PENDING)


@pytest.mark.holds("KN2")
async def test_waits_for_required_services_then_loads_once() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        user = kernel.mount(consumer(NeedsBoth, trail, "user"))
        await user.ready()
        assert user.state.value == "pending"
        kernel.mount(provider(DB, "db", trail))
        await kernel.settled()
        states = [user.state]
        kernel.mount(provider(CACHE, "cache", trail))
        await kernel.settled()
        assert [*states, user.state] == [FiberState.PENDING, FiberState.ACTIVE]
        assert trail == ["+db", "+cache", "+user db cache"]


@pytest.mark.holds("KN3")
async def test_an_exchanged_provider_restarts_its_dependents_exactly_once() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        old = [
            kernel.mount(provider(DB, "db1", trail)),
            kernel.mount(provider(CACHE, "cache1", trail)),
        ]
        kernel.mount(consumer(NeedsBoth, trail, "user"))
        await kernel.settled()
        trail.clear()
        for fiber in old:
            fiber.request_dispose()
        await kernel.settled()
        kernel.mount(provider(DB, "db2", trail))
        kernel.mount(provider(CACHE, "cache2", trail))
        await kernel.settled()
        assert [line for line in trail if "user" in line] == ["-user", "+user db2 cache2"]


@pytest.mark.holds("KN4")
async def test_three_levels_unwind_leaf_first() -> None:
    trail: list[str] = []

    @plugin(name="middle", deps=NeedsDb, provides=(CACHE,))
    async def middle(ctx: Context, _config: None, deps: NeedsDb) -> None:
        ctx.provide(CACHE, f"cache over {deps.db}")
        ctx.effect(lambda: lambda: trail.append("-middle"), label="own")

    async with open_kernel() as kernel:
        leaf = kernel.mount(consumer(NeedsCache, trail, "leaf"))
        mid = kernel.mount(middle)
        base = kernel.mount(provider(DB, "db", trail))
        await kernel.settled()
        assert trail == ["+db", "+leaf cache over db"]
        trail.clear()
        await base.dispose()
        assert trail == ["-leaf", "-middle", "-db"]
        assert {leaf.state, mid.state} == {FiberState.PENDING}


@pytest.mark.holds("KN4")
async def test_a_provider_waits_for_a_slow_dependent_and_keeps_its_own_view() -> None:
    trail: list[str] = []
    go = trio.Event()

    @plugin(name="slow", deps=NeedsDb)
    async def slow(ctx: Context, _config: None, deps: NeedsDb) -> None:
        async def setup() -> Callable[[], Awaitable[None]]:
            async def undo() -> None:
                await go.wait()
                trail.append(f"slow done with {deps.db}")

            return undo

        await ctx.aeffect(setup, label="slow")

    @plugin(name="db", provides=(DB,))
    async def db(ctx: Context) -> None:
        ctx.provide(DB, "db")

        def undo() -> None:
            seen = ctx.get(DB)
            trail.append(f"provider sees {seen}")

        ctx.effect(lambda: undo, label="after provide")

    async with open_kernel() as kernel:
        base = kernel.mount(db)
        kernel.mount(slow)
        await kernel.settled()
        base.request_dispose()
        await trio.testing.wait_all_tasks_blocked()
        assert trail == []
        assert kernel.root.get(DB) is None
        go.set()
        await base.dispose()
        assert trail == ["slow done with db", "provider sees None"]


async def test_a_provider_that_leaves_while_its_dependent_loads_cancels_the_loading() -> None:
    trail: list[str] = []

    @plugin(name="slow", deps=NeedsDb)
    async def slow(ctx: Context, _config: None, _deps: NeedsDb) -> None:
        ctx.effect(lambda: lambda: trail.append("unwound"), label="own")
        try:
            await trio.sleep_forever()
        finally:
            trail.append("cancelled")

    async with open_kernel() as kernel:
        base = kernel.mount(provider(DB, "db", trail))
        user = kernel.mount(slow)
        await trio.testing.wait_all_tasks_blocked()
        assert user.state.value == "loading"
        await base.dispose()
        assert user.state.value == "pending"
        assert trail == ["+db", "cancelled", "unwound", "-db"]


async def test_user_code_never_starts_when_the_epoch_moved_before_it() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        handle = kernel.root.provide(DB, "early")
        user = kernel.mount(consumer(NeedsDb, trail, "user"))
        await trio.lowlevel.checkpoint()  # Its driver is now at the checkpoint before apply.
        await handle.aclose()
        await kernel.settled()
        assert (user.state, trail) == (FiberState.PENDING, [])


@pytest.mark.holds("KN7", "case-067", "case-071")
async def test_an_apply_that_raises_is_unwound_and_kept_as_the_error() -> None:
    trail: list[str] = []
    boom = RuntimeError("boom")

    @plugin(name="broken")
    async def broken(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trail.append("-a"), label="a")
        ctx.effect(lambda: lambda: trail.append("-b"), label="b")
        ctx.on(TOLD)(lambda told: None)
        raise boom

    async with open_kernel() as kernel:
        fiber = kernel.mount(broken)
        healthy = await kernel.mount(provider(DB, "db", [])).ready()
        with pytest.raises(RuntimeError) as caught:
            await fiber.ready()
        assert caught.value is boom
        assert trail == ["-b", "-a"]
        assert kernel.listeners() == []
        assert healthy.state.value == "active"
        (problem,) = kernel.audit()
        assert (problem.id, problem.error) == ("broken", boom)


@pytest.mark.holds("case-071")
async def test_an_apply_that_never_returns_does_not_hold_up_the_end() -> None:
    @plugin(name="never")
    async def never(_ctx: Context) -> None:
        await trio.sleep_forever()

    with trio.fail_after(1):
        async with open_kernel() as kernel:
            fiber = kernel.mount(never)
            await trio.testing.wait_all_tasks_blocked()
        assert fiber.state.value == "disposed"
