"""The registry of listeners: who hears what, in which order, within which scope.

What comes in: entries as plugins register and lose them. What goes out: for an event and a scope,
the tuple of entries to call, computed once and kept until a registration changes. A running
dispatch keeps its own tuple; a removed entry in it is marked inactive and never started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, final

import trio

from dsh.errors import BadListener
from dsh.hooks import Durable, Hook, frozen

if TYPE_CHECKING:
    from dsh.hooks import Scope
    from dsh.kernel.places import AsyncCall, Call

__all__ = ["Chains", "Entry", "ListenerRow", "Registry"]

F = TypeVar("F")
Chain = tuple["Entry", ...]


class Registrant(Protocol):
    """Who registers: an activation."""

    @property
    def plugin(self) -> str:
        """The plugin's name."""
        ...

    @property
    def slot(self) -> float:
        """The row's position in the composition."""
        ...

    @property
    def serial(self) -> int:
        """The order of mounting, for plugins in one slot."""
        ...


@final
class Entry:
    """One registered listener."""

    __slots__ = (
        "active",
        "ask",
        "event",
        "fn",
        "idle",
        "key",
        "owner",
        "place",
        "plugin",
        "prepend",
        "running",
        "runs",
        "scope",
        "slot",
    )

    def __init__(
        self,
        event: Hook[object],
        fn: Call,
        *,
        owner: Registrant,
        seq: int,
        scope: Scope | None,
        prepend: bool,
        place: str,
    ) -> None:
        self.event: Final = event
        self.fn: Final = fn
        #: The same function; used where the event is awaited, which registration has checked.
        self.ask: Final = cast("AsyncCall", fn)
        self.owner: Final = owner
        self.plugin: Final = owner.plugin
        self.slot: Final = owner.slot
        self.scope: Final = scope
        self.prepend: Final = prepend
        self.place: Final = place
        # Prepended first, the latest outermost; then by mount slot; never by time of loading.
        at = (owner.slot, owner.serial, seq)
        self.key: Final = (0, -at[0], -at[1], -at[2]) if prepend else (1, *at)
        self.active = True
        self.running = 0
        self.runs = 0
        self.idle: trio.Event | None = None

    def went_idle(self) -> None:
        """A call has returned; wake an unload that waits for the last one."""
        if self.idle is not None and not self.running:
            self.idle.set()

    async def wait_idle(self) -> None:
        """Return when no call is running."""
        while self.running:
            if self.idle is None or self.idle.is_set():
                self.idle = trio.Event()
            await self.idle.wait()


@final
class Chains:
    """The chains of one event: one for all scopes while no entry is scoped, else one per scope."""

    __slots__ = ("_by_scope", "_entries", "heard", "plain", "scoped")

    def __init__(self, entries: Chain) -> None:
        self._entries = entries
        self.heard: Final = bool(entries)
        self._by_scope: dict[Scope, Chain] = {}
        self.scoped: Final = any(entry.scope is not None for entry in entries)
        self.plain: Final = tuple(entry for entry in entries if entry.scope is None)

    def of(self, scope: Scope | None) -> Chain:
        """Who hears an event of `scope`: unscoped entries, and those of it and its ancestors."""
        if scope is None:
            return self.plain
        chain = self._by_scope.get(scope)
        if chain is None:
            lineage = set(scope.lineage())
            chain = tuple(e for e in self._entries if e.scope is None or e.scope in lineage)
            self._by_scope[scope] = chain
        return chain

    def forget(self, scope: Scope) -> None:
        """The scope is closed; nothing of it is kept."""
        self._by_scope.pop(scope, None)


@frozen(slots=True, kw_only=True)
class ListenerRow:
    """One line of `kernel.listeners()`, in the order of the chain. `runs` counts started calls.

    `owner` is who dispatches the event, as the schema says: "core" or a plugin. `never` says why
    the listener can never run, as far as its registration alone tells.
    """

    event: str
    kind: str
    plugin: str
    slot: float
    scope: str | None
    place: str
    prepend: bool
    runs: int
    owner: str = "core"
    never: str | None = None


@final
class Registry:
    """All listeners of one kernel."""

    __slots__ = ("_entries", "_seq", "_tokens", "chains", "feed")

    def __init__(self, feed: str) -> None:
        self._entries: dict[str, list[Entry]] = {}
        self._tokens: dict[str, object] = {}
        self.feed: Final = feed
        self._seq = 0
        #: By event name; read by the dispatchers, filled by `build`.
        self.chains: dict[str, Chains] = {}

    def next_seq(self) -> int:
        """The order of registration."""
        self._seq += 1
        return self._seq

    def add(self, entry: Entry) -> None:
        """Register. It takes effect at the next dispatch, never in one that runs."""
        event = entry.event
        known = self._tokens.setdefault(event.name, event)
        if known is not event:
            raise BadListener(
                f"plugin {entry.plugin!r} listens to a token {event.name!r} that is not the "
                f"catalog's ({entry.place}); import the token, never make one"
            )
        self._entries.setdefault(event.name, []).append(entry)
        self._invalidate(event)

    def remove(self, entry: Entry) -> None:
        """Unregister, and never start it again, not even in a dispatch that runs."""
        entry.active = False
        entries = self._entries.get(entry.event.name)
        if entries is None or entry not in entries:
            return
        entries.remove(entry)
        if not entries:
            del self._entries[entry.event.name]
            del self._tokens[entry.event.name]
        self._invalidate(entry.event)

    def build(self, event: Hook[F]) -> Chains:
        """Compute and keep the chains of an event. A log event is also heard by the whole feed."""
        entries = list(self._entries.get(event.name, ()))
        if isinstance(event, Durable):
            entries += self._entries.get(self.feed, ())
        entries.sort(key=lambda entry: entry.key)
        chains = Chains(tuple(entries))
        self.chains[event.name] = chains
        return chains

    def forget(self, scope: Scope) -> None:
        """The scope is closed; no chain is kept for it."""
        for chains in self.chains.values():
            chains.forget(scope)

    def entries(self) -> tuple[Entry, ...]:
        """Every listener, in no particular order."""
        return tuple(entry for entries in self._entries.values() for entry in entries)

    def rows(self) -> list[ListenerRow]:
        """Every listener, by event name and then in the order of its chain."""
        rows: list[ListenerRow] = []
        for name in sorted(self._entries):
            entries = sorted(self._entries[name], key=lambda entry: entry.key)
            rows += [_row(name, entry) for entry in entries]
        return rows

    def _invalidate(self, event: Hook[object]) -> None:
        if event.name == self.feed:
            self.chains.clear()
        else:
            self.chains.pop(event.name, None)


def _row(name: str, entry: Entry) -> ListenerRow:
    return ListenerRow(
        event=name,
        kind=type(entry.event).__name__.lower(),
        plugin=entry.plugin,
        slot=entry.slot,
        scope=None if entry.scope is None else entry.scope.label,
        place=entry.place,
        prepend=entry.prepend,
        runs=entry.runs,
        owner=entry.event.owner,
        never=_never(entry),
    )


def _never(entry: Entry) -> str | None:
    event = entry.event
    if entry.scope is not None and event.scope_of is None and not _is_durable(event):
        return (
            f"{event.name} belongs to no agent, so a listener of {entry.scope!r} alone never hears "
            "it; register it with the plugin's own context"
        )
    return None


def _is_durable(token: object) -> bool:
    """A log event: its scope is its session's."""
    return isinstance(token, Durable)
