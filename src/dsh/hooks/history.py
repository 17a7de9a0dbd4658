"""A history that grows at its end, and what it was at each moment: shared, never copied.

What comes in: items, one after the other. What goes out: immutable sequences of all that came so
far, each made in constant time. They share the items, so holding a thousand of them costs no more
than holding the longest. It knows nothing of what the items are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, cast, final, overload

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["History", "Line"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: A slice of places. As text, because `slice` takes no parameters before Python 3.12.
Slice: TypeAlias = "slice[int | None, int | None, int | None]"


@final
class Line(Generic[T]):
    """Where a history grows. Whoever has it may add; what it hands out, nobody can change."""

    __slots__ = ("__weakref__", "_items")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: Final[list[T]] = [*items]

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T) -> None:
        """Put one more item at the end."""
        self._items.append(item)

    def so_far(self) -> History[T]:
        """All that was added until now, in constant time. It never grows."""
        return History(self, self._items)


@final
class History(Sequence[T_co]):
    """The items of a line at one moment. Made by `Line.so_far`; immutable, and without a hash.

    It equals another history, or a tuple, of the same items. A slice is a tuple, and costs the
    items that are in it.
    """

    __slots__ = ("_items", "_length", "line")

    def __init__(self, line: object, items: list[T_co]) -> None:
        self._items: Final = items
        self._length: Final = len(items)
        #: Where it grew. Of two histories of one line, the longer begins with the shorter: caches
        #: go by it. It can be referred to weakly, and goes when nobody adds or looks any more.
        self.line: Final = line

    @override
    def __len__(self) -> int:
        return self._length

    @override
    def __iter__(self) -> Iterator[T_co]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T_co: ...

    @overload
    def __getitem__(self, index: Slice) -> tuple[T_co, ...]: ...

    @override
    def __getitem__(self, index: int | Slice) -> T_co | tuple[T_co, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return tuple(self._items[start:stop])
            return tuple(self._items[place] for place in range(start, stop, step))
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"no item {index} in a history of {self._length}")
        return self._items[place]

    @override
    def __eq__(self, other: object) -> bool:
        if isinstance(other, History):
            one = cast("History[object]", other)
            return len(one) == self._length and (one.line is self.line or one[:] == self[:])
        if isinstance(other, tuple):
            return self[:] == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @override
    def __repr__(self) -> str:
        return f"History({self[:]!r})"
