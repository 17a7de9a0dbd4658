"""Lints of names that were used once, and of whose names they are.

What comes in: one catalog and those beside it. What goes out: faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .faults import Faults, Place
    from .model import Catalog

__all__ = ["foreign_domain", "reserved_reused", "upcast_twice"]


def _reserving(
    catalog: Catalog,
) -> Iterator[tuple[str, Place, tuple[str, ...], tuple[tuple[str, Place], ...]]]:
    """Everything that reserves names: what it is, where, which, and the names it has."""
    beside = tuple(record for section in catalog.sections for record in section.records)
    for record in (*catalog.records, *catalog.variants, *beside):
        fields = tuple((field.name, field.place) for field in record.fields)
        yield f"record {record.name}", record.place, record.reserved, fields
    for event in catalog.events:
        fields = tuple((field.name, field.place) for field in event.fields)
        yield f"event {event.name}", event.place, event.reserved, fields
    for section in catalog.sections:
        fields = tuple((field.name, field.place) for field in section.fields)
        yield f"section {section.section}", section.place, section.reserved, fields
    for union in catalog.unions:
        tags = tuple((variant.tag, variant.place) for variant in union.variants)
        yield f"union {union.name}", union.place, union.reserved, tags
    for enum in catalog.enums:
        values = tuple((value, enum.place) for value in enum.values)
        yield f"enum {enum.name}", enum.place, enum.reserved, values


def reserved_reused(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """A name that old data has with another meaning is never used again."""
    for what, _, reserved, names in _reserving(catalog):
        for name, place in names:
            if name in reserved:
                faults.add(
                    place,
                    "reserved-reused",
                    f"{what} has {name!r}, which is reserved: old data has it",
                    "choose another name",
                )
    retired = {each.name: each.place for each in catalog.retired}
    for event in catalog.events:
        if event.name in retired:
            faults.add(
                event.place,
                "reserved-reused",
                f"{event.name} is retired at {retired[event.name].text}: old logs have it",
                "choose another name",
            )


def foreign_domain(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """Domains of other distributions have a dot, and no others do: so they can never clash."""
    for domain in catalog.domains:
        if catalog.foreign == ("." in domain.name) or not (domain.events or domain.retired):
            continue
        place = (domain.events[0] if domain.events else domain.retired[0]).place
        remedy = (
            f"write one with a dot, as in {catalog.owner.partition('-')[0]}.{domain.name}"
            if catalog.foreign
            else "a domain with a dot is a stranger's; write one without"
        )
        faults.add(
            place, "foreign-domain", f"{catalog.owner} has the domain {domain.name!r}", remedy
        )


def upcast_twice(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """A step that starts from a version stands once, and renames what it does not drop."""
    for event in catalog.events:
        for upcast in event.upcasts:
            touched = [old for old, _ in upcast.rename] + list(upcast.drop)
            made = [new for _, new in upcast.rename] + [name for name, _ in upcast.defaults]
            for name in sorted({n for n in touched if touched.count(n) > 1}):
                faults.add(
                    upcast.place,
                    "upcast-twice",
                    f"upcast {event.name}@{upcast.version} renames and drops {name!r}",
                    "keep one",
                )
            for name in sorted({n for n in made if made.count(n) > 1}):
                faults.add(
                    upcast.place,
                    "upcast-twice",
                    f"upcast {event.name}@{upcast.version} makes {name!r} twice",
                    "keep one",
                )
