"""Which records are reached from where: stored, configuration, payloads, answers.

What comes in: a resolved Catalog. What goes out: sets of record names by role. The lints and the
codec decide by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import EnumType, IdType, ListType, MapType, RefType, UnionType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..model import Catalog, Field, Record, Type

__all__ = ["configured_names", "named_in", "reached", "stored_names", "types_of_event"]


def named_in(kind: Type | None) -> set[str]:
    """The names of records, unions, enums and ids that a type mentions."""
    match kind:
        case RefType() | IdType() | EnumType():
            return {kind.name} - {""}
        case ListType() | MapType():
            return named_in(kind.item)
        case UnionType():
            return {name for member in kind.members for name in named_in(member)}
        case _:
            return set()


def _of_fields(fields: Iterable[Field]) -> set[str]:
    return {name for field in fields for name in named_in(field.type)}


def types_of_event(catalog: Catalog, kinds: tuple[str, ...]) -> set[str]:
    """The names that events of some kinds mention in payloads and answers."""
    found: set[str] = set()
    for event in catalog.events:
        if event.kind in kinds:
            found |= _of_fields(event.fields) | named_in(event.returns) | named_in(event.chunk)
            for answer in event.answers:
                found |= _of_fields(answer.fields)
    return found


def reached(catalogs: Iterable[Catalog], start: set[str]) -> set[str]:
    """All names reached from `start` through fields and variants."""
    records: dict[str, Record] = {}
    unions: dict[str, set[str]] = {}
    for catalog in catalogs:
        records |= {record.name: record for record in (*catalog.records, *catalog.variants)}
        records |= {r.name: r for section in catalog.sections for r in section.records}
        unions |= {union.name: {v.name for v in union.variants} for union in catalog.unions}
    found: set[str] = set()
    waiting = set(start)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting |= unions.get(name, set())
        if name in records:
            waiting |= _of_fields(records[name].fields)
    return found


def stored_names(catalogs: tuple[Catalog, ...]) -> set[str]:
    """All names that stored data reaches: from durable events and from public records."""
    start: set[str] = set()
    for catalog in catalogs:
        start |= types_of_event(catalog, ("durable",))
        start |= {each.name for each in catalog.shapes if each.public}
    return reached(catalogs, start)


def configured_names(catalogs: tuple[Catalog, ...]) -> set[str]:
    """All names that configuration reaches: their fields must know the spelling of files."""
    start: set[str] = set()
    for catalog in catalogs:
        for section in catalog.sections:
            start |= _of_fields(section.fields) | {record.name for record in section.records}
    return reached(catalogs, start)
