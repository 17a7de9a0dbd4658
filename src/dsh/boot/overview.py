"""The overview: what is mounted, from where, in which state, and who listens to what.

What comes in: a running house. What goes out: its rows with their listeners in the order of
registration, the chain of one event, and the listeners that can never run, each with the reason.
It looks only; running it changes nothing.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from attrs import evolve

from dsh.boot.discovery import GROUP
from dsh.boot.names import ROOMS
from dsh.boot.nearest import did_you_mean
from dsh.boot.news import why_not_active
from dsh.errors import UsageError
from dsh.hooks import frozen
from dsh.kernel import FiberState, ListenerRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh.boot.harness import Harness

__all__ = ["RowView", "chain_of", "listeners_of", "rows_of"]

#: Which row dispatches the core's events, by domain. Other domains are named after their plugin.
DISPATCHERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("agent", "agent-loop", "assistant", "request", "step", "system", "tool", "turn", "user"),
        "agent-loop",
    ),
    "llm": "llm",
    "session": "sessions",
    "system-prompt": "system-prompt",
    "tools": "tools",
}


@frozen(kw_only=True, slots=True)
class RowView:
    """One mounted row. `problem`: why it is not active; None when it is."""

    id: str
    plugin: str
    distribution: str
    slot: float
    state: str
    place: str
    problem: str | None
    listeners: tuple[ListenerRow, ...]


def rows_of(harness: Harness) -> tuple[RowView, ...]:
    """Every mounted row, in mount order."""
    listeners = listeners_of(harness)
    sources = _distributions()
    views: list[RowView] = []
    for one in sorted(harness.rows.values(), key=lambda one: one.row.slot):
        fiber = one.fiber
        name = one.row.row.name
        given = "dsh" if name in ROOMS else "given by the program"
        views.append(
            RowView(
                id=one.row.row.id,
                plugin=name,
                distribution=sources.get(name, given),
                slot=one.row.slot,
                state=fiber.state.value,
                place=str(one.row.row.place),
                problem=why_not_active(fiber) if fiber.state is not FiberState.ACTIVE else None,
                listeners=tuple(row for row in listeners if row.slot == one.row.slot),
            )
        )
    return tuple(views)


def listeners_of(harness: Harness) -> tuple[ListenerRow, ...]:
    """Every listener, by event and in the order of its chain; `never` knows what is mounted."""
    active = {
        one.row.row.name for one in harness.rows.values() if one.fiber.state is FiberState.ACTIVE
    }
    return tuple(_judged(row, active) for row in harness.kernel.listeners())


def chain_of(harness: Harness, event: str) -> Sequence[ListenerRow]:
    """Who hears `event`, in order. Raises UsageError for an event that nobody declared."""
    from dsh.catalog.registry import TOKENS  # noqa: PLC0415 - only this needs all names

    chain = [row for row in listeners_of(harness) if row.event == event]
    if not chain and event not in TOKENS:
        hint = did_you_mean(event, TOKENS)
        raise UsageError(f"no event named {event!r}{hint} All of them: dsh catalog list")
    return chain


def _judged(row: ListenerRow, active: set[str]) -> ListenerRow:
    if row.never is not None:
        return row
    domain = row.event.partition("/")[0]
    owner = row.owner.partition("@")[0]
    dispatcher = DISPATCHERS.get(domain, domain) if owner == "core" else owner
    if dispatcher in active:
        return row
    return evolve(row, never=f"{row.event} is told by {dispatcher!r}, which is not active")


def _distributions() -> Mapping[str, str]:
    return {
        entry.name: f"{entry.dist.name} {entry.dist.version}"
        for entry in entry_points(group=GROUP)
        if entry.dist is not None
    }
