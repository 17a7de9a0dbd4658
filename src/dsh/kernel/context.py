"""Contexts: the frozen view through which a plugin registers, listens, asks and emits.

What comes in: an activation (who owns what is registered) and a scope (who sees it). What goes
out: registrations, dispatches and services. A context holds no state of its own; a registry that
takes a context first registers for that context's plugin and scope, never for its own.
"""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Literal, TypeVar, TypeVarTuple, Unpack, cast

import attrs
import trio

from dsh.errors import InactiveEffect, PluginError, ServiceMissing
from dsh.hooks import AnyNotice, CoreNotice, Hook, Notice, frozen
from dsh.kernel.dispatch import run_emit, run_serial
from dsh.kernel.effects import build, build_async
from dsh.kernel.hosts import enter_hosted, spawn_hosted
from dsh.kernel.places import caller_place
from dsh.kernel.registering import (
    KernelRegistrar,
    check_callback,
    listen,
    observe_with,
    on_drain_with,
    provide,
)
from dsh.kernel.services import Late, ServiceKey
from dsh.kernel.states import FiberState
from dsh.kernel.stream import Segment
from dsh.kernel.waterfall import run_waterfall, run_waterfall_by

if TYPE_CHECKING:
    import logging
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from dsh.hooks import EffectHandle, Registrar, Scope, Serial, Stream, Waterfall, live
    from dsh.kernel.activation import Activation
    from dsh.kernel.answers import Answered
    from dsh.kernel.clock import Clock
    from dsh.kernel.effects import Effect
    from dsh.kernel.fibers import Fiber
    from dsh.kernel.listeners import Entry

__all__ = ["Context"]

C = TypeVar("C")
F = TypeVar("F")
P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
X = TypeVar("X")
Ts = TypeVarTuple("Ts")


@frozen(eq=False, slots=True, kw_only=True)
class Context:
    """What a plugin gets. Everything registered through it is undone when the plugin unloads.

    Registering on a context whose plugin is unloading or gone raises InactiveEffect.
    """

    fiber: Fiber = attrs.field(repr=False)
    activation: Activation = attrs.field(repr=False)
    scope: Scope | None = None

    # -- who and where ---------------------------------------------------------------------------

    @property
    def plugin(self) -> str:
        """The plugin's name."""
        return self.activation.plugin

    @property
    def clock(self) -> Clock:
        """Wall time and monotonic time; a test may have stopped it."""
        return self.fiber.shared.clock

    @property
    def log(self) -> logging.Logger:
        """The plugin's logger, `dsh.plugin.<name>`. Never log request bodies or secrets."""
        return self.activation.log

    def scoped(self, scope: Scope) -> Context:
        """The same owner, visible to `scope` only. Undone when the scope closes, too."""
        return attrs.evolve(self, scope=scope)

    # -- listening -------------------------------------------------------------------------------

    def on(self, event: Hook[F], *, prepend: bool = False) -> Registrar[F]:
        """Listen: `@ctx.on(TOKEN)` above the listener, or `ctx.on(TOKEN)(listener)`.

        `prepend` puts it before all others, the latest outermost. Takes effect at the next
        dispatch. Raises BadListener for a listener of the wrong shape.
        """
        return KernelRegistrar(
            self._pending(), caller_place(), partial(listen, self, event, prepend)
        )

    def observe(
        self, event: Hook[Callable[[X], None]], *, queue: int = 100
    ) -> Registrar[Callable[[X], Awaitable[None]]]:
        """Do async work on a synchronous notice or a log event: in order, one at a time.

        `queue` events may wait; beyond that new ones are dropped, and the log says so. What waits
        at unload is still delivered, within the teardown timeout. Failures are contained.
        """
        return KernelRegistrar(
            self._pending(), caller_place(), partial(observe_with, self, event, queue)
        )

    def on_drain(self, fn: Callable[[live.Agent], Awaitable[None]]) -> EffectHandle:
        """Call `fn` with each agent that ends, before its write path closes: the last place to log.

        Bounded by the teardown timeout; failures are contained.
        """
        return on_drain_with(self, fn, caller_place())

    def on_unload(self, fn: Callable[[], None]) -> EffectHandle:
        """Call `fn` when this plugin begins to unload, before its running listeners are awaited.

        The place to cut long waits in a listener short. Failures are contained.
        """
        check_callback("on_unload", fn, self.plugin, count=0, shape="def callback()")
        effect = self.begin("on_unload")
        self.activation.leaving[effect] = fn
        effect.ready(undo_now=partial(_forget, self.activation.leaving, effect))
        return effect

    def on_config(
        self, fn: Callable[[C, C], Awaitable[Literal["applied", "restart"]]]
    ) -> EffectHandle:
        """Accept a new config in place: `fn(new, old)`. "restart", or raising, restarts it."""
        shape = "async def accept(new, old)"
        check_callback("on_config", fn, self.plugin, count=2, shape=shape)
        effect = self.begin("on_config")
        accept = cast("Callable[[object, object], Awaitable[str]]", fn)
        self.fiber.on_config.append(accept)
        effect.ready(undo_now=partial(_discard, self.fiber.on_config, accept))
        return effect

    # -- effects ---------------------------------------------------------------------------------

    def effect(self, setup: Callable[[], Callable[[], None]], *, label: str) -> EffectHandle:
        """Run `setup` now; call what it returns at unload. If it raises, its parts are undone."""
        return build(self.begin(label), setup)

    async def aeffect(
        self, setup: Callable[[], Awaitable[Callable[[], Awaitable[None]]]], *, label: str
    ) -> EffectHandle:
        """`effect` for awaited setups and disposers. Leave no nursery or scope open in it.

        Cancelled inside `setup`: what it had made is undone, then Cancelled goes on.
        """
        return await build_async(self.begin(label), setup)

    def enter(self, cm: AbstractContextManager[T], *, label: str) -> T:
        """Enter a plain context manager now; leave it at unload."""
        given: object = cm
        if isinstance(given, trio.CancelScope):
            raise PluginError(
                f"plugin {self.plugin!r}: a cancel scope cannot stay open beyond your function "
                f"({label}); write `with` inside the function that it limits"
            )
        value: list[T] = []

        def setup() -> Callable[[], None]:
            value.append(cm.__enter__())
            return partial(_leave, cm)

        build(self.begin(label), setup)
        return value[0]

    async def aenter(self, cm: AbstractAsyncContextManager[T], *, label: str) -> T:
        """Enter an async context manager in a task of its own; leave it there at unload.

        It may hold a nursery. If it fails later, this plugin fails and unloads, nothing else.
        """
        return await enter_hosted(self.begin(label), cm, self.activation.failed)

    def spawn(
        self, fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts, label: str
    ) -> EffectHandle:
        """Run `fn(*args)` in a task of its own, cancelled and joined at unload.

        If it raises, this plugin fails and unloads; nothing else notices.
        """
        return spawn_hosted(self.begin(label), partial(fn, *args), self.activation.failed)

    # -- services --------------------------------------------------------------------------------

    def provide(self, key: ServiceKey[S], value: S) -> EffectHandle:
        """Publish a service; others see it once this plugin is active.

        Raises ServiceConflict when the key is taken, PluginError when `@plugin` does not list it.
        """
        return provide(self, key, value)

    def get(self, key: ServiceKey[S]) -> S | None:
        """The service as of now, or None. For later uses keep `late(key)`, not the value."""
        found = self.fiber.shared.services.find(key, self.activation)
        return None if found is None else cast("S", found.value)

    def require(self, key: ServiceKey[S]) -> S:
        """A service that `deps` declares. Raises ServiceMissing naming what to write."""
        found = self.fiber.shared.services.find(key, self.activation)
        if found is not None and self._declares(key):
            return cast("S", found.value)
        if not self._declares(key):
            raise ServiceMissing(
                f"plugin {self.plugin!r} uses service {key.name!r} without declaring it; "
                "give it a field `= required(KEY)` in its deps class"
            )
        hint = self.fiber.shared.services.hint(key.name)
        raise ServiceMissing(f"plugin {self.plugin!r}: nobody provides service {key.name!r}{hint}")

    def late(self, key: ServiceKey[S]) -> Late[S]:
        """A live handle on a service that may come and go."""
        return Late(self.fiber.shared.services, key, self.activation)

    # -- dispatch --------------------------------------------------------------------------------

    def waterfall(
        self, event: Waterfall[P, R]
    ) -> Callable[[P, Callable[[], Awaitable[R]]], Coroutine[object, None, R]]:
        """Ask: `await ctx.waterfall(TOKEN)(payload, default)`. `default` answers if nobody does."""
        # A bound method of the two: made and called a third faster than a partial.
        return MethodType(run_waterfall, (self, event))

    def waterfall_by(
        self, event: Waterfall[P, R]
    ) -> Callable[[P, Callable[[], Awaitable[R]]], Coroutine[object, None, Answered[R]]]:
        """`waterfall` that also tells which plugin's answer it is."""
        return MethodType(run_waterfall_by, (self, event))

    def stream(
        self, event: Stream[P, C]
    ) -> Callable[
        [P, Callable[[], AbstractAsyncContextManager[AsyncIterator[C]]]],
        AbstractAsyncContextManager[AsyncIterator[C]],
    ]:
        """`async with ctx.stream(TOKEN)(payload, default) as chunks`, entered from outside in."""
        return partial(self._stream, event)

    def serial(self, event: Serial[P, R]) -> Callable[[P], Coroutine[object, None, tuple[R, ...]]]:
        """`await ctx.serial(TOKEN)(payload)`: all listeners run; the answers that are not None."""
        return partial(self._serial, event)

    def emit(self, payload: Notice) -> None:
        """Tell everybody now. The payload's class knows its event."""
        if isinstance(payload, CoreNotice):
            raise PluginError(
                f"plugin {self.plugin!r} emitted {payload.TOKEN.name!r}, which only the rooms of "
                "dsh emit; declare a notice of your own in your schema"
            )
        self.tell(payload)

    # -- for the rooms of dsh --------------------------------------------------------------------

    def begin(self, label: str, *, bounded: bool = True) -> Effect:
        """Open an effect owned by this plugin and, if scoped, ended with its scope too."""
        home: Activation | None = None
        if self.scope is not None and self.scope is not self.activation.scope:
            home = self.fiber.shared.scopes.get(self.scope)
            if home is None and not self._inherits(self.scope):
                raise InactiveEffect(
                    f"{label} of plugin {self.plugin!r}: {self.scope!r} is closed or was never "
                    "opened; a scope is open from `core.child(name, scope=…)` to its close"
                )
        return self.activation.begin(label, home, bounded=bounded)

    def tell(self, payload: AnyNotice) -> None:
        """`emit` without the question who may."""
        event = payload.TOKEN
        chain = self.chain_of(event, payload)
        if chain:
            run_emit(event, chain, payload)

    def chain_of(self, event: Hook[F], payload: object) -> tuple[Entry, ...]:
        """Who hears this payload. Refuses one whose agent is not this context's own."""
        registry = self.fiber.shared.registry
        chains = registry.chains.get(event.name) or registry.build(event)
        if self.scope is None and not chains.scoped:
            return chains.plain
        scope = None if event.scope_of is None else event.scope_of(payload)
        if self.scope is not None and scope is not None and scope is not self.scope:
            raise PluginError(
                f"{event.name!r} of {scope!r} was dispatched by the context of {self.scope!r}; "
                "use the context of the payload's own agent"
            )
        return chains.of(scope)

    def heard(self, event: Hook[F]) -> bool:
        """Whether anybody at all listens to `event` now; for payloads that are dear to make."""
        registry = self.fiber.shared.registry
        return (registry.chains.get(event.name) or registry.build(event)).heard

    def _pending(self) -> dict[object, str]:
        loading = self.fiber.state is FiberState.LOADING
        return self.activation.registrars if loading else {}

    def _inherits(self, scope: Scope) -> bool:
        above = self.activation.parent
        while above is not None:
            if above.scope is scope:
                return True
            above = above.parent
        return False

    def _declares(self, key: ServiceKey[S]) -> bool:
        activation: Activation | None = self.activation
        if self.activation.declared is None:
            return True
        while activation is not None and activation.declared is not None:
            if key.name in activation.declared or key.name in activation.provisions:
                return True
            activation = activation.parent
        return False

    async def _serial(self, event: Serial[P, R], payload: P) -> tuple[R, ...]:
        chain = self.chain_of(event, payload)
        return await run_serial(event, chain, payload) if chain else ()

    def _stream(
        self,
        event: Stream[P, C],
        payload: P,
        default: Callable[[], AbstractAsyncContextManager[AsyncIterator[C]]],
    ) -> AbstractAsyncContextManager[AsyncIterator[C]]:
        chain = self.chain_of(event, payload)
        return Segment(event.name, chain, 0, payload, default) if chain else default()


def _leave(cm: AbstractContextManager[object]) -> None:
    cm.__exit__(None, None, None)


def _forget(known: dict[Effect, Callable[[], None]], effect: Effect) -> None:
    known.pop(effect, None)


def _discard(items: list[F], item: F) -> None:
    if item in items:
        items.remove(item)
