"""The spill seam: a place for results that are too large for a model's context.

What comes in: a session, a name, a text. What goes out: where it was put. A provider writes each
text whole, under a name that nobody can guess, readable by this user alone; it deletes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from dsh.kernel import ServiceKey

__all__ = ["SPILL", "SpillStore"]


class SpillStore(ABC):
    """Keeps large texts."""

    @abstractmethod
    async def keep(self, session_id: str, name: str, text: str) -> str:
        """Store `text`; returns its absolute path. `name` only helps people to recognise it.

        Raises OSError. Not cancellable once the writing has begun.
        """


SPILL: Final[ServiceKey[SpillStore]] = ServiceKey("spill")
