"""The kernel: one tree of fibers, one registry, one table of services.

What comes in: plugins to mount, with config and slot. What goes out: fibers, and the answers to
what runs, what is missing and who listens. It is open for the length of one `async with`; leaving
it unwinds everything, last first, whatever the reason for leaving.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

import trio

from dsh.errors import ConfigError, PluginError
from dsh.kernel.audit import FiberProblem, audit
from dsh.kernel.blame import Blame, Culprit
from dsh.kernel.blocking import watched
from dsh.kernel.clock import Clock, SystemClock
from dsh.kernel.context import Context
from dsh.kernel.core import CoreContext
from dsh.kernel.driver import start
from dsh.kernel.ending import GRACE, end_work, name_holders
from dsh.kernel.fibers import Fiber, Shared, Spec
from dsh.kernel.listeners import ListenerRow, Registry
from dsh.kernel.services import Late, ServiceTable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from dsh.hooks import Scope
    from dsh.kernel.activation import Activation
    from dsh.kernel.plugins import Plugin

__all__ = ["TEARDOWN_TIMEOUT", "Kernel", "mount", "open_kernel"]

#: Seconds that one effect's undoing, or a listener still running at unload, is waited for.
TEARDOWN_TIMEOUT: Final = 10.0


@final
class Kernel:
    """One running plugin system. Made by `open_kernel`."""

    __slots__ = ("root", "shared")

    def __init__(self, shared: Shared, root: CoreContext) -> None:
        self.shared: Final = shared
        self.root: Final = root

    def mount(
        self,
        plugin: Plugin,
        config: object = None,
        *,
        slot: float = 0,
        id: str | None = None,  # noqa: A002
    ) -> Fiber:
        """Mount a plugin: it loads as soon as its services are there. Await `fiber.ready()`.

        Args:
            plugin: What `@plugin` made.
            config: An instance of its config class; None: the class's defaults.
            slot: Its place in every chain: the row's position in the composition.
            id: Its id, unique among the living; the plugin's name if None.

        Raises PluginError when the id is taken.
        """
        return mount(self.root, plugin, config, slot=slot, fiber_id=id)

    @property
    def fibers(self) -> tuple[Fiber, ...]:
        """All living fibers but the root, in order of mounting."""
        return tuple(fiber for fiber in self.shared.fibers if fiber is not self.root.fiber)

    def dependents(self, fiber: Fiber) -> tuple[Fiber, ...]:
        """Every other fiber that unloads when this one does: children, users of its services."""
        below = set(fiber.below(fiber.activation))
        return tuple(f for f in self.fibers if f is not fiber and f.activation in below)

    @asynccontextmanager
    async def parting(self, fibers: Iterable[Fiber]) -> AsyncGenerator[None]:
        """Unload or restart several fibers as one, in the block.

        Before it, whatever goes with them ends its work (`on_shutdown`) while every plugin is still
        there, and is waited for as long as that takes; but not when the caller itself stands in
        that work. What has ended its work and was not unloaded in the block is restarted.
        """
        below = {life for fiber in fibers for life in fiber.below(fiber.activation)}
        workers = {end.owner for end in self.shared.shutdowns}
        asked = {f: f.activation for f in self.fibers if f.activation in below & workers}
        if any(fiber.is_running(life) for fiber, life in asked.items()):
            asked.clear()  # It would wait for itself.
        await end_work(self.shared, asked.values())
        try:
            yield
        finally:
            stayed = [f for f, life in asked.items() if f.activation is life and not f.leaving]
            for fiber in stayed:
                fiber.restart()
                await fiber.settled()

    async def settled(self) -> None:
        """Wait until no fiber loads or unloads."""
        while busy := [fiber for fiber in self.shared.fibers if fiber.busy]:
            await busy[0].settled()

    def audit(self) -> list[FiberProblem]:
        """Every fiber that is not active, and why. Call it when `settled`."""
        return audit(self.fibers, self.shared.services)

    def listeners(self) -> list[ListenerRow]:
        """Every listener, by event and then in the order of its chain, with how often it ran."""
        return self.shared.registry.rows()


def mount(
    core: Context,
    plugin: Plugin,
    config: object = None,
    *,
    slot: float,
    fiber_id: str | None = None,
) -> Fiber:
    """Mount a plugin below a context; it ends with that context at the latest."""
    shared = core.fiber.shared
    parent = core.activation
    fiber = Fiber(
        shared,
        Spec(
            plugin=plugin.name,
            needs=plugin.needs,
            provides=tuple(key.name for key in plugin.provides),
            declared=frozenset(need.key.name for need in plugin.needs),
            place=plugin.place,
            module=plugin.module,
            apply=partial(_apply, plugin, core.scope),
        ),
        fiber_id=fiber_id or plugin.name,
        slot=slot,
        config=config,
        parent=parent,
    )
    if any(other.path == fiber.path for other in shared.fibers):
        raise PluginError(f"a plugin with id {fiber.path!r} is mounted already; give it another id")
    if plugin.module:
        shared.authors[plugin.module] = plugin.name
    fiber.effect = core.begin(f"plugin {fiber.id!r}", bounded=False)
    fiber.effect.ready(undo=fiber.dispose, bounds_itself=True)
    start(fiber)
    return fiber


async def _apply(plugin: Plugin, scope: Scope | None, fiber: Fiber, activation: Activation) -> None:
    ctx = Context(fiber=fiber, activation=activation, scope=scope)
    if plugin.config is not None:
        fiber.config = _config_of(plugin, fiber.config)
    arguments: list[object] = [ctx]
    if plugin.config is not None or plugin.deps is not None:
        arguments.append(fiber.config)
    if plugin.deps is not None:
        arguments.append(_deps_of(plugin, fiber, activation))
    await cast("Awaitable[None]", plugin.apply(*arguments))


def _config_of(plugin: Plugin, config: object) -> object:
    kind = plugin.config
    assert kind is not None
    if config is None:
        try:
            return kind()
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"plugin {plugin.name!r} needs a config: {error}; give its row a `config`"
            ) from error
    if not isinstance(config, kind):
        raise ConfigError(
            f"plugin {plugin.name!r} got {type(config).__qualname__} as its config; "
            f"expected {kind.__qualname__}"
        )
    return config


def _deps_of(plugin: Plugin, fiber: Fiber, activation: Activation) -> object:
    services = fiber.shared.services
    values: dict[str, object] = {}
    for need in plugin.needs:
        if need.mode == "late":
            values[need.name] = Late[object](services, need.key, activation)
        else:
            found = services.find(need.key, activation)
            values[need.name] = None if found is None else found.value
    assert plugin.deps is not None
    made: object = plugin.deps(**values)
    return made


@asynccontextmanager
async def open_kernel(
    *,
    clock: Clock | None = None,
    teardown_timeout: float = TEARDOWN_TIMEOUT,
    grace: float = GRACE,
    held: Callable[[tuple[str, ...]], None] | None = None,
) -> AsyncGenerator[Kernel]:
    """Run a kernel for the length of the block.

    Leaving the block, by any road, first lets work end that needs every plugin (`on_shutdown`),
    then unloads every fiber in reverse order of mounting. That is shielded: an outer cancellation
    reaches the block at once and goes on after the unwinding, each wait of which is bounded by
    `teardown_timeout` seconds, and all of which together by `grace`. What ignores cancellation
    cannot be ended: it is logged, and `held` is called with the lines, before it is waited for; a
    program may then end its process.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as outer:
        # Its own shielded task: an outer cancellation must not reach fibers before their unwinding.
        gone = trio.Event()
        nursery: trio.Nursery = await outer.start(_keep_nursery, outer, gone)
        kernel = _make(nursery, clock or SystemClock(), teardown_timeout)
        blame = Blame(kernel.shared)
        with watched(blame, _report_blocking):
            try:
                yield kernel
            except BaseException as error:  # noqa: BLE001 - raised again below, outside the nursery
                failure = error
            with trio.CancelScope(shield=True):
                kernel.shared.close_by = trio.current_time() + grace
                disposed = trio.Event()
                outer.start_soon(name_holders, kernel.shared, blame, disposed, gone, held)
                await kernel.root.fiber.dispose()
                nursery.cancel_scope.cancel()
                disposed.set()
                await gone.wait()
    if failure is not None:
        raise failure


async def _keep_nursery(
    outer: trio.Nursery,
    gone: trio.Event,
    *,
    task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Hold the tasks of all plugins. When Ctrl-C strikes one of them, the block is left."""
    try:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                task_status.started(nursery)
                try:
                    await trio.sleep_forever()
                finally:
                    outer.cancel_scope.cancel()
    finally:
        gone.set()


def _report_blocking(culprit: Culprit | None, seconds: float) -> None:
    if culprit is None:
        return  # Our own code or a slow disk; no plugin can be told what to change.
    logging.getLogger(f"dsh.plugin.{culprit.plugin}").warning(
        "%s blocked the thread for %.1f s, and everything waited; "
        "await there, or use trio.to_thread.run_sync",
        culprit, seconds,
    )  # fmt: skip


def _make(nursery: trio.Nursery, clock: Clock, teardown_timeout: float) -> Kernel:
    from dsh.catalog import session  # noqa: PLC0415 - a kernel can be imported without the catalog

    shared = Shared(
        registry=Registry(session.EVENT.name),
        services=ServiceTable(),
        clock=clock,
        nursery=nursery,
        teardown_timeout=teardown_timeout,
    )
    root = Fiber(shared, Spec(plugin="kernel"), fiber_id="kernel", slot=-1)
    start(root)
    return Kernel(shared, CoreContext(fiber=root, activation=root.activation))
