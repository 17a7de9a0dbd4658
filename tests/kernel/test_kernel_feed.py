"""The feed of committed log events, and observers of it and of notices."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import pytest
import trio

from dsh import catalog as ev
from dsh.errors import BadListener
from dsh.hooks import (
    Logged,
    Scope,
)
from dsh.kernel import Context, open_kernel, plugin
from dsh.testing.kernel_parts import FACT, TOLD, Fact, Told

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import live


class FakeSession:
    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope


def logged(n: int, scope: Scope | None = None) -> Logged[Fact]:
    session = cast("live.Session", FakeSession(scope))
    return Logged(seq=n, time=0, data=Fact(n), session=session)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.name}: {record.getMessage()}" for record in caplog.records]


def hears(heard: list[tuple[str, int]], who: str) -> Callable[[Logged[Fact]], None]:
    return lambda event: heard.append((who, event.seq))


@pytest.mark.holds("KN24")
async def test_the_feed_is_one_chain_of_typed_and_untyped_listeners(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_kernel() as kernel:
        trail: list[str] = []
        root = kernel.root
        root.on(FACT)(lambda event: trail.append(f"fact {event.data.n}"))
        root.on(ev.session.EVENT)(lambda all_: trail.append(f"all {all_.event.seq}"))

        @root.on(FACT)
        def breaks(_event: Logged[Fact]) -> None:
            raise RuntimeError("contained")

        root.on(FACT)(lambda event: trail.append(f"fact again {event.seq}"))
        root.on(FACT, prepend=True)(lambda event: trail.append(f"first {event.seq}"))
        event = logged(3)
        root.publish(event)
        assert trail == ["first 3", "fact 3", "all 3", "fact again 3"]
        seen: list[object] = []
        root.on(ev.session.EVENT)(lambda all_: seen.extend((all_.event, all_.session)))
        root.publish(event)
        assert seen == [event, event.session]
    assert all("contained" in line for line in warnings(caplog))
    assert len(warnings(caplog)) == 2


async def test_the_feed_follows_the_sessions_scope() -> None:
    async with open_kernel() as kernel:
        one, two = Scope("one"), Scope("two")
        heard: list[tuple[str, int]] = []
        for scope in (one, two):
            child = await kernel.root.child(scope.label, scope=scope)
            child.on(FACT)(hears(heard, scope.label))
        kernel.root.publish(logged(1, one))
        kernel.root.publish(logged(2, two))
        kernel.root.publish(logged(3))
        assert heard == [("one", 1), ("two", 2)]


@pytest.mark.holds("KN25")
async def test_observe_keeps_order_and_is_drained_at_unload() -> None:
    seen: list[int] = []
    go = trio.Event()

    @plugin(name="watcher")
    async def watcher(ctx: Context) -> None:
        @ctx.observe(TOLD)
        async def note(told: Told) -> None:
            await go.wait()
            seen.append(told.n)

    async with open_kernel() as kernel:
        fiber = await kernel.mount(watcher).ready()
        for n in range(20):
            kernel.root.emit(Told(n))
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
        fiber.request_dispose()
        await trio.testing.wait_all_tasks_blocked()
        kernel.root.emit(Told(99))
        go.set()
        await fiber.dispose()
        assert seen == list(range(20))


@pytest.mark.holds("KN25")
async def test_observe_contains_failures_and_says_what_it_drops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_kernel() as kernel:
        seen: list[int] = []

        @kernel.root.observe(FACT, queue=2)
        async def note(event: Logged[Fact]) -> None:
            if event.seq == 0:
                raise RuntimeError("first")
            seen.append(event.seq)

        for n in range(4):
            kernel.root.publish(logged(n))
        await trio.testing.wait_all_tasks_blocked()
        kernel.root.publish(logged(9))
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [1, 9]
    text = "\n".join(warnings(caplog))
    for word in ("2 events behind", "missed 2 events", "first", "test_kernel_feed.py:"):
        assert word in text


async def test_an_observer_may_dispose_of_its_own_plugin() -> None:
    async with open_kernel() as kernel:
        returned = trio.Event()

        @plugin(name="leaver")
        async def leaver(ctx: Context) -> None:
            @ctx.observe(TOLD)
            async def leave(_told: Told) -> None:
                await fiber.dispose()
                returned.set()

        fiber = kernel.mount(leaver)
        await fiber.ready()
        kernel.root.emit(Told())
        with trio.fail_after(1):
            await returned.wait()
            await fiber.dispose()
        assert kernel.fibers == ()


@pytest.mark.holds("KN26")
async def test_a_registrar_without_listener_is_an_error_that_names_the_line() -> None:
    @plugin(name="forgetful")
    async def forgetful(ctx: Context) -> None:
        ctx.on(TOLD)

    async with open_kernel() as kernel:
        fiber = kernel.mount(forgetful)
        with pytest.raises(BadListener) as caught:
            await fiber.ready()
        assert f"{__file__}:" in str(caught.value)
        assert "'forgetful'" in str(caught.value)
        assert logging.getLogger("dsh.plugin.forgetful") is not None
