"""Projections: named values folded from a log, current when `append` returns.

What comes in: units (a key, a first state, a pure fold) and events in seq order. What goes out: the
newest state of each unit. Folding happens on a candidate: a fold that raises changes nothing, and
the event is not committed. A fold never appends, awaits or reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from attrs import field

from dsh.errors import HarnessError, InvariantError, PluginError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dsh.wire import StoredEvent

__all__ = ["Fold", "Projection", "ProjectionSet"]

S = TypeVar("S")


class Named(Protocol):
    """A token of any durable event."""

    @property
    def name(self) -> str: ...


@frozen(kw_only=True, slots=True, eq=False)
class Projection(Generic[S]):
    """One unit: `init()` gives the state before seq 0, `apply` the state after an event.

    `apply` is pure and returns the same object when the event does not concern it. `events` lists
    the tokens it wants to see, so that the others cost nothing; None means all.
    """

    key: str
    init: Callable[[], S]
    apply: Callable[[S, StoredEvent], S]
    events: Sequence[Named] | None = field(default=None)


@frozen(slots=True, eq=False)
class Registered:
    """One registration. States belong to it, so that a unit that comes back is folded anew."""

    unit: Projection[object]


class ProjectionSet:
    """The units that every session of one store folds. A key registered twice is counted."""

    __slots__ = ("_by_type", "_counts", "_for_all", "_units")

    def __init__(self) -> None:
        self._units: dict[str, Registered] = {}
        self._counts: dict[str, int] = {}
        self._for_all: tuple[Registered, ...] = ()
        self._by_type: dict[str, tuple[Registered, ...]] = {}

    def add(self, unit: Projection[S]) -> Callable[[], None]:
        """Register a unit; call what comes back, once, to take it out again.

        Raises PluginError when another unit has this key.
        """
        wide = cast("Projection[object]", unit)
        present = self._units.get(unit.key)
        if present is None:
            self._units[unit.key] = Registered(wide)
        elif present.unit is not wide:
            raise PluginError(
                f"a projection with the key {unit.key!r} and another definition is registered "
                "already; choose another key"
            )
        self._counts[unit.key] = self._counts.get(unit.key, 0) + 1
        self._index()

        def take_out() -> None:
            self._counts[unit.key] -= 1
            if not self._counts[unit.key]:
                del self._counts[unit.key], self._units[unit.key]
                self._index()

        return take_out

    def find(self, unit: Projection[S]) -> Registered | None:
        """The registration of this very unit."""
        present = self._units.get(unit.key)
        return present if present is not None and present.unit is unit else None

    def concerned(self, event_type: str) -> tuple[Registered, ...]:
        """The units that want to see events of this type."""
        return self._by_type.get(event_type, self._for_all)

    def _index(self) -> None:
        units = tuple(self._units.values())
        self._for_all = tuple(one for one in units if one.unit.events is None)
        names = {token.name for one in units for token in one.unit.events or ()}
        self._by_type = {
            name: tuple(
                one
                for one in units
                if one.unit.events is None or any(token.name == name for token in one.unit.events)
            )
            for name in names
        }


class Fold:
    """The states of one session. A unit is folded over the log when it is first needed."""

    __slots__ = ("_events", "_states", "_units")

    def __init__(self, units: ProjectionSet, events: Callable[[], Iterable[StoredEvent]]) -> None:
        self._units: Final = units
        self._events: Final = events
        self._states: dict[Registered, object] = {}

    def state(self, unit: Projection[S]) -> S:
        """The state of `unit` after the newest committed event."""
        registered = self._units.find(unit)
        if registered is None:
            raise PluginError(
                f"the projection {unit.key!r} is not registered; "
                "call `sessions.project(ctx, unit)` in `apply` first"
            )
        return cast("S", self._current(registered))

    def candidate(self, event: StoredEvent) -> Sequence[tuple[Registered, object]]:
        """The states after `event`, not yet taken over. Raises if a unit refuses the event."""
        return [
            (one, _applied(one.unit, self._current(one), event))
            for one in self._units.concerned(event.type)
        ]

    def commit(self, states: Sequence[tuple[Registered, object]]) -> None:
        """Take over what `candidate` returned."""
        self._states.update(states)

    def _current(self, registered: Registered) -> object:
        if registered in self._states:
            return self._states[registered]
        unit = registered.unit
        state = unit.init()
        wanted = None if unit.events is None else {token.name for token in unit.events}
        for event in self._events():
            if wanted is None or event.type in wanted:
                state = _applied(unit, state, event)
        self._states[registered] = state
        return state


def _applied(unit: Projection[object], state: object, event: StoredEvent) -> object:
    try:
        return unit.apply(state, event)
    except HarnessError:
        raise
    except Exception as error:
        raise InvariantError(
            f"the projection {unit.key!r} failed on {event.type} (seq {event.seq}): "
            f"{type(error).__name__}: {error}; nothing was appended"
        ) from error
