"""The context of the rooms of dsh: what plugins may not do, and what agents are made of.

What comes in: a plugin's context. What goes out: the same owner and scope with more verbs: core
notices, barriers, the feed of committed log events, child fibers. Only rooms and loop plugins ask
for it, with `core_of(ctx)`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs
from typing_extensions import override

from dsh.errors import PluginError
from dsh.hooks import frozen
from dsh.kernel.bounded import End, run_bounded
from dsh.kernel.context import Context
from dsh.kernel.dispatch import contain, run_parallel, run_publish
from dsh.kernel.driver import start
from dsh.kernel.fibers import Fiber, Spec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.hooks import (
        AnyDurable,
        CoreBarrier,
        CoreNotice,
        EffectHandle,
        Logged,
        Notice,
        Scope,
        live,
    )
    from dsh.kernel.fibers import Shared
    from dsh.kernel.listeners import Entry

__all__ = ["CoreContext", "core_of"]


@frozen(eq=False, slots=True, kw_only=True)
class CoreContext(Context):
    """A context with the verbs of the rooms of dsh."""

    @override
    def scoped(self, scope: Scope) -> CoreContext:
        """The same owner, visible to `scope` only. Undone when the scope closes, too."""
        return attrs.evolve(self, scope=scope)

    @override
    def emit(self, payload: Notice | CoreNotice) -> None:
        """Tell everybody now. A `veto` event raises the first failure: undo what it told of."""
        self.tell(payload)

    async def parallel(self, payload: CoreBarrier) -> None:
        """Run all listeners together, each to its end; failures are raised as an ExceptionGroup.

        Cancellation reaches the listeners, and then the caller.
        """
        event = payload.TOKEN
        chain = self.chain_of(event, payload)
        if chain:
            await run_parallel(event.name, chain, payload)

    def publish(self, event: Logged[AnyDurable]) -> None:
        """Tell the feed of one committed log event. Nothing that a listener does can fail it.

        Its own listeners and those of the whole feed are one chain in the usual order. Its scope
        is the session's.
        """
        token = event.data.TOKEN
        registry = self.fiber.shared.registry
        chains = registry.chains.get(token.name) or registry.build(token)
        chain = chains.of(event.session.scope) if chains.scoped else chains.plain
        if chain:
            run_publish(chain, event, registry.feed)

    async def drain(self, agent: live.Agent) -> None:
        """Let every plugin that this agent concerns log its last word, the innermost first.

        Each callback is shielded, contained and bounded by the teardown timeout.
        """
        shared = self.fiber.shared
        lineage = set(agent.scope.lineage())
        chain = sorted(shared.drains, key=lambda entry: entry.key, reverse=True)
        for entry in chain:
            if entry.active and (entry.scope is None or entry.scope in lineage):
                await _drain_one(shared, entry, agent)

    def on_shutdown(self, fn: Callable[[], Awaitable[None]]) -> EffectHandle:
        """Await `fn` when the kernel begins to close, before any plugin is unloaded; latest first.

        For work that needs every plugin to end well. It is also awaited when this plugin goes with
        others, before the first of them does (`Kernel.parting`); not when it is unloaded alone.
        Shielded, and bounded only by the grace of the kernel's end; a failure is logged and the
        closing goes on.
        """
        shared = self.fiber.shared
        effect = self.begin("on_shutdown")
        shared.shutdowns[effect] = fn

        def undo() -> None:
            shared.shutdowns.pop(effect, None)

        effect.ready(undo_now=undo)
        return effect

    async def child(self, name: str, *, scope: Scope | None = None) -> CoreContext:
        """A child fiber, active at once, that owns `scope` (if given) until it is closed.

        It ends with this context's plugin at the latest. Raises PluginError when the scope is open.
        """
        shared = self.fiber.shared
        if scope is not None and scope in shared.scopes:
            raise PluginError(f"child {name!r}: {scope!r} is open already; a scope has one owner")
        parent = self.activation
        effect = self.begin(f"child {name!r}", bounded=False)
        fiber = Fiber(
            shared,
            Spec(plugin=name if parent.parent is None else parent.plugin),
            fiber_id=name,
            slot=parent.slot,
            parent=parent,
            scope=scope,
        )
        fiber.effect = effect
        effect.ready(undo=fiber.dispose, bounds_itself=True)
        start(fiber)
        return CoreContext(
            fiber=fiber,
            activation=fiber.activation,
            scope=scope if scope is not None else self.scope,
        )

    async def close(self) -> None:
        """Unload this fiber for good and wait for it; from its own listener only ask for it."""
        await self.fiber.dispose()


def core_of(ctx: Context) -> CoreContext:
    """The same context with the verbs of the rooms of dsh. Not for plugins of others."""
    if isinstance(ctx, CoreContext):
        return ctx
    return CoreContext(fiber=ctx.fiber, activation=ctx.activation, scope=ctx.scope)


async def _drain_one(shared: Shared, entry: Entry, agent: live.Agent) -> None:
    limit = shared.limit(shared.teardown_timeout)
    entry.runs += 1
    entry.running += 1
    try:
        end, failure = await run_bounded(
            shared.nursery,
            partial(entry.ask, agent),
            limit,
            name=f"{entry.plugin}: on_drain ({entry.place})",
            holding=(entry,),
        )
    finally:
        entry.running -= 1
        entry.went_idle()
    if failure is not None:
        contain(entry, failure)
    elif end is not End.DONE:
        contain(
            entry,
            TimeoutError(f"not done after {limit:g} s ({end.value}); the agent ends without it"),
        )
