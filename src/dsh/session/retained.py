"""The events of a live log in memory: the newest as they are, old ones that nobody follows packed.

What comes in: committed events, in order. What goes out: the same events by place, in constant
time, and snapshots that never grow. An event that was packed is another object each time it is
looked at; model-visible events, and those of extensions, are never packed, so a node of the surface
keeps its object for ever. Nothing here can be changed but by `append`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, final, overload

from typing_extensions import override

from dsh.wire import RowReader, StoredEvent, UnknownEvent, encode_rows

__all__ = ["Retained", "Snapshot"]

#: So many of the newest events are never packed: whoever follows the log looks at these.
NEWEST: Final = 256
#: So many are packed at once, before the collector has seen them often enough to keep them apart.
BATCH: Final = 256

#: A slice of places. As text, because `slice` takes no parameters before Python 3.12.
Slice: TypeAlias = "slice[int | None, int | None, int | None]"


@final
class _Packed:
    """Consecutive events, the first of which has the seq `first`, as lines of a log."""

    __slots__ = ("first", "lines")

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self.first: Final = events[0].seq
        self.lines: Final = encode_rows(events)

    def events(self) -> tuple[StoredEvent, ...]:
        reader = RowReader()
        lines = self.lines.split(b"\n")[:-1]
        return tuple(event for line in lines for event in reader.read(line))


@final
class Retained:
    """All events of one log. The place of an event is its seq."""

    __slots__ = ("_full", "_looked_at", "_places")

    def __init__(self) -> None:
        self._places: Final[list[StoredEvent | _Packed]] = []
        #: At this length the oldest unpacked batch is packed.
        self._full = NEWEST + BATCH
        #: The packed events that were looked at last: most looks go on where one ended.
        self._looked_at: tuple[_Packed, tuple[StoredEvent, ...]] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def append(self, event: StoredEvent) -> None:
        """Take the next event."""
        self._places.append(event)
        if len(self._places) == self._full:
            self._pack()

    def at(self, place: int) -> StoredEvent:
        """The event with this seq, which must be there."""
        found = self._places[place]
        if type(found) is not _Packed:
            return found
        return self._events(found)[place - found.first]

    def between(self, start: int, stop: int) -> Iterator[StoredEvent]:
        """The events from `start` to before `stop`, which must be there."""
        while start < stop:
            found = self._places[start]
            if type(found) is not _Packed:
                yield found
                start += 1
            else:
                events = self._events(found)[start - found.first : stop - found.first]
                yield from events
                start += len(events)

    def _events(self, packed: _Packed) -> tuple[StoredEvent, ...]:
        if self._looked_at is None or self._looked_at[0] is not packed:
            self._looked_at = (packed, packed.events())
        return self._looked_at[1]

    def _pack(self) -> None:
        """Pack the oldest batch, all but what must stay the object it is."""
        end = self._full - NEWEST
        run: list[StoredEvent] = []
        places: list[StoredEvent | _Packed] = []
        for event in self._places[end - BATCH : end]:
            if (
                type(event) is StoredEvent
                and event.surface_op is None
                and event.owner is None
                and type(event.data) is not UnknownEvent
            ):
                run.append(event)
                continue
            if run:
                places += [_Packed(run)] * len(run)
                run = []
            places.append(event)
        if run:
            places += [_Packed(run)] * len(run)
        self._places[end - BATCH : end] = places
        self._full += BATCH


@final
class Snapshot(Sequence[StoredEvent]):
    """The events of a log that exist now, made in constant time. It never grows."""

    __slots__ = ("_events", "_length")

    def __init__(self, events: Retained) -> None:
        self._events: Final = events
        self._length: Final = len(events)

    @override
    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> StoredEvent: ...

    @overload
    def __getitem__(self, index: Slice) -> tuple[StoredEvent, ...]: ...

    @override
    def __getitem__(self, index: int | Slice) -> StoredEvent | tuple[StoredEvent, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return tuple(self._events.between(start, stop))
            return tuple(self._events.at(place) for place in range(start, stop, step))
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"no event {index} in a log of {self._length}")
        return self._events.at(place)

    @override
    def __iter__(self) -> Iterator[StoredEvent]:
        return self._events.between(0, self._length)
