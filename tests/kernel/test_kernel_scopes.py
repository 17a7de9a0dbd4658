"""Scopes: registrations for one agent, heard up, never down or sideways, gone with the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import trio
from attrs import frozen

from dsh.errors import InactiveEffect, PluginError
from dsh.hooks import Emit, Next, Notice, Scope, Waterfall
from dsh.kernel import Context, core_of, mount, open_kernel, plugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import live


@frozen
class Told(Notice):
    scope: Scope | None = None
    n: int = 0


TOLD: Emit[Told] = Emit(
    "test/scoped-told", Told, errors="contain", scope_of=lambda p: p.scope, owner="core"
)
ASK: Waterfall[Told, int] = Waterfall(
    "test/scoped-ask",
    Told,
    answers=(int,),
    errors="propagate",
    scope_of=lambda p: p.scope,
    owner="core",
)


class FakeAgent:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope


def hears(heard: list[str], who: str) -> Callable[[Told], None]:
    return lambda _told: heard.append(who)


def agent(scope: Scope) -> live.Agent:
    return cast("live.Agent", FakeAgent(scope))


@pytest.mark.holds("KN27")
async def test_events_flow_up_never_down_or_sideways() -> None:
    async with open_kernel() as kernel:
        preset = Scope("preset")
        one, two, other = Scope("one", preset), Scope("two", preset), Scope("other")
        heard: list[str] = []
        kernel.root.on(TOLD)(lambda told: heard.append("everybody"))
        for scope in (preset, one, two, other):
            child = await kernel.root.child(scope.label, scope=scope)
            child.on(TOLD)(hears(heard, scope.label))
        cases: list[tuple[Scope | None, list[str]]] = [
            (one, ["everybody", "preset", "one"]),
            (preset, ["everybody", "preset"]),
            (other, ["everybody", "other"]),
            (None, ["everybody"]),
        ]
        for of, expected in cases:
            heard.clear()
            kernel.root.emit(Told(of))
            assert heard == expected


@pytest.mark.holds("KN27")
async def test_filters_are_resolved_at_registration() -> None:
    async with open_kernel() as kernel:
        scope = Scope("main")
        child = await kernel.root.child("main", scope=scope)
        child.on(TOLD)(lambda told: None)
        kernel.root.emit(Told(scope))
        chains = kernel.shared.registry.chains[TOLD.name]
        before = chains.of(scope)
        kernel.root.emit(Told(scope))
        assert kernel.shared.registry.chains[TOLD.name].of(scope) is before
        child.on(TOLD)(lambda told: None)
        assert TOLD.name not in kernel.shared.registry.chains


@pytest.mark.holds("KN28")
async def test_closing_a_scope_undoes_what_other_plugins_registered_for_it() -> None:
    trail: list[str] = []
    kept: list[Context] = []

    @plugin(name="tools")
    async def tools(ctx: Context) -> None:
        kept.append(ctx)

    async with open_kernel() as kernel:
        owner = await kernel.mount(tools).ready()
        scope = Scope("main")
        child = await kernel.root.child("main", scope=scope)
        scoped = kept[0].scoped(scope)
        assert scoped.plugin == "tools"
        child.effect(lambda: lambda: trail.append("agent's first"), label="a")
        scoped.effect(lambda: lambda: trail.append("tool"), label="tool")
        scoped.on(TOLD)(lambda told: trail.append("heard"))
        scoped.spawn(trio.sleep_forever, label="task")
        child.effect(lambda: lambda: trail.append("agent's last"), label="b")
        kernel.root.emit(Told(scope))
        assert trail == ["heard"]
        await child.close()
        assert trail == ["heard", "agent's last", "tool", "agent's first"]
        assert owner.state.value == "active"
        assert owner.activation.effects == {}
        assert owner.activation.entries == {}
        assert kernel.listeners() == []
        assert kernel.shared.scopes == {}
        with pytest.raises(InactiveEffect, match="is closed or was never opened"):
            scoped.on(TOLD)(lambda told: None)


async def test_unloading_the_plugin_undoes_its_scoped_registrations_only() -> None:
    @plugin(name="tools")
    async def tools(ctx: Context) -> None:
        ctx.scoped(scope).on(TOLD)(lambda told: None)

    async with open_kernel() as kernel:
        scope = Scope("main")
        child = await kernel.root.child("main", scope=scope)
        child.on(TOLD)(lambda told: None)
        fiber = await kernel.mount(tools).ready()
        assert [row.scope for row in kernel.listeners()] == ["main", "main"]
        await fiber.dispose()
        assert [row.plugin for row in kernel.listeners()] == ["main"]
        assert len(child.activation.entries) == 1
        assert child.fiber.state.value == "active"


async def test_a_scope_has_one_owner_and_can_be_opened_again_after_it_closed() -> None:
    async with open_kernel() as kernel:
        scope = Scope("main")
        child = await kernel.root.child("main", scope=scope)
        with pytest.raises(PluginError, match="is open already"):
            await kernel.root.child("again", scope=scope)
        await child.close()
        again = await kernel.root.child("again", scope=scope)
        again.on(TOLD)(lambda told: None)


async def test_a_child_is_active_at_once_and_ends_with_its_parent() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        parent = await kernel.root.child("parent")
        child = await parent.child("child")
        assert child.fiber.state.value == "active"
        assert child.fiber.path == "parent/child"
        assert child.plugin == "parent"
        child.effect(lambda: lambda: trail.append("child"), label="x")
        parent.effect(lambda: lambda: trail.append("parent"), label="x")
        await parent.close()
        assert trail == ["parent", "child"]
        assert child.fiber.state.value == "disposed"
        with pytest.raises(InactiveEffect):
            await parent.child("late")


@pytest.mark.holds("KN29")
async def test_a_payload_of_another_agent_is_refused() -> None:
    async def one() -> int:
        return 1

    async with open_kernel() as kernel:
        mine, theirs = Scope("mine"), Scope("theirs")
        child = await kernel.root.child("mine", scope=mine)
        child.emit(Told(mine))
        child.emit(Told())
        with pytest.raises(PluginError) as caught:
            child.emit(Told(theirs))
        for word in ("test/scoped-told", "<Scope theirs>", "<Scope mine>"):
            assert word in str(caught.value)
        with pytest.raises(PluginError):
            await child.waterfall(ASK)(Told(theirs), one)
        assert await kernel.root.waterfall(ASK)(Told(theirs), one) == 1


@pytest.mark.holds("KN14")
async def test_an_agent_may_be_closed_from_a_listener_of_its_own_scope() -> None:
    async def one() -> int:
        return 1

    @plugin(name="guard")
    async def guard(ctx: Context) -> None:
        @ctx.scoped(scope).on(ASK)
        async def closes(_told: Told, call_next: Next[int]) -> int:
            await child.close()
            return await call_next()

    async with open_kernel() as kernel:
        scope = Scope("main")
        child = await kernel.root.child("main", scope=scope)
        await kernel.mount(guard).ready()
        with trio.fail_after(1):
            assert await kernel.root.waterfall(ASK)(Told(scope), one) == 1
            await child.close()
        assert kernel.listeners() == []


async def test_a_plugin_mounted_below_a_scoped_context_is_scoped() -> None:
    heard: list[str] = []

    @plugin(name="helper")
    async def helper(ctx: Context) -> None:
        ctx.on(TOLD)(lambda told: heard.append("helper"))

    async with open_kernel() as kernel:
        scope = Scope("main")
        child = await kernel.root.child("main", scope=scope)
        await mount(child, helper, slot=0).ready()
        kernel.root.emit(Told())
        assert heard == []
        kernel.root.emit(Told(scope))
        assert heard == ["helper"]
        await child.close()
        assert kernel.fibers == ()


@pytest.mark.holds("KN30")
async def test_drain_calls_everybody_it_concerns_last_first_contained_and_bounded(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trail: list[str] = []

    @plugin(name="drains")
    async def drains(ctx: Context) -> None:
        async def global_(one: live.Agent) -> None:
            trail.append(f"global {one.scope.label}")

        async def scoped(_one: live.Agent) -> None:
            trail.append("scoped")

        async def hangs(_one: live.Agent) -> None:
            await trio.sleep_forever()

        async def breaks(_one: live.Agent) -> None:
            raise RuntimeError("drain broke")

        ctx.on_drain(global_)
        ctx.on_drain(hangs)
        ctx.scoped(main).on_drain(scoped)
        ctx.on_drain(breaks)

    async with open_kernel() as kernel:
        main, other = Scope("main"), Scope("other")
        await kernel.root.child("main", scope=main)
        fiber = await kernel.mount(drains).ready()
        with trio.CancelScope() as cancelled:
            cancelled.cancel()
            await kernel.root.drain(agent(main))
        assert trail == ["scoped", "global main"]
        trail.clear()
        await kernel.root.drain(agent(other))
        assert trail == ["global other"]
        await fiber.dispose()
        trail.clear()
        await kernel.root.drain(agent(main))
        assert trail == []
    for word in ("drain broke", "not done after 10 s", "'drains'"):
        assert word in caplog.text


async def test_core_of_keeps_owner_and_scope() -> None:
    async with open_kernel() as kernel:
        scope = Scope("main")
        child = await kernel.root.child("main", scope=scope)
        plain = Context(fiber=child.fiber, activation=child.activation, scope=scope)
        core = core_of(plain)
        assert (core.fiber, core.scope, core.plugin) == (child.fiber, scope, "main")
        assert core_of(core) is core


async def test_a_failing_task_of_an_agents_scope_leaves_its_siblings_alone() -> None:
    async def dies() -> None:
        raise RuntimeError("agent task")

    async with open_kernel() as kernel:
        one = await kernel.root.child("one", scope=Scope("one"))
        two = await kernel.root.child("two", scope=Scope("two"))
        one.spawn(dies, label="dies")
        await trio.testing.wait_all_tasks_blocked()
        assert one.fiber.state.value == "failed"
        assert two.fiber.state.value == "active"
        await one.close()
        assert one.fiber.state.value == "disposed"
