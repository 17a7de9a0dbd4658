"""The six states of a fiber and every legal move between them. Nothing else moves a fiber.

What comes in: nothing. What goes out: the table. Loading and unloading are moments of the driver;
the other four are where a fiber rests.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MOVES", "FiberState"]


class FiberState(Enum):
    """Where a fiber is."""

    PENDING = "pending"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    UNLOADING = "unloading"
    DISPOSED = "disposed"


#: Every legal move. A move outside the table is a defect of the kernel.
MOVES: Final[Mapping[FiberState, frozenset[FiberState]]] = {
    # its services are there | it was disposed of before it ever ran
    FiberState.PENDING: frozenset({FiberState.LOADING, FiberState.DISPOSED}),
    # apply returned | it raised, or what it was loaded for has changed meanwhile
    FiberState.LOADING: frozenset({FiberState.ACTIVE, FiberState.UNLOADING}),
    # a service left or changed, a task failed, a restart, a disposal
    FiberState.ACTIVE: frozenset({FiberState.UNLOADING}),
    # everything is undone
    FiberState.UNLOADING: frozenset({FiberState.PENDING, FiberState.FAILED}),
    # its services changed or somebody asked for a restart | they are gone | disposal
    FiberState.FAILED: frozenset({FiberState.LOADING, FiberState.PENDING, FiberState.DISPOSED}),
    FiberState.DISPOSED: frozenset(),
}
