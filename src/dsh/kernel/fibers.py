"""Fibers: mounted plugins, each with one driver task that brings it where it ought to be.

What comes in: an `apply` to run, the services it needs, and events that change what is needed.
What goes out: a state out of six, moved along the table of `states` and no other way. A fiber
knows the epoch (the identities of the providers) that it was loaded for and the one it ought to
be loaded for; its driver acts until they are equal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

import attrs
import trio
from typing_extensions import override

from dsh.errors import InvariantError
from dsh.hooks import frozen
from dsh.kernel.activation import Activation
from dsh.kernel.effects import Effect
from dsh.kernel.faults import in_a_line
from dsh.kernel.listeners import Entry
from dsh.kernel.stack import held
from dsh.kernel.states import MOVES, FiberState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from dsh.hooks import Scope
    from dsh.kernel.clock import Clock
    from dsh.kernel.listeners import Registry
    from dsh.kernel.services import DepField, Provision, ServiceTable

__all__ = ["Fiber", "Shared", "Spec"]


Epoch = tuple[object, ...]

#: Of what is left of the grace of the kernel's end, the part that one thing to undo may use up.
SHARE: Final = 0.75
#: Seconds that each gets when the grace is used up.
SLICE: Final = 0.25


@attrs.define(eq=False, slots=True, kw_only=True)
class Shared:
    """What all fibers of one kernel share."""

    registry: Registry
    services: ServiceTable
    clock: Clock
    nursery: trio.Nursery
    teardown_timeout: float
    #: When everything ought to be undone; set as the kernel begins to end.
    close_by: float = math.inf
    scopes: dict[Scope, Activation] = attrs.field(factory=dict)
    drains: dict[Entry, None] = attrs.field(factory=dict)
    fibers: dict[Fiber, None] = attrs.field(factory=dict)
    #: Which plugin a module belongs to, also after it was unloaded: what it left may go on.
    authors: dict[str, str] = attrs.field(factory=dict)
    shutdowns: dict[Effect, Callable[[], Awaitable[None]]] = attrs.field(factory=dict)
    serial: int = 0
    closing: bool = False

    def next_serial(self) -> int:
        """The order of mounting."""
        self.serial += 1
        return self.serial

    def limit(self, seconds: float) -> float:
        """How long something may be waited for: less when the kernel ends, but never nothing."""
        left = self.close_by - trio.current_time()
        return min(seconds, max(left * SHARE, SLICE))


@frozen(eq=False, slots=True, kw_only=True)
class Spec:
    """What a fiber runs and needs. `apply` None: a fiber without a plugin, active at once."""

    plugin: str
    needs: tuple[DepField, ...] = ()
    provides: tuple[str, ...] = ()
    place: str = "no function"
    module: str = ""
    declared: frozenset[str] | None = None
    apply: Callable[[Fiber, Activation], Awaitable[None]] | None = None


@final
class Fiber:
    """One mounted instance of a plugin."""

    __slots__ = (
        "activation",
        "busy",
        "config",
        "disposing",
        "effect",
        "epoch",
        "error",
        "failure",
        "generation",
        "id",
        "loading",
        "offer",
        "on_config",
        "parent",
        "provisions",
        "resting",
        "scope",
        "serial",
        "shared",
        "slot",
        "spec",
        "state",
        "woken",
    )

    def __init__(
        self,
        shared: Shared,
        spec: Spec,
        *,
        fiber_id: str,
        slot: float,
        config: object = None,
        parent: Activation | None = None,
        scope: Scope | None = None,
    ) -> None:
        self.shared: Final = shared
        self.spec: Final = spec
        self.id: Final = fiber_id
        self.slot: Final = slot
        self.serial: Final = shared.next_serial()
        self.parent: Final = parent
        self.scope: Final = scope
        self.config = config
        self.state = FiberState.PENDING
        self.error: Exception | None = None
        self.activation: Activation = self.activate()
        self.effect: Effect | None = None
        self.on_config: list[Callable[[object, object], Awaitable[str]]] = []
        self.epoch: Epoch | None = None
        self.provisions: tuple[Provision, ...] = ()
        self.generation = 0
        self.failure: Exception | None = None
        self.offer: tuple[object] | None = None
        self.loading: trio.CancelScope | None = None
        self.disposing = False
        self.busy = True
        self.woken = trio.Event()
        self.resting = trio.lowlevel.ParkingLot()

    @override
    def __repr__(self) -> str:
        return f"<Fiber {self.path} {self.state.value}>"

    @override
    def __str__(self) -> str:
        return self.path

    @property
    def leaving(self) -> bool:
        """True when its present life is to end: it is being disposed, restarted, or has failed."""
        return self.outdated()

    @property
    def path(self) -> str:
        """Its id below its parents': `agents/main`."""
        return self.activation.path

    def poke(self) -> None:
        """Something it depends on has changed: look again. Cancels an `apply` that is outdated."""
        if self.state is FiberState.DISPOSED:
            return
        self.busy = True
        self.woken.set()
        if self.loading is not None and self.outdated():
            self.loading.cancel()

    def missing(self) -> tuple[DepField, ...]:
        """The required services that nobody provides to it now."""
        services = self.shared.services
        return tuple(
            need
            for need in self.spec.needs
            if need.mode == "required" and services.find(need.key, self.activation) is None
        )

    async def ready(self) -> Fiber:
        """Wait until nothing is in flight; raise what made it fail; return the fiber.

        PENDING for want of a service is rest, not failure: look at `state`.
        """
        await self.settled()
        if self.error is not None:
            raise self.error
        return self

    async def settled(self) -> None:
        """Wait until nothing is in flight."""
        while self.busy:
            await self.resting.park()

    def restart(self) -> None:
        """Unload and load again; also what a FAILED fiber needs to be tried once more."""
        self.generation += 1
        self.poke()

    async def update(self, config: object) -> None:
        """Give it a new config: applied in place if all its `on_config` say so, else restarted."""
        if self.state is FiberState.ACTIVE:
            self.offer = (config,)
            self.poke()
        else:
            self.config = config
            self.restart()
        await self.settled()

    def request_dispose(self) -> None:
        """Unload for good, soon. Idempotent; the driver does it."""
        self.disposing = True
        self.poke()

    async def dispose(self) -> None:
        """Unload for good and wait for it. Idempotent; all callers wait for the same end.

        An `apply` that goes on after it was cancelled is waited for within the teardown timeout
        and then left behind; what it registers later is refused.

        From inside one of its own listeners, setups or disposers it only asks, and returns: to
        wait there would be to wait for oneself.
        """
        self.request_dispose()
        if self.is_running(self.activation):
            return
        while self.state is not FiberState.DISPOSED:
            if self.state is FiberState.UNLOADING:
                await self.resting.park()
                continue
            # Its driver stands in the plugin's own code, which was cancelled and may not listen.
            with trio.move_on_after(self.shared.limit(self.shared.teardown_timeout)) as scope:
                while not self._unwinds():
                    await self.resting.park()
            if scope.cancelled_caught:
                self.activation.note_teardown(
                    "its apply",
                    f"it was cancelled and does not end ({self.spec.place}); gone on without it",
                )
                return

    def _unwinds(self) -> bool:
        """Whether its driver is past the plugin's own code."""
        return self.state in (FiberState.UNLOADING, FiberState.DISPOSED)

    def fail(self, label: str, error: Exception) -> None:
        """Something it started has failed: log, unload, FAILED. Siblings do not notice.

        The root only logs: it stands as long as the kernel is open.
        """
        self.activation.log.warning(
            "plugin %r: %s failed: %s", self.path, label, in_a_line(error), exc_info=error
        )
        if self.parent is not None:
            self.failure = error
            self.poke()

    def below(self, activation: Activation) -> Iterator[Activation]:
        """All that goes with `activation`: itself, its children, who uses services of theirs."""
        seen: set[Activation] = set()
        queue = [activation]
        while queue:
            each = queue.pop()
            if each in seen:
                continue
            seen.add(each)
            yield each
            queue += [f.activation for f in self.shared.fibers if f.parent is each]
            for provision in each.provisions.values():
                queue += [h.activation for h in provision.holders if isinstance(h, Fiber)]

    def target(self) -> Epoch | None:
        """The epoch to be loaded for; None: it ought not to be loaded."""
        if self.disposing or self.shared.closing:
            return None
        found: list[object] = [self.generation]
        for need in self.spec.needs:
            if need.mode != "late":
                provision = self.shared.services.find(need.key, self.activation)
                if provision is None and need.mode == "required":
                    return None
                if need.mode == "optional" and provision is not None and self._carries(provision):
                    provision = None  # To wait for it would be to restart for ever.
                found.append(provision)
        return tuple(found)

    def _carries(self, provision: Provision) -> bool:
        """True when the provider itself depends on a service of this fiber."""
        return any(each is provision.provider for each in self.below(self.activation))

    def outdated(self) -> bool:
        """True when what it was loaded for is no more, or something of it has failed."""
        return self.failure is not None or self.target() != self.epoch

    def activate(self) -> Activation:
        """A new life, with nothing registered yet."""
        parent = self.parent
        return Activation(
            path=self.id if parent is None or parent.parent is None else f"{parent.path}/{self.id}",
            plugin=self.spec.plugin,
            slot=self.slot,
            serial=self.serial,
            nursery=self.shared.nursery,
            limit=self.shared.limit,
            patience=self.shared.teardown_timeout,
            parent=parent,
            scope=self.scope,
            declared=self.spec.declared,
            failed=self.fail,
        )

    def move(self, state: FiberState) -> None:
        """Go along the table; any other move is a defect."""
        if state not in MOVES[self.state]:
            raise InvariantError(
                f"fiber {self.path!r} cannot move from {self.state.value} to {state.value}"
            )
        self.state = state
        self.resting.unpark_all()

    def is_running(self, activation: Activation) -> bool:
        """True when the calling code stands on something that `activation`'s end waits for."""
        things = tuple(held())
        if not things:
            return False
        below = set(self.below(activation))
        scopes = {each.scope for each in below} - {None}
        return any(
            (isinstance(thing, Entry) and (thing.owner in below or thing.scope in scopes))
            or (isinstance(thing, Effect) and thing.owner in below)
            or (isinstance(thing, Fiber) and thing.activation in below)
            for thing in things
        )
