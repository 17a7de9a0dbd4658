"""Finds the place in the schema of what a change names, and which names stand reserved there.

What comes in: a resolved catalog and texts like `record Usage.total`. What goes out: places in YAML
files; what is gone has the place of what it was in, or of the lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .faults import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Catalog, Field

__all__ = ["Places"]


class Places:
    """The places of one catalog."""

    def __init__(self, catalog: Catalog, folder: str) -> None:
        self._unknown = Place(f"{folder}/catalog.lock.json", 1, 1)
        self._places: dict[str, Place] = {}
        self._reserved: dict[str, tuple[str, ...]] = {}
        for record in (*catalog.records, *catalog.variants):
            self._enter(f"record {record.name}", record.place, record.reserved, record.fields)
        for union in catalog.unions:
            where = f"union {union.name}"
            self._enter(where, union.place, union.reserved)
            self._places |= {f"{where}.{each.tag}": each.place for each in union.variants}
        for enum in catalog.enums:
            self._enter(f"enum {enum.name}", enum.place, enum.reserved)
        for event in catalog.events:
            where = f"event {event.name}"
            self._enter(where, event.place, event.reserved, event.fields)
            for answer in event.answers:
                self._enter(f"{where}: {answer.name}", answer.place, (), answer.fields)
        for retired in catalog.retired:
            self._enter(f"event {retired.name}", retired.place, ())
        for section in catalog.sections:
            where = f"config {section.section}"
            self._enter(where, section.place, section.reserved, section.fields)
            for record in section.records:
                self._enter(f"record {record.name}", record.place, record.reserved, record.fields)

    def _enter(
        self, where: str, place: Place, reserved: tuple[str, ...], fields: Iterable[Field] = ()
    ) -> None:
        self._places[where] = place
        self._reserved[where] = reserved
        for field in fields:
            self._places[f"{where}.{field.name}"] = field.place

    def of(self, where: str) -> Place:
        """The place of a change."""
        while where:
            if where in self._places:
                return self._places[where]
            cut = max(where.rfind("."), where.rfind(": "))
            where = where[:cut] if cut > 0 else ""
        return self._unknown

    def reserved(self, kind: str, owner: str) -> tuple[str, ...]:
        """The names that `kind owner` keeps reserved."""
        return self._reserved.get(f"{kind} {owner}", ())
