"""Which model requests a loop built from its session's log, by identity.

What comes in: the exact request object that a loop is about to dispatch. What goes out: whether an
object is one of those. Companions that check a request against its log check only these; nothing
else can be marked by looking alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from dsh.hooks import live

__all__ = ["is_loop_request", "mark_loop_request"]

_MARKED: Final[WeakSet[live.LlmRequest]] = WeakSet()


def mark_loop_request(request: live.LlmRequest) -> None:
    """Say that a loop built exactly this object from a log."""
    _MARKED.add(request)


def is_loop_request(request: live.LlmRequest) -> bool:
    """Whether a loop built exactly this object."""
    return request in _MARKED
