"""Services: typed values that one plugin provides and others use, found by key.

What comes in: a key, a value, the activation that provides it. What goes out: the value to those
who may see it, and a nudge to every fiber that waits for the key. A provider is never replaced
silently: a second one is refused, naming the holder. Nothing here starts or stops a fiber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast, final

import attrs
import trio
from typing_extensions import override

from dsh.errors import PluginError, ServiceConflict
from dsh.hooks import frozen
from dsh.kernel.places import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "AnyKey",
    "DepField",
    "Late",
    "Provider",
    "Provision",
    "ServiceKey",
    "ServiceTable",
    "Watcher",
    "dep_fields",
    "late",
    "optional",
    "required",
]

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class AnyKey:
    """A service key without its type, for lists of keys."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: Final = name

    @override
    def __repr__(self) -> str:
        return f"<ServiceKey {self.name}>"


@final
class ServiceKey(AnyKey, Generic[S]):
    """The name of a service and, for type checkers, the type of its value.

    Write `TOOLS: Final[ServiceKey[ToolRuntime]] = ServiceKey("tools")` beside the service's ABC.
    """

    __slots__ = ()


class Provider(Protocol):
    """Who provides: an activation of a fiber."""

    @property
    def path(self) -> str:
        """Its id below its parents'."""
        ...

    def encloses(self, other: Provider) -> bool:
        """True when `other` is this activation, or one below it."""
        ...


class Watcher(Protocol):
    """Who waits for a key: a fiber."""

    def poke(self) -> None:
        """Look again at what you need."""
        ...


@final
class Provision:
    """One act of providing. Its identity tells a dependent that its provider was exchanged."""

    __slots__ = ("holders", "key", "provider", "released", "value", "visible")

    def __init__(self, key: AnyKey, value: object, provider: Provider) -> None:
        self.key: Final = key
        self.value: Final = value
        self.provider: Final = provider
        self.visible = False
        self.holders: set[Watcher] = set()
        self.released = trio.lowlevel.ParkingLot()

    def release(self, holder: Watcher) -> None:
        """`holder` has unwound everything it built on this value."""
        self.holders.discard(holder)
        if not self.holders:
            self.released.unpark_all()

    async def wait_released(self) -> None:
        """Return when nobody holds the value any more."""
        while self.holders:
            await self.released.park()


@final
class ServiceTable:
    """All services of one kernel."""

    __slots__ = ("_slots", "_watchers")

    def __init__(self) -> None:
        self._slots: dict[str, Provision] = {}
        self._watchers: dict[str, dict[Watcher, None]] = {}

    def claim(self, provision: Provision) -> None:
        """Take the key's slot. Raises ServiceConflict naming who holds it."""
        holder = self._slots.get(provision.key.name)
        if holder is not None:
            raise ServiceConflict(
                f"plugin {provision.provider.path!r} provides service {provision.key.name!r}, "
                f"which plugin {holder.provider.path!r} already provides; disable one of the two"
            )
        self._slots[provision.key.name] = provision

    def show(self, provision: Provision) -> None:
        """Let everybody see it: its provider is active."""
        if not provision.visible and self._slots.get(provision.key.name) is provision:
            provision.visible = True
            self._nudge(provision.key.name)

    def withdraw(self, provision: Provision) -> None:
        """Free the slot and tell the dependents; they keep the value until they have unwound."""
        if self._slots.get(provision.key.name) is provision:
            del self._slots[provision.key.name]
        if provision.visible:
            provision.visible = False
            self._nudge(provision.key.name)

    def find(self, key: AnyKey, viewer: Provider) -> Provision | None:
        """What `viewer` sees under `key`: visible to all, or provided by it or one above it."""
        found = self._slots.get(key.name)
        if found is None or found.visible or found.provider.encloses(viewer):
            return found
        return None

    def watch(self, key: AnyKey, watcher: Watcher) -> None:
        """Poke `watcher` whenever the key's provider appears or goes."""
        self._watchers.setdefault(key.name, {})[watcher] = None

    def unwatch(self, key: AnyKey, watcher: Watcher) -> None:
        """End `watch`."""
        watchers = self._watchers.get(key.name, {})
        watchers.pop(watcher, None)
        if not watchers:
            self._watchers.pop(key.name, None)

    def names(self) -> tuple[str, ...]:
        """The names of everything provided now, sorted."""
        return tuple(sorted(self._slots))

    def watched(self) -> tuple[str, ...]:
        """The names of everything a fiber waits for, or would restart for, sorted."""
        return tuple(sorted(self._watchers))

    def hint(self, name: str) -> str:
        """How a message about a missing service ends."""
        provided = ", ".join(self.names()) or "none"
        return f"{did_you_mean(name, self._slots)} Provided: {provided}"

    def _nudge(self, name: str) -> None:
        for watcher in tuple(self._watchers.get(name, ())):
            watcher.poke()


@final
class Late(Generic[S_co]):
    """A live handle on a service that may come and go. Never gives a disposed provider's value."""

    __slots__ = ("_key", "_table", "_viewer")

    def __init__(self, table: ServiceTable, key: AnyKey, viewer: Provider) -> None:
        self._table = table
        self._key = key
        self._viewer = viewer

    @property
    def current(self) -> S_co | None:
        """The service as of now, or None while nobody provides it. Read it at each use."""
        found = self._table.find(self._key, self._viewer)
        return None if found is None else cast("S_co", found.value)


@frozen(slots=True)
class _Marker:
    """The default of a field of a deps class until the fiber is activated."""

    key: AnyKey
    mode: str


def required(key: ServiceKey[S]) -> S:
    """A field of a deps class: the plugin waits for this service and restarts when it changes."""
    return cast("S", _Marker(key, "required"))


def optional(key: ServiceKey[S]) -> S | None:
    """A field of a deps class: the service or None; its coming or going restarts the plugin.

    Where a restart costs too much, use `late`.
    """
    return cast("S | None", _Marker(key, "optional"))


def late(key: ServiceKey[S]) -> Late[S]:
    """A field of a deps class: a live handle, read with `.current`; never restarts the plugin."""
    return cast("Late[S]", _Marker(key, "late"))


@frozen(slots=True)
class DepField:
    """One field of a deps class, read once when the plugin is defined."""

    name: str
    key: AnyKey
    mode: str


def dep_fields(deps: type) -> Iterator[DepField]:
    """The fields of a deps class. Raises PluginError for one that is not a service."""
    if not attrs.has(deps):
        raise PluginError(
            f"deps class {deps.__qualname__} is not an attrs class; decorate it with @frozen"
        )
    for attribute in attrs.fields(deps):
        default: object = attribute.default
        if not isinstance(default, _Marker):
            raise PluginError(
                f"field {attribute.name!r} of deps class {deps.__qualname__} is not a service; "
                "give it `required(KEY)`, `optional(KEY)` or `late(KEY)` as its default"
            )
        yield DepField(attribute.alias or attribute.name, default.key, default.mode)
