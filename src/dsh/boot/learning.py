"""Reading logs that hold events of plugins which are installed and not mounted.

What comes in: a store and a session's id. What goes out: the log as it is stored, decoded with the
catalogs of all installed plugins that declared something in it. Only those plugins are imported,
and none is mounted; what stays unknown afterwards is not installed.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from dsh.boot.discovery import GROUP
from dsh.wire import UnknownEvent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint

    from dsh.seams.persistence import SessionPersistence
    from dsh.wire import StoredEvent, StoredLog

__all__ = ["learned", "read_known"]


async def read_known(store: SessionPersistence, session_id: str) -> StoredLog:
    """`store.read`, after learning what installed plugins declare of its events.

    Raises what `read` raises; cancellable.
    """
    log = await store.read(session_id)
    return await store.read(session_id) if learned(log.events) else log


def learned(events: Iterable[StoredEvent]) -> bool:
    """Import what installed plugins declare of these events. True: reading again shows more."""
    owners = _unknown_owners(events)
    return bool(owners) and _learned(owners)


def _unknown_owners(events: Iterable[StoredEvent]) -> frozenset[str]:
    return frozenset(
        event.owner.partition("@")[0]
        for event in events
        if isinstance(event.data, UnknownEvent) and event.owner is not None
    )


def _learned(owners: frozenset[str]) -> bool:
    """Import the plugins of these owners: a catalog makes itself known when it is imported."""
    found = False
    for entry in entry_points(group=GROUP):
        if entry.name in owners or _distribution(entry) in owners:
            try:
                import_module(entry.module)
            except Exception:  # noqa: BLE001 - its events stay unknown, which readers show
                continue
            found = True
    return found


def _distribution(entry: EntryPoint) -> str | None:
    return entry.dist.name if entry.dist is not None else None
