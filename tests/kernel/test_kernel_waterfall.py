"""Waterfalls: order, guards, answers, and what a changing plugin does to a running dispatch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import pytest
import trio

from dsh.kernel import Context, CoreContext, open_kernel, plugin
from dsh.testing.kernel_parts import ASK, RERUN, Ask, No, Yes, yes_by_default

if TYPE_CHECKING:
    from dsh.hooks import Next


def mounted(name: str, trail: list[str], *, prepend: int = 0) -> object:
    @plugin(name=name)
    async def apply(ctx: Context) -> None:
        for index in range(prepend):

            async def early(
                _ask: Ask, call_next: Next[Yes | No], tag: str = f"{name}^{index}"
            ) -> Yes | No:
                trail.append(tag)
                return await call_next()

            ctx.on(ASK, prepend=True)(early)

        for tag in (f"{name}1", f"{name}2"):

            async def listener(_ask: Ask, call_next: Next[Yes | No], tag: str = tag) -> Yes | No:
                trail.append(tag)
                return await call_next()

            ctx.on(ASK)(listener)

    return apply


@pytest.mark.holds("KN17")
async def test_order_is_prepended_then_slot_then_registration() -> None:
    trail: list[str] = []
    from dsh.kernel import Plugin

    async with open_kernel() as kernel:
        for name, slot, prepend in (("c", 3, 1), ("a", 1, 2), ("b", 2, 0)):
            await kernel.mount(
                cast("Plugin", mounted(name, trail, prepend=prepend)), slot=slot
            ).ready()
        await kernel.root.waterfall(ASK)(Ask(), yes_by_default)
        order = ["c^0", "a^1", "a^0", "a1", "a2", "b1", "b2", "c1", "c2"]
        assert trail == order
        assert [row.plugin for row in kernel.listeners()] == [tag[0] for tag in order]
        assert [row.prepend for row in kernel.listeners()] == [True] * 3 + [False] * 6
        assert {row.runs for row in kernel.listeners()} == {1}
        assert all("test_kernel_waterfall.py:" in row.place for row in kernel.listeners())


async def test_nobody_listens_and_the_default_answers() -> None:
    async with open_kernel() as kernel:
        assert await kernel.root.waterfall(ASK)(Ask(), yes_by_default) == Yes()
        assert (await kernel.root.waterfall_by(ASK)(Ask(), yes_by_default)).plugin is None


@pytest.mark.holds("KN18")
async def test_who_answered() -> None:
    async with open_kernel() as kernel:

        @plugin(name="inner")
        async def inner(ctx: Context) -> None:
            @ctx.on(ASK)
            async def answer(ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
                return No("inner") if ask.text == "no" else await call_next()

        @plugin(name="outer")
        async def outer(ctx: Context) -> None:
            @ctx.on(ASK)
            async def answer(ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
                below = await call_next()
                return Yes("outer") if ask.text == "own" else below

        await kernel.mount(inner, slot=2).ready()
        await kernel.mount(outer, slot=1).ready()
        ask = kernel.root.waterfall_by(ASK)
        assert (await ask(Ask(), yes_by_default)).plugin is None
        assert (await ask(Ask("no"), yes_by_default)).plugin == "inner"
        answered = await ask(Ask("own"), yes_by_default)
        assert (answered.plugin, answered.value) == ("outer", Yes("outer"))


async def test_a_listener_that_turns_a_failure_below_into_an_answer_decided() -> None:
    async with open_kernel() as kernel:
        root = kernel.root

        @root.on(RERUN)
        async def catches(_ask: Ask, call_next: Next[int]) -> int:
            try:
                return await call_next()
            except KeyError:
                return 7

        @root.on(RERUN)
        async def breaks(_ask: Ask, call_next: Next[int]) -> int:
            await call_next()
            raise KeyError

        async def seven() -> int:
            return 7

        answered = await root.waterfall_by(RERUN)(Ask(), seven)
        assert (answered.value, answered.plugin) == (7, "kernel")


async def test_short_circuit_never_calls_the_rest() -> None:
    async with open_kernel() as kernel:
        reached: list[str] = []

        @kernel.root.on(ASK)
        async def stops(_ask: Ask, _call_next: Next[Yes | No]) -> Yes | No:
            return No("stop")

        @kernel.root.on(ASK)
        async def below(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            reached.append("below")
            return await call_next()

        assert await kernel.root.waterfall(ASK)(Ask(), yes_by_default) == No("stop")
        assert reached == []


async def test_exceptions_pass_through_unchanged() -> None:
    async with open_kernel() as kernel:
        passed: list[BaseException] = []

        @kernel.root.on(ASK)
        async def outer(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            try:
                return await call_next()
            except LookupError as error:
                passed.append(error)
                raise

        async def fails() -> Yes | No:
            raise boom

        boom = LookupError("boom")
        with pytest.raises(LookupError) as caught:
            await kernel.root.waterfall(ASK)(Ask(), fails)
        assert caught.value is boom
        assert passed == [boom]


@pytest.mark.holds("KN22")
async def test_a_listener_removed_during_a_dispatch_never_starts_in_it() -> None:
    async with open_kernel() as kernel:
        ran: list[str] = []

        @kernel.root.on(ASK)
        async def removes(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            victim.dispose()
            return await call_next()

        @kernel.root.on(ASK)
        async def victim(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            ran.append("victim")
            return await call_next()

        @kernel.root.on(ASK)
        async def last(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            ran.append("last")
            return await call_next()

        assert await kernel.root.waterfall(ASK)(Ask(), yes_by_default) == Yes()
        assert ran == ["last"]


@pytest.mark.holds("KN22")
async def test_a_listener_added_during_a_dispatch_is_heard_from_the_next_on() -> None:
    async with open_kernel() as kernel:
        ran: list[str] = []

        async def late(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            ran.append("late")
            return await call_next()

        @kernel.root.on(ASK)
        async def adds(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            if not ran:
                kernel.root.on(ASK)(late)
                ran.append("added")
            return await call_next()

        await kernel.root.waterfall(ASK)(Ask(), yes_by_default)
        assert ran == ["added"]
        await kernel.root.waterfall(ASK)(Ask(), yes_by_default)
        assert ran == ["added", "late"]


async def test_nested_dispatch_of_the_same_event_has_guards_of_its_own() -> None:
    async with open_kernel() as kernel:
        root: CoreContext = kernel.root

        @root.on(ASK)
        async def nests(ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            if ask.text != "inner":
                assert await root.waterfall(ASK)(Ask("inner"), yes_by_default) == Yes()
            return await call_next()

        assert await root.waterfall(ASK)(Ask(), yes_by_default) == Yes()
        assert kernel.listeners()[0].runs == 2


@pytest.mark.holds("case-067")
async def test_a_listener_that_awaits_for_ever_is_cancelled_with_its_caller() -> None:
    async with open_kernel() as kernel:

        @kernel.root.on(ASK)
        async def hangs(_ask: Ask, _call_next: Next[Yes | No]) -> Yes | No:
            await trio.sleep_forever()
            raise AssertionError

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kernel.root.waterfall(ASK), Ask(), yes_by_default)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        answer = await kernel.root.waterfall(RERUN)(Ask(), partial(_one))
        assert answer == 1


async def _one() -> int:
    return 1
