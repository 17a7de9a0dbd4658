"""Callbacks of plugins: refused when their shape is wrong, contained whatever they raise."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast

import pytest
import trio
from attrs import frozen

from dsh.errors import BadListener, InactiveEffect, PluginError
from dsh.hooks import Hook, Logged, Notice, Scope
from dsh.kernel import Context, FiberState, Kernel, core_of, open_kernel, plugin, required
from dsh.testing.kernel_parts import ASK, DB, FACT, TOLD, Fact, Told, provider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dsh.hooks import EffectHandle, live


Call: TypeAlias = "Callable[[object], None]"


def quits(*_args: object) -> NoReturn:
    sys.exit(3)


async def quits_later(*_args: object) -> NoReturn:
    sys.exit(3)


def takes_one(_one: object) -> None:
    """Neither none nor two."""


def fact() -> Logged[Fact]:
    class Session:
        scope = Scope("s")

    return Logged(seq=0, time=0, data=Fact(), session=cast("live.Session", Session()))


@frozen
class Config:
    size: int = 1


async def unloads(kernel: Kernel) -> None:
    for fiber in kernel.fibers:
        await fiber.dispose()


async def updates(kernel: Kernel) -> None:
    for fiber in kernel.fibers:
        await fiber.update(Config(size=2))


async def tells(kernel: Kernel) -> None:
    kernel.root.emit(Told())
    await trio.testing.wait_all_tasks_blocked()


async def publishes(kernel: Kernel) -> None:
    kernel.root.publish(fact())


async def nothing(_kernel: Kernel) -> None:
    """The end of the kernel is what it is about."""


#: Where a plugin may leave a callback, and what calls it.
PLACES: Mapping[str, tuple[Callable[[Context], object], Callable[[Kernel], Awaitable[None]]]] = {
    "disposer": (lambda ctx: ctx.effect(lambda: quits, label="own"), unloads),
    "on_unload": (lambda ctx: ctx.on_unload(quits), unloads),
    "on_config": (lambda ctx: ctx.on_config(quits_later), updates),
    "notice": (lambda ctx: ctx.on(TOLD)(quits), tells),
    "observer": (lambda ctx: ctx.observe(TOLD)(quits_later), tells),
    "log": (lambda ctx: ctx.on(FACT)(quits), publishes),
    "on_shutdown": (lambda ctx: core_of(ctx).on_shutdown(quits_later), nothing),
}


@pytest.mark.holds("KN49")
@pytest.mark.parametrize("place", PLACES)
async def test_a_callback_that_exits_the_program_fails_alone(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    registers, happens = PLACES[place]

    @plugin(name="quitter", config=Config)
    async def quitter(ctx: Context, config: Config) -> None:
        registers(ctx)

    with caplog.at_level(logging.WARNING, "dsh.plugin.quitter"):
        async with open_kernel() as kernel:
            await kernel.mount(quitter).ready()
            await happens(kernel)
            assert kernel.root.fiber.state is FiberState.ACTIVE
    assert sum("SystemExit: 3" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.holds("KN49")
@pytest.mark.parametrize("answer", [None, "aplied"])
async def test_what_on_config_may_not_answer_is_said_and_restarts(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    lives: list[int] = []

    @plugin(name="settled", config=Config)
    async def settled(ctx: Context, config: Config) -> None:
        lives.append(config.size)

        async def accept(new: Config, old: Config) -> object:
            return answer

        ctx.on_config(accept)  # type: ignore[arg-type]

    async with open_kernel() as kernel:
        fiber = await kernel.mount(settled).ready()
        await fiber.update(Config(size=2))
        assert lives == [1, 2]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert f"on_config answered {answer!r}; allowed: 'applied' or 'restart'" in warning


#: A verb of a context, a callback that does not fit it, and what is said.
MISFITS: Sequence[tuple[str, object, str]] = (
    ("on_unload", takes_one, "on_unload (test_kernel_callbacks.py"),
    ("on_unload", quits_later, "it is async; expected `def callback()`"),
    ("on_config", takes_one, "expected `async def accept(new, old)`"),
    ("on_config", quits, "it is no `async def`; expected `async def accept"),
    ("on_drain", lambda: None, "listener of 'on_drain' ("),
    ("observe a notice", lambda: None, "it is (); expected `async def listener"),
    ("observe a waterfall", quits_later, "'test/ask' (test_kernel_callbacks.py"),
    ("observe a waterfall", quits_later, "waits for its listeners; use `ctx.on(TOKEN)`"),
)


@pytest.mark.holds("KN48")
@pytest.mark.parametrize(("verb", "misfit", "words"), MISFITS)
async def test_a_callback_of_the_wrong_shape_is_refused(
    verb: str, misfit: object, words: str
) -> None:
    async with open_kernel() as kernel:
        root = kernel.root
        verbs: Mapping[str, object] = {
            "on_unload": root.on_unload,
            "on_config": root.on_config,
            "on_drain": root.on_drain,
            "observe a notice": root.observe(TOLD),
            "observe a waterfall": root.observe(cast("Hook[Call]", ASK)),
        }
        register = cast("Callable[[object], object]", verbs[verb])
        with pytest.raises(BadListener) as caught:
            register(misfit)
        told = str(caught.value).replace(f"{__file__.rpartition('/')[0]}/", "")
        assert words in told
        assert "plugin 'kernel'" in told


async def test_a_plugin_that_needs_what_it_provides_is_refused() -> None:
    @frozen
    class Needs:
        db: str = required(DB)

    with pytest.raises(PluginError, match="both needs and provides database; remove it from deps"):
        plugin(name="circle", deps=Needs, provides=(DB,))


async def test_what_on_shutdown_hangs_is_said_and_the_end_goes_on(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_kernel() as kernel:
        kernel.root.on_shutdown(trio.sleep_forever)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "undoing on_shutdown failed: not done after 7.5 s; gone on without" in warning


async def test_a_setup_that_raises_undoes_its_parts_also_those_that_take_a_wait() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        root = kernel.root

        def setup() -> Callable[[], None]:
            root.effect(lambda: lambda: trail.append("-now"), label="now")
            root.spawn(trio.sleep_forever, label="task")
            raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            root.effect(setup, label="whole")
        await trio.testing.wait_all_tasks_blocked()
        assert trail == ["-now"]
        assert list(root.activation.effects) == []


async def test_an_awaited_setup_is_cut_short_by_the_unloading_and_leaves_nothing() -> None:
    trail: list[str] = []

    @plugin(name="slow")
    async def slow(ctx: Context) -> None:
        async def setup() -> Callable[[], Awaitable[None]]:
            ctx.effect(lambda: lambda: trail.append("-part"), label="part")
            await trio.sleep_forever()
            raise AssertionError

        @ctx.on(TOLD)
        def begin(_told: Notice) -> None:
            core_of(ctx).fiber.shared.nursery.start_soon(later)

        async def later() -> None:
            with pytest.raises(InactiveEffect, match="unloading began"):
                await ctx.aeffect(setup, label="whole")
            trail.append("refused")

    async with open_kernel() as kernel:
        fiber = await kernel.mount(slow).ready()
        kernel.root.emit(Told())
        await trio.testing.wait_all_tasks_blocked()
        await fiber.dispose()
        assert trail == ["-part", "refused"]


async def test_a_service_provided_anew_while_the_old_one_is_held_stays_its_plugins() -> None:
    class Holder:
        def poke(self) -> None:
            """Nothing is to be looked at."""

    async with open_kernel() as kernel:
        root, holder = kernel.root, Holder()
        handle = root.provide(DB, "one")
        provision = root.activation.provisions[DB.name]
        provision.holders.add(holder)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle.aclose)
            await trio.testing.wait_all_tasks_blocked()
            root.provide(DB, "two")
            provision.release(holder)
        assert root.activation.provisions[DB.name].value == root.get(DB) == "two"


async def test_a_withdrawn_service_that_is_still_held_is_said_and_given_up(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_kernel() as kernel:
        handle = kernel.root.provide(DB, "db")
        provision = kernel.root.activation.provisions[DB.name]

        @plugin(name="keeper")
        async def keeper(ctx: Context) -> None:
            provision.holders.add(ctx.fiber)

        await kernel.mount(keeper).ready()
        await handle.aclose()
        assert DB.name not in kernel.root.activation.provisions
        provision.holders.clear()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "undoing provide('database') failed: still held by keeper" in warning


@pytest.mark.holds("KN22")
@pytest.mark.parametrize(
    ("token", "happens"), [(cast("Hook[Call]", TOLD), tells), (cast("Hook[Call]", FACT), publishes)]
)
async def test_a_listener_that_is_removed_while_others_run_is_not_called(
    token: Hook[Call], happens: Callable[[Kernel], Awaitable[None]]
) -> None:
    heard: list[str] = []
    later: list[EffectHandle] = []

    def first(_told: object) -> None:
        heard.append("first")
        assert later[0].dispose()

    async with open_kernel() as kernel:
        kernel.root.on(token)(first)
        later.append(kernel.root.on(token)(lambda _told: heard.append("second")))
        await happens(kernel)
    assert heard == ["first"]


@pytest.mark.parametrize("happens", [tells, publishes])
async def test_a_listener_that_returns_a_coroutine_is_told_what_to_use(
    happens: Callable[[Kernel], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        raise AssertionError

    async with open_kernel() as kernel:
        kernel.root.on(TOLD)(lambda _told: work())  # type: ignore[arg-type]
        kernel.root.on(FACT)(lambda _fact: work())  # type: ignore[arg-type]
        await happens(kernel)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "which is not awaited; use ctx.observe" in warning


async def test_a_service_that_is_still_held_is_said_and_given_up(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        fiber = await kernel.mount(provider(DB, "db", trail)).ready()
        (provision,) = fiber.activation.provisions.values()
        provision.holders.add(kernel.root.fiber)  # somebody who never lets go
        await fiber.dispose()
        assert trail == ["+db", "-db"]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "undoing its services failed: still held by kernel; gone on without" in warning
