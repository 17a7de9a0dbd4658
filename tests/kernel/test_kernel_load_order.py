"""One order: however long each plugin takes to load, the chain is that of the composition."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen

from dsh.boot import process_environ
from dsh.hooks import Emit, Next, Notice, Waterfall
from dsh.kernel import Context, Plugin, ServiceKey, open_kernel, plugin, required

if TYPE_CHECKING:
    from trio.testing import MockClock


@frozen
class Told(Notice):
    heard: list[str]


TOLD: Emit[Told] = Emit("test/order-told", Told, errors="contain", scope_of=None, owner="core")
ASK: Waterfall[Told, int] = Waterfall(
    "test/order-ask", Told, answers=(int,), errors="propagate", scope_of=None, owner="core"
)
GATE: ServiceKey[int] = ServiceKey("gate")
PLUGINS = 10
#: A thousand in the session `cycles` of nox.
TIMES = 1000 if process_environ().get("DSH_CYCLES") else 50


@frozen
class NeedsGate:
    gate: int = required(GATE)


def listening(name: str, delays: random.Random, *, waits: bool, first: bool) -> Plugin:
    """A plugin that takes its time before and between its two listeners."""

    async def register(ctx: Context) -> None:
        await trio.sleep(delays.random())
        ctx.on(TOLD, prepend=first)(lambda told: told.heard.append(name))
        await trio.sleep(delays.random())

        @ctx.on(ASK, prepend=first)
        async def pass_on(told: Told, call_next: Next[int]) -> int:
            told.heard.append(name)
            return await call_next()

    if waits:

        @plugin(name=name, deps=NeedsGate)
        async def late(ctx: Context, config: None, deps: NeedsGate) -> None:
            await register(ctx)

        return late

    @plugin(name=name)
    async def apply(ctx: Context) -> None:
        await register(ctx)

    return apply


def gate(delays: random.Random) -> Plugin:
    @plugin(name="gate", provides=(GATE,))
    async def apply(ctx: Context) -> None:
        await trio.sleep(delays.random())
        ctx.provide(GATE, 1)

    return apply


async def one() -> int:
    return 1


async def orders(seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Load the same ten plugins with the delays of `seed`, in an order of `seed`."""
    delays = random.Random(seed)
    async with open_kernel() as kernel:
        kernel.mount(gate(delays), slot=0)
        rows = [
            (
                listening(f"p{slot}", delays, waits=slot % 3 == 0, first=slot in (4, 7)),
                slot,
            )
            for slot in range(1, PLUGINS + 1)
        ]
        delays.shuffle(rows)
        for chosen, slot in rows:
            kernel.mount(chosen, slot=slot)
        await kernel.settled()
        told, asked = Told([]), Told([])
        kernel.root.emit(told)
        await kernel.root.waterfall(ASK)(asked, one)
        return tuple(told.heard), tuple(asked.heard)


@pytest.mark.holds("KN17")
async def test_many_loads_with_random_delays_give_one_order(
    autojump_clock: MockClock,
) -> None:
    seen = {await orders(seed) for seed in range(TIMES)}
    expected = ("p7", "p4", "p1", "p2", "p3", "p5", "p6", "p8", "p9", "p10")
    assert seen == {(expected, expected)}
