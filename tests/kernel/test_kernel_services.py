"""Services: one provider each, declared on both sides, seen late or waited for."""

from __future__ import annotations

import pytest
import trio
from attrs import frozen

from dsh.errors import (
    PluginError,
    ServiceConflict,
    ServiceMissing,
)
from dsh.kernel import (
    Context,
    FiberState,
    Late,
    ServiceKey,
    core_of,
    late,
    mount,
    open_kernel,
    optional,
    plugin,
    required,
)
from dsh.testing.kernel_parts import CACHE, DB, NeedsCache, NeedsDb, provider


@pytest.mark.holds("KN5")
async def test_late_never_restarts_and_never_gives_a_disposed_value() -> None:
    kept: list[Late[str]] = []

    @frozen
    class Deps:
        db: Late[str] = late(DB)

    @plugin(name="patient", deps=Deps)
    async def patient(_ctx: Context, _config: None, deps: Deps) -> None:
        kept.append(deps.db)

    async with open_kernel() as kernel:
        await kernel.mount(patient).ready()
        (handle,) = kept
        seen = [handle.current]
        fiber = await kernel.mount(provider(DB, "db1", [])).ready()
        seen.append(handle.current)
        await fiber.dispose()
        seen.append(handle.current)
        await kernel.mount(provider(DB, "db2", [])).ready()
        seen.append(handle.current)
        assert seen == [None, "db1", None, "db2"]
        assert len(kept) == 1


async def test_optional_restarts_on_arrival_and_departure() -> None:
    seen: list[str | None] = []

    @frozen
    class Deps:
        db: str | None = optional(DB)

    @plugin(name="flexible", deps=Deps)
    async def flexible(_ctx: Context, _config: None, deps: Deps) -> None:
        seen.append(deps.db)

    async with open_kernel() as kernel:
        await kernel.mount(flexible).ready()
        fiber = await kernel.mount(provider(DB, "db", [])).ready()
        await kernel.settled()
        await fiber.dispose()
        await kernel.settled()
        assert seen == [None, "db", None]


async def test_an_optional_service_that_stands_on_its_own_user_is_left_out() -> None:
    trail: list[str] = []

    @frozen
    class MaybeCache:
        cache: str | None = optional(CACHE)

    @plugin(name="lower", deps=MaybeCache, provides=(DB,))
    async def lower(ctx: Context, _config: None, deps: MaybeCache) -> None:
        trail.append(f"lower with {deps.cache}")
        ctx.provide(DB, "db")

    @plugin(name="upper", deps=NeedsDb, provides=(CACHE,))
    async def upper(ctx: Context, _config: None, deps: NeedsDb) -> None:
        trail.append(f"upper over {deps.db}")
        ctx.provide(CACHE, "cache")

    async with open_kernel() as kernel:
        kernel.mount(lower)
        kernel.mount(upper)
        with trio.fail_after(1):
            await kernel.settled()
        assert trail == ["lower with None", "upper over db"]
        assert kernel.audit() == []


@pytest.mark.holds("KN6", "case-071")
async def test_a_second_provider_fails_and_names_the_holder() -> None:
    async with open_kernel() as kernel:
        first = await kernel.mount(provider(DB, "one", []), id="first").ready()
        second = kernel.mount(provider(DB, "two", []), id="second")
        with pytest.raises(ServiceConflict) as caught:
            await second.ready()
        for word in ("'database'", "'first'", "'second'"):
            assert word in str(caught.value)
        assert kernel.root.get(DB) == "one"
        await second.dispose()
        assert kernel.root.get(DB) == "one"
        await first.dispose()
        assert kernel.root.get(DB) is None


async def test_services_must_be_declared_by_provider_and_user() -> None:
    refused: list[str] = []

    @plugin(name="sneaky")
    async def sneaky(ctx: Context) -> None:
        with pytest.raises(ServiceMissing) as missing:
            ctx.require(DB)
        with pytest.raises(PluginError) as undeclared:
            ctx.provide(CACHE, "cache")
        refused.extend((str(missing.value), str(undeclared.value)))

    async with open_kernel() as kernel:
        kernel.root.provide(DB, "db")
        await kernel.mount(sneaky).ready()
        assert "required(KEY)" in refused[0]
        assert "@plugin(provides=" in refused[1]
        misspelt: ServiceKey[str] = ServiceKey("databse")
        with pytest.raises(ServiceMissing, match="did you mean 'database'"):
            kernel.root.require(misspelt)
        assert kernel.root.require(DB) == "db"


async def test_a_provider_and_its_children_see_the_service_before_others() -> None:
    seen: list[str | None] = []

    @plugin(name="child", deps=NeedsDb)
    async def child(_ctx: Context, _config: None, deps: NeedsDb) -> None:
        seen.append(deps.db)

    @plugin(name="parent", provides=(DB,))
    async def parent(ctx: Context) -> None:
        ctx.provide(DB, "db")
        seen.append(ctx.get(DB))
        seen.append(kernel.root.get(DB))
        await mount(core_of(ctx), child, slot=0).ready()

    async with open_kernel() as kernel:
        await kernel.mount(parent).ready()
        assert seen == ["db", None, "db"]
        assert [fiber.path for fiber in kernel.fibers] == ["parent", "parent/child"]


async def test_failed_is_tried_again_when_its_services_change_and_not_otherwise() -> None:
    tries: list[str] = []

    @plugin(name="picky", deps=NeedsDb)
    async def picky(_ctx: Context, _config: None, deps: NeedsDb) -> None:
        tries.append(deps.db)
        if deps.db == "bad":
            raise ValueError(deps.db)

    async with open_kernel() as kernel:
        handle = kernel.root.provide(DB, "bad")
        fiber = kernel.mount(picky)
        await fiber.settled()
        assert fiber.state.value == "failed"
        fiber.poke()
        await fiber.settled()
        assert tries == ["bad"]
        await handle.aclose()
        await kernel.settled()
        assert fiber.state.value == "pending"
        kernel.root.provide(DB, "good")
        assert (await fiber.ready()).state is FiberState.ACTIVE
        assert tries == ["bad", "good"]


@pytest.mark.holds("KN8", "case-071")
async def test_the_audit_names_missing_services_nearest_names_and_cycles() -> None:
    @plugin(name="a", deps=NeedsDb, provides=(CACHE,))
    async def a(_ctx: Context, _config: None, _deps: NeedsDb) -> None: ...

    @plugin(name="b", deps=NeedsCache, provides=(DB,))
    async def b(_ctx: Context, _config: None, _deps: NeedsCache) -> None: ...

    @frozen
    class Misspelt:
        store: str = required(ServiceKey[str]("stor"))

    @plugin(name="c", deps=Misspelt)
    async def c(_ctx: Context, _config: None, _deps: Misspelt) -> None: ...

    async def never(_ctx: Context) -> None:
        await trio.sleep_forever()

    async with open_kernel() as kernel:
        kernel.root.provide(ServiceKey[str]("store"), "store")
        for each in (a, b, c):
            kernel.mount(each)
        await kernel.settled()
        kernel.mount(plugin(name="never")(never))
        await trio.testing.wait_all_tasks_blocked()
        problems = {problem.id: problem for problem in kernel.audit()}
        assert problems["a"].cycle == ("a", "b")
        assert problems["b"].cycle == ("b", "a")
        assert "a → b → a" in problems["a"].reason
        assert problems["c"].missing == ("stor",)
        assert "did you mean 'store'" in problems["c"].reason
        assert problems["never"].state is FiberState.LOADING
        assert "test_kernel_services.py:" in problems["never"].reason
