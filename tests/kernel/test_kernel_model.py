"""The kernel against a simple model: random mounts, updates, failures, provider swaps, dispatches.

`DSH_EXAMPLES` sets how many examples are drawn.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest
import trio
import trio.testing
from attrs import define, field, frozen
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dsh.boot import process_environ
from dsh.hooks import Emit, Next, Notice, Waterfall
from dsh.kernel import Context, Fiber, Kernel, Plugin, ServiceKey, open_kernel, plugin, required

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXAMPLES = int(process_environ().get("DSH_EXAMPLES") or 150)


@frozen
class Told(Notice):
    """What the listeners are to do: note themselves, and one of them to leave."""

    heard: list[str]
    leaver: str = ""


TOLD: Emit[Told] = Emit("test/model-told", Told, errors="contain", scope_of=None, owner="core")
ASK: Waterfall[Told, int] = Waterfall(
    "test/model-ask", Told, answers=(int,), errors="propagate", scope_of=None, owner="core"
)
KA: ServiceKey[str] = ServiceKey("model-a")
KB: ServiceKey[str] = ServiceKey("model-b")


@frozen
class NeedsA:
    a: str = required(KA)


@frozen
class NeedsB:
    b: str = required(KB)


@frozen
class NeedsBoth:
    a: str = required(KA)
    b: str = required(KB)


#: Kind → the kinds whose services it needs, its deps class, the key it provides.
KINDS: Final[dict[str, tuple[tuple[str, ...], type | None, ServiceKey[str] | None]]] = {
    "a": ((), None, KA),
    "b": (("a",), NeedsA, KB),
    "c": (("a", "b"), NeedsBoth, None),
    "d": (("b",), NeedsB, None),
    "e": ((), None, None),
}


@frozen
class Settings:
    """The config of every plugin of the model."""

    word: int = 0
    fails: bool = False
    bad_disposer: bool = False


@define
class Row:
    """What the model knows of one mounted plugin."""

    slot: int
    serial: int
    config: Settings
    restarts: int = 0
    crashed: tuple[object, ...] | None = None
    loaded: tuple[object, ...] | None = None
    loads: int = 0


@define
class Model:
    """What ought to be true."""

    rows: dict[str, Row] = field(factory=dict[str, Row])
    lives: dict[str, int] = field(factory=lambda: dict.fromkeys(KINDS, 0))
    serial: int = 0

    def epoch(self, kind: str) -> tuple[object, ...] | None:
        """What it is loaded for; None: something it needs is not there."""
        needs = KINDS[kind][0]
        if not all(self.active(need) for need in needs):
            return None
        return (self.rows[kind].restarts, *(self.lives[need] for need in needs))

    def active(self, kind: str) -> bool:
        row = self.rows.get(kind)
        if row is None:
            return False
        epoch = self.epoch(kind)
        return epoch is not None and not row.config.fails and row.crashed != epoch

    def state(self, kind: str) -> str:
        if self.epoch(kind) is None:
            return "pending"
        return "active" if self.active(kind) else "failed"

    def settle(self) -> None:
        """Every plugin whose epoch has changed loads once, providers before their users."""
        for kind, row in sorted(self.rows.items()):  # a before b before c and d
            epoch = self.epoch(kind)
            if epoch is not None and epoch != row.loaded:
                row.loads += 1
                self.lives[kind] += 1
            row.loaded = epoch if epoch is not None else row.loaded
            if epoch is None:
                row.loaded = None

    def heard(self) -> list[str]:
        rows = [(row.slot, row.serial, kind, row) for kind, row in self.rows.items()]
        return [f"{kind}{row.config.word}" for *_, kind, row in sorted(rows) if self.active(kind)]


@define
class House:
    """The kernel under test, and what its plugins did."""

    kernel: Kernel
    fibers: dict[str, Fiber] = field(factory=dict[str, Fiber])
    live: dict[str, int] = field(factory=lambda: dict.fromkeys(KINDS, 0))
    loads: dict[str, int] = field(factory=lambda: dict.fromkeys(KINDS, 0))
    crash: dict[str, trio.Event] = field(factory=dict[str, trio.Event])

    def plugin(self, kind: str) -> Plugin:
        _, deps, key = KINDS[kind]
        provides = () if key is None else (key,)
        if deps is None:

            @plugin(name=kind, config=Settings, provides=provides)
            async def plain(ctx: Context, config: Settings) -> None:
                load(self, kind, ctx, config)

            return plain

        @plugin(name=kind, config=Settings, deps=deps, provides=provides)
        async def needy(ctx: Context, config: Settings, deps: object) -> None:
            load(self, kind, ctx, config)

        return needy

    def heard(self) -> list[str]:
        told = Told([])
        self.kernel.root.emit(told)
        return told.heard

    async def asked(self) -> list[str]:
        told = Told([])
        assert await self.kernel.root.waterfall(ASK)(told, one) == 1
        return told.heard


async def one() -> int:
    return 1


def load(house: House, kind: str, ctx: Context, config: Settings) -> None:
    """What every plugin of the model does."""
    key = KINDS[kind][2]
    house.loads[kind] += 1

    def setup() -> Callable[[], None]:
        house.live[kind] += 1

        def undo() -> None:
            house.live[kind] -= 1
            if config.bad_disposer:
                raise OSError("disposer")

        return undo

    ctx.effect(setup, label="own")
    crash = house.crash[kind] = trio.Event()

    async def work() -> None:
        await crash.wait()
        raise OSError("task")

    def hear(told: Told) -> None:
        told.heard.append(f"{kind}{config.word}")
        if told.leaver == kind:
            house.fibers[kind].request_dispose()

    @ctx.on(ASK)
    async def pass_on(told: Told, call_next: Next[int]) -> int:
        told.heard.append(f"{kind}{config.word}")
        return await call_next()

    ctx.on(TOLD)(hear)
    ctx.spawn(work, label="work")
    if config.fails:
        raise OSError("apply")
    if key is not None:
        ctx.provide(key, kind)


@frozen
class Op:
    """One thing that happens to one plugin."""

    what: str
    kind: str
    slot: int = 0
    config: Settings = Settings()


async def perform(op: Op, house: House, model: Model) -> None:
    """Do it to the kernel, and to the model; an operation that makes no sense now does nothing."""
    row = model.rows.get(op.kind)
    match op.what:
        case "mount" if row is None:
            house.fibers[op.kind] = house.kernel.mount(
                house.plugin(op.kind), op.config, slot=op.slot
            )
            model.serial += 1
            model.rows[op.kind] = Row(op.slot, model.serial, op.config)
            house.loads[op.kind] = 0
        case "unmount" if row is not None:
            await house.fibers.pop(op.kind).dispose()
            del model.rows[op.kind]
        case "update" if row is not None:
            row.restarts += 1
            row.config = op.config
            await house.fibers[op.kind].update(op.config)
        case "restart" if row is not None:
            row.restarts += 1
            house.fibers[op.kind].restart()
        case "crash" if row is not None and model.active(op.kind):
            row.crashed = model.epoch(op.kind)
            house.crash[op.kind].set()
            await trio.testing.wait_all_tasks_blocked()
        case "leave" if row is not None and model.active(op.kind):
            told = Told([], leaver=op.kind)
            house.kernel.root.emit(told)
            del model.rows[op.kind]
            await house.fibers.pop(op.kind).dispose()
        case _:
            pass


def compare(house: House, model: Model, *, loads: bool) -> None:
    """The kernel is as the model says."""
    states = {kind: fiber.state.value for kind, fiber in house.fibers.items()}
    assert states == {kind: model.state(kind) for kind in model.rows}
    assert house.heard() == model.heard()
    for kind in KINDS:
        assert house.live[kind] == int(model.active(kind)), kind
    if loads:
        assert {k: house.loads[k] for k in model.rows} == {
            k: row.loads for k, row in model.rows.items()
        }


async def run(ops: Sequence[Op], *, storm: bool) -> None:
    """Play the operations; settle and compare after each, or only at the end of a storm."""
    async with open_kernel() as kernel:
        house, model = House(kernel), Model()
        for op in ops:
            if storm and op.what == "crash":
                continue  # In a storm nobody knows which life it would hit.
            await perform(op, house, model)
            if not storm:
                await kernel.settled()
                model.settle()
                compare(house, model, loads=True)
                assert await house.asked() == model.heard()
        await kernel.settled()
        compare(house, model, loads=False)
    assert set(house.live.values()) == {0}
    assert kernel.listeners() == []
    assert kernel.shared.services.names() == kernel.shared.services.watched() == ()


configs = st.builds(
    Settings, word=st.integers(0, 3), fails=st.sampled_from([False, False, False, True]),
    bad_disposer=st.booleans(),
)  # fmt: skip
operations = st.builds(
    Op,
    what=st.sampled_from(
        ["mount", "mount", "mount", "unmount", "update", "restart", "crash", "leave"]
    ),
    kind=st.sampled_from(sorted(KINDS)),
    slot=st.integers(0, 3),
    config=configs,
)
FULL = [Op("mount", kind) for kind in sorted(KINDS, reverse=True)]


@pytest.mark.holds("KN1", "KN2", "KN3", "KN10", "KN17")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops=st.lists(operations, max_size=25), storm=st.booleans())
@example(ops=[*FULL, Op("crash", "a"), Op("restart", "a"), Op("leave", "b")], storm=False)
@example(ops=[*FULL, Op("unmount", "a"), Op("mount", "a"), Op("update", "b")], storm=True)
def test_the_kernel_does_what_the_model_says(ops: list[Op], *, storm: bool) -> None:
    logging.getLogger("dsh.plugin").setLevel(logging.CRITICAL)
    try:
        trio.run(lambda: run(ops, storm=storm), clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        logging.getLogger("dsh.plugin").setLevel(logging.NOTSET)
