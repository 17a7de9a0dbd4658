"""Registering: what stands between a context's verbs and the registries behind them.

What comes in: a context, a token or key, and then the listener or value. What goes out: an entry
or provision with its effect, or a refusal that names plugin, event, place and what is due. Owner
and visibility are always the caller's: both are read from the same context.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, final

import trio
from typing_extensions import override

from dsh.errors import BadListener, PluginError
from dsh.hooks import Durable, Emit, Hook, Registrar, Stream, Waterfall
from dsh.kernel.activation import DEPENDENTS_TIMEOUT
from dsh.kernel.answers import awaited
from dsh.kernel.fibers import Fiber
from dsh.kernel.hosts import Host
from dsh.kernel.listeners import Entry
from dsh.kernel.observing import Observer
from dsh.kernel.places import AsyncCall, Call, is_async, is_bare_async_generator, place_of, takes
from dsh.kernel.services import AnyKey, Provision
from dsh.kernel.states import FiberState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.hooks import EffectHandle, Scope, live
    from dsh.kernel.activation import Activation
    from dsh.kernel.effects import Effect

__all__ = [
    "DRAIN",
    "Asks",
    "KernelRegistrar",
    "check_callback",
    "checked_listener",
    "listen",
    "observe_with",
    "on_drain_with",
    "provide",
]

F = TypeVar("F")
X = TypeVar("X")


class Asks(Protocol):
    """A context, as far as registering needs it."""

    @property
    def fiber(self) -> Fiber:
        """Whose it is."""
        ...

    @property
    def activation(self) -> Activation:
        """In which of its lives."""
        ...

    @property
    def scope(self) -> Scope | None:
        """Who sees what is registered; None: everybody."""
        ...

    def begin(self, label: str, *, bounded: bool = True) -> Effect:
        """Open an effect of this context's plugin."""
        ...


_SHAPES: Final = {
    "Waterfall": "async def listener(payload, call_next)",
    "Stream": "@asynccontextmanager async def listener(payload, call_next)",
    "Serial": "async def listener(payload)",
    "Emit": "def listener(payload)",
    "Durable": "def listener(event)",
}


@final
class KernelRegistrar(Registrar[F]):
    """A registrar that knows its context, and where it was made."""

    __slots__ = ("_pending", "_place", "_register")

    def __init__(
        self,
        pending: dict[object, str],
        place: str,
        register: Callable[[F, str], EffectHandle],
    ) -> None:
        self._pending = pending
        self._place = place
        self._register = register
        pending[self] = place

    @override
    def __call__(self, listener: F, /) -> EffectHandle:
        self._pending.pop(self, None)
        return self._register(listener, self._place)


def checked_listener(kind: object, name: str, fn: Call, plugin: str, place: str) -> Call:
    """The function to call, or BadListener when its shape cannot be right for the event."""
    where = f"plugin {plugin!r}, listener of {name!r} ({place})"
    expected = _SHAPES.get(type(kind).__name__, "async def listener(payload)")
    count = 2 if isinstance(kind, Waterfall | Stream) else 1
    signature = takes(fn, count)
    if signature is not None:
        raise BadListener(f"{where}: it is {signature}; expected `{expected}`")
    if isinstance(kind, Emit | Durable):
        if is_async(fn):
            raise BadListener(
                f"{where}: it is async, but this event does not wait; make it a plain `def`, "
                "or use `ctx.observe(TOKEN)` for async work"
            )
        return fn
    if isinstance(kind, Stream):
        if is_async(fn):
            remedy = (
                "decorate it with @asynccontextmanager"
                if is_bare_async_generator(fn)
                else "write it with `yield` and @asynccontextmanager"
            )
            raise BadListener(f"{where}: it is not an async context manager; {remedy}")
        return fn
    if is_bare_async_generator(fn):
        raise BadListener(f"{where}: it has `yield`; expected `{expected}`")
    return fn if is_async(fn) else awaited(fn, lambda: where)


def check_callback(verb: str, fn: object, plugin: str, *, count: int, shape: str) -> None:
    """Refuse a callback of a context's verb that cannot be called as `shape` says."""
    signature = takes(fn, count)
    if signature is None and is_async(fn) != shape.startswith("async "):
        signature = "async" if is_async(fn) else "no `async def`"
    if signature is not None:
        raise BadListener(
            f"plugin {plugin!r}, {verb} ({place_of(fn) or 'an unknown place'}): it is {signature}; "
            f"expected `{shape}`"
        )


#: Not an event: what agents' last callbacks are listed under.
DRAIN: Final[Hook[object]] = Hook(
    "on_drain", object, errors="contain", scope_of=None, owner="kernel"
)


def _enlist(
    ctx: Asks, event: Hook[object], fn: Call,
    *, prepend: bool, place: str,
) -> Entry:  # fmt: skip
    """Make an entry that ends with the effect, its plugin and its scope."""
    activation = ctx.activation
    shared = ctx.fiber.shared
    entry = Entry(
        event,
        fn,
        owner=activation,
        seq=shared.registry.next_seq(),
        scope=ctx.scope,
        prepend=prepend,
        place=place,
    )
    activation.entries[entry] = None
    home = None if ctx.scope is None else shared.scopes.get(ctx.scope)
    if home is not None:
        home.entries[entry] = None
    return entry


def _drop(ctx: Asks, entry: Entry) -> None:
    shared = ctx.fiber.shared
    shared.registry.remove(entry)
    shared.drains.pop(entry, None)
    ctx.activation.entries.pop(entry, None)
    home = None if entry.scope is None else shared.scopes.get(entry.scope)
    if home is not None:
        home.entries.pop(entry, None)


def listen(ctx: Asks, event: Hook[F], prepend: bool, listener: F, place: str) -> EffectHandle:  # noqa: FBT001
    """Register a listener of a context's plugin, for the context's scope."""
    token = cast("Hook[object]", event)
    given = cast("Call", listener)
    where = place_of(given) or place
    fn = checked_listener(event, event.name, given, ctx.activation.plugin, where)
    effect = ctx.begin(f"on({event.name!r})")
    entry = _enlist(ctx, token, fn, prepend=prepend, place=where)
    try:
        ctx.fiber.shared.registry.add(entry)
    except BaseException:
        _drop(ctx, entry)
        effect.finish()
        raise
    effect.ready(
        undo_now=partial(_drop, ctx, entry), quiesce=partial(ctx.activation.quiesce, entry)
    )
    return effect


def observe_with(
    ctx: Asks,
    event: Hook[Callable[[X], None]],
    queue: int,
    fn: Callable[[X], Awaitable[None]],
    place: str,
) -> EffectHandle:
    """Register an observer: a queueing listener and the task that empties the queue."""
    token: object = event
    activation = ctx.activation
    where = place_of(fn) or place
    what = f"plugin {activation.plugin!r}, observer of {event.name!r} ({where})"
    if not isinstance(token, Emit | Durable):
        raise BadListener(
            f"{what}: only notices and log events are observed, and this one waits for its "
            "listeners; use `ctx.on(TOKEN)`"
        )
    signature = takes(fn, 1)
    if signature is not None:
        raise BadListener(f"{what}: it is {signature}; expected `async def listener(payload)`")
    given = cast("Call", fn)
    call = cast("AsyncCall", given if is_async(given) else awaited(given, lambda: what))
    effect = ctx.begin(f"observe({event.name!r})")
    observer = Observer(call, queue=queue, effect=effect, log=activation.log, what=what)
    put = cast("Call", observer.put)
    entry = _enlist(ctx, cast("Hook[object]", event), put, prepend=False, place=where)
    ctx.fiber.shared.registry.add(entry)
    host: Host[None] = Host(effect, activation.failed)

    async def undo() -> None:
        _drop(ctx, entry)
        observer.close()
        await host.close()

    effect.ready(undo=undo)
    activation.nursery.start_soon(host.work, observer.consume, name=what)
    return effect


def on_drain_with(
    ctx: Asks, fn: Callable[[live.Agent], Awaitable[None]], place: str
) -> EffectHandle:
    """Register a callback for agents that end."""
    where = place_of(fn) or place
    given = cast("Call", fn)
    call = checked_listener(DRAIN, DRAIN.name, given, ctx.activation.plugin, where)
    effect = ctx.begin("on_drain")
    entry = _enlist(ctx, DRAIN, call, prepend=False, place=where)
    ctx.fiber.shared.drains[entry] = None
    effect.ready(
        undo_now=partial(_drop, ctx, entry), quiesce=partial(ctx.activation.quiesce, entry)
    )
    return effect


def provide(ctx: Asks, key: AnyKey, value: object) -> EffectHandle:
    """Publish a service of a context's plugin."""
    activation = ctx.activation
    spec = ctx.fiber.spec
    if spec.apply is not None and key.name not in spec.provides:
        raise PluginError(
            f"plugin {activation.plugin!r} provides service {key.name!r} without saying so; "
            "list its key in `@plugin(provides=(…))`"
        )
    services = ctx.fiber.shared.services
    effect = ctx.begin(f"provide({key.name!r})", bounded=False)
    provision = Provision(key, value, activation)
    try:
        services.claim(provision)
    except BaseException:
        effect.finish()
        raise
    activation.provisions[key.name] = provision

    async def undo() -> None:
        services.withdraw(provision)
        holders = {h.activation for h in provision.holders if isinstance(h, Fiber)}
        # A plugin that unloads has waited for them already, and has said so if it was in vain.
        if activation.open and not any(ctx.fiber.is_running(above) for above in holders):
            with trio.move_on_after(activation.limit(DEPENDENTS_TIMEOUT)) as scope:
                await provision.wait_released()
            if scope.cancelled_caught:
                names = ", ".join(sorted(map(str, provision.holders)))
                activation.note_teardown(f"provide({key.name!r})", f"still held by {names}")
        # Meanwhile its plugin may have provided the key anew.
        if activation.provisions.get(key.name) is provision:
            del activation.provisions[key.name]

    effect.ready(undo=undo, bounds_itself=True)
    if ctx.fiber.state is FiberState.ACTIVE:
        services.show(provision)
    return effect
