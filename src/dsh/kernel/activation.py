"""Activations: one loaded life of a fiber, and everything that it registered.

What comes in: registrations through its contexts. What goes out: their complete undoing: services
first (and with them the dependents), then listeners, then every effect, last first. A context
belongs to one activation: what a past life of a plugin still tries to register is refused.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from dsh.errors import InactiveEffect
from dsh.kernel.effects import BUILDING, Effect
from dsh.kernel.faults import in_a_line
from dsh.kernel.places import contained
from dsh.kernel.stack import held

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import Scope
    from dsh.kernel.listeners import Entry, Registry
    from dsh.kernel.services import Provider, Provision, ServiceTable

__all__ = ["DEPENDENTS_TIMEOUT", "Activation"]

#: Seconds a provider waits for its dependents, who are themselves bounded per effect.
DEPENDENTS_TIMEOUT: Final = 60.0


@final
@attrs.define(eq=False, slots=True, kw_only=True)
class Activation:
    """What one loaded fiber owns. `declared` names what it may `require`; None: anything."""

    path: str
    plugin: str
    slot: float
    serial: int
    nursery: trio.Nursery
    limit: Callable[[float], float] = attrs.field(repr=False)
    patience: float
    parent: Activation | None
    scope: Scope | None
    declared: frozenset[str] | None
    failed: Callable[[str, Exception], None]
    open: bool = True
    log: logging.Logger = attrs.field(init=False, repr=False)
    effects: dict[Effect, None] = attrs.field(factory=dict, repr=False)
    entries: dict[Entry, None] = attrs.field(factory=dict, repr=False)
    provisions: dict[str, Provision] = attrs.field(factory=dict, repr=False)
    registrars: dict[object, str] = attrs.field(factory=dict, repr=False)
    leaving: dict[Effect, Callable[[], None]] = attrs.field(factory=dict, repr=False)
    teardown_errors: list[Exception] = attrs.field(factory=list, repr=False)

    def __attrs_post_init__(self) -> None:
        self.log = logging.getLogger(f"dsh.plugin.{self.plugin}")

    @property
    def teardown_timeout(self) -> float:
        """Seconds that one thing to undo is waited for, as of now."""
        return self.limit(self.patience)

    def encloses(self, other: Provider) -> bool:
        """True when `other` is this activation, or one below it."""
        below: Provider | None = other
        while below is not None:
            if below is self:
                return True
            below = below.parent if isinstance(below, Activation) else None
        return False

    def check_open(self, label: str) -> None:
        """Raise InactiveEffect when this life has ended."""
        if not self.open:
            raise InactiveEffect(
                f"{label}: plugin {self.path!r} is unloading or gone; register in `apply` only"
            )

    def begin(self, label: str, home: Activation | None = None, *, bounded: bool = True) -> Effect:
        """Open an effect: it is in the list before any setup runs.

        `home` is the owner of the scope it is registered for; it ends with that one too.
        """
        self.check_open(label)
        outer = BUILDING.get()
        nested = outer is not None and outer.owner is self and outer.in_setup
        homes = [outer.parts if nested and outer is not None else self.effects]
        if home is not None and home is not self:
            home.check_open(label)
            homes.append(home.effects)
        return Effect(self, label, homes, bounded=bounded)

    def note_teardown(self, label: str, problem: Exception | str) -> None:
        """A disposer raised or hung: log it, keep it, go on."""
        error = problem if isinstance(problem, Exception) else TimeoutError(problem)
        self.teardown_errors.append(error)
        self.log.warning(
            "plugin %r: undoing %s failed: %s",
            self.path,
            label,
            problem if isinstance(problem, str) else in_a_line(problem),
            exc_info=error,
        )

    async def close(self, services: ServiceTable, registry: Registry) -> None:
        """Undo everything. Shielded; every wait in it is bounded."""
        self.open = False
        with trio.CancelScope(shield=True):
            self._tell_leaving()
            await self._leave_services(services)
            for entry in tuple(self.entries):
                registry.remove(entry)
            await self._drain()
            while self.effects:
                effect = next(reversed(self.effects))
                await effect.aclose()
                self.effects.pop(effect, None)
        self.registrars.clear()
        if self.scope is not None:
            registry.forget(self.scope)

    def _tell_leaving(self) -> None:
        for effect, cut_short in reversed(tuple(self.leaving.items())):
            with contained(partial(self.note_teardown, effect.label)):
                cut_short()

    async def _leave_services(self, services: ServiceTable) -> None:
        provisions = tuple(reversed(self.provisions.values()))
        for provision in provisions:
            services.withdraw(provision)
        with trio.move_on_after(self.limit(DEPENDENTS_TIMEOUT)) as scope:
            for provision in provisions:
                await provision.wait_released()
        if scope.cancelled_caught:
            names = sorted({str(holder) for p in provisions for holder in p.holders})
            self.note_teardown("its services", f"still held by {', '.join(names)}; gone on without")

    async def _drain(self) -> None:
        busy = [entry for entry in self.entries if entry.running]
        with trio.move_on_after(self.teardown_timeout) as scope:
            for entry in busy:
                await entry.wait_idle()
        if scope.cancelled_caught:
            places = ", ".join(f"{e.event.name} ({e.place})" for e in busy if e.running)
            self.note_teardown("its listeners", f"still running after the limit: {places}")

    async def quiesce(self, entry: Entry) -> None:
        """Wait for running calls of one removed listener, unless this is one of them."""
        if any(thing is entry for thing in held()):
            return
        await entry.wait_idle()
