"""A cache that is keyed by which object it is, and that keeps no object alive.

What comes in: immutable records (messages) and what was made of each. What goes out: the same
result for the same object, as long as the object lives. Equality is never asked: comparing two
long messages costs more than encoding one.
"""

from __future__ import annotations

from typing import Generic, TypeVar, final
from weakref import ref

__all__ = ["WeakIdentityMap"]

K = TypeVar("K")
V = TypeVar("V")


@final
class WeakIdentityMap(Generic[K, V]):
    """From an object's identity to a value; the entry goes when the object does.

    A value must not refer to its key, or neither ever goes.
    """

    __slots__ = ("__weakref__", "_entries")

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[K], V]] = {}

    def get(self, key: K) -> V | None:
        """The value of exactly this object, or None."""
        entry = self._entries.get(id(key))
        # The id of a dead object may be given to a new one before the callback has run.
        return entry[1] if entry is not None and entry[0]() is key else None

    def put(self, key: K, value: V) -> None:
        """Remember `value` for exactly this object. It must accept weak references."""
        number = id(key)
        entries = self._entries

        def forget(gone: ref[K]) -> None:
            found = entries.get(number)
            if found is not None and found[0] is gone:
                del entries[number]

        entries[number] = (ref(key, forget), value)

    def __len__(self) -> int:
        return len(self._entries)
