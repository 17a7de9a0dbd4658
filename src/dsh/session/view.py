"""A snapshot of the events of a growing log, made in constant time.

What comes in: the list behind an append-only log. What goes out: a sequence of those events that
exist now; later appends do not show in it. It can be read, never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar, final, overload

from typing_extensions import override

__all__ = ["Snapshot"]

T = TypeVar("T")

#: A slice of places. As text, because `slice` takes no parameters before Python 3.12.
Slice: TypeAlias = "slice[int | None, int | None, int | None]"


@final
class Snapshot(Sequence[T]):
    """The first `len(items)` entries of a list that only ever grows."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T]) -> None:
        self._items: Final = items
        self._length: Final = len(items)

    @override
    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: Slice) -> tuple[T, ...]: ...

    @override
    def __getitem__(self, index: int | Slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self._items[place] for place in range(*index.indices(self._length)))
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"no event {index} in a log of {self._length}")
        return self._items[place]

    @override
    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)
