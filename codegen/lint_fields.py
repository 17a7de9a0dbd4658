"""Lints of fields: units, absence, and what may be stored or configured.

What comes in: one catalog and those beside it. What goes out: faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .fields import all_fields, is_numeric
from .model import ListType, LiveType, MapType, Scalar, UnionType
from .render.reach import configured_names, stored_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .faults import Faults
    from .model import Catalog, Field, Type

__all__ = [
    "absence",
    "config_only",
    "default_bounds",
    "limit_number",
    "live_in_stored",
    "logged_elsewhere",
    "map_in_stored",
    "missing_unit",
]


def missing_unit(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """Every number says what it counts or measures; nothing else does."""
    for where, fields in all_fields(catalog):
        for field in fields:
            if is_numeric(field.type) and not field.unit:
                faults.add(
                    field.place,
                    "missing-unit",
                    f"{where}.{field.name} is a number without a unit",
                    "add unit:, as in ms, tokens, index, or none for a bare ratio",
                )
            elif field.unit and not is_numeric(field.type) and field.type != Scalar("unknown"):
                faults.add(
                    field.place,
                    "missing-unit",
                    f"{where}.{field.name} has the unit {field.unit!r} and is no number",
                    "remove unit:",
                )


def absence(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """A field is absent in one way only."""
    for where, fields in all_fields(catalog):
        for field in fields:
            name = f"{where}.{field.name}"
            if field.optional and field.has_default:
                faults.add(
                    field.place, "absence", f"{name} is optional and has a default", "keep one"
                )
            if field.has_default and field.default is None and field.nullable:
                faults.add(
                    field.place, "absence", f"{name} has the default null", "write optional: true"
                )
            if field.optional and field.nullable:
                faults.add(
                    field.place,
                    "absence",
                    f"{name} is optional and may be null",
                    "drop one of the two",
                )
            if field.type == Scalar("flag") and (
                field.optional or field.has_default or field.nullable
            ):
                faults.add(
                    field.place,
                    "absence",
                    f"{name} is a flag",
                    "a flag is true or absent; say no more",
                )
            if field.type == Scalar("json") and field.nullable:
                faults.add(
                    field.place, "absence", f"{name} is json | null", "write json, which has null"
                )


def _parts(kind: Type) -> Iterator[Type]:
    """A type and the types inside it."""
    yield kind
    match kind:
        case ListType() | MapType():
            yield from _parts(kind.item)
        case UnionType():
            for member in kind.members:
                yield from _parts(member)
        case _:
            pass


def _stored(
    catalog: Catalog, others: tuple[Catalog, ...], *, config: bool
) -> Iterator[tuple[str, Field]]:
    """Fields that are stored in a log or, with `config`, read from a composition."""
    names = stored_names((catalog, *others))
    if config:
        names |= configured_names((catalog, *others))
        for section in catalog.sections:
            for field in section.fields:
                yield section.section, field
    records = (*catalog.records, *catalog.variants)
    if config:
        records += tuple(record for section in catalog.sections for record in section.records)
    for record in records:
        if record.name in names:
            for field in record.fields:
                yield record.name, field
    for event in catalog.events:
        if event.kind == "durable":
            for field in event.fields:
                yield event.name, field


def live_in_stored(catalog: Catalog, others: tuple[Catalog, ...], faults: Faults) -> None:
    """What is stored or configured holds no live object."""
    for where, field in _stored(catalog, others, config=True):
        for part in _parts(field.type):
            if isinstance(part, LiveType):
                faults.add(
                    field.place,
                    "live-in-stored",
                    f"{where}.{field.name} holds live<{part.name}>, and is stored",
                    "store what identifies it instead",
                )


def map_in_stored(catalog: Catalog, others: tuple[Catalog, ...], faults: Faults) -> None:
    """What is stored holds no map; keys that vary belong into an object."""
    for where, field in _stored(catalog, others, config=False):
        if any(isinstance(part, MapType) for part in _parts(field.type)):
            faults.add(
                field.place,
                "map-in-stored",
                f"{where}.{field.name} is a map, and is stored",
                "write list<…> of a record with a name, or object",
            )


def logged_elsewhere(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """Only the feed of committed events carries one."""
    for where, fields in all_fields(catalog):
        for field in fields:
            if where != "session/event" and Scalar("logged") in _parts(field.type):
                faults.add(
                    field.place,
                    "logged-elsewhere",
                    f"{where}.{field.name} is a committed event",
                    "only session/event carries one; name its seq instead",
                )


def config_only(catalog: Catalog, others: tuple[Catalog, ...], faults: Faults) -> None:
    """Bounds and `live` are for configuration; what is stored has none, and stays readable."""
    configured = configured_names((catalog, *others))
    stored = stored_names((catalog, *others))
    sections = {section.section for section in catalog.sections}
    for where, fields in all_fields(catalog):
        allowed = where in sections or (where in configured and where not in stored)
        for field in fields:
            bounds = (field.min, field.max, field.above)
            if (any(bound is not None for bound in bounds) or field.nonempty) and not allowed:
                faults.add(
                    field.place,
                    "config-only",
                    f"{where}.{field.name} has bounds, and is no configuration",
                    "remove min:, max:, above:, nonempty:; whoever makes it checks it",
                )
            if field.live and where not in sections:
                faults.add(
                    field.place,
                    "config-only",
                    f"{where}.{field.name} is live, and stands in no section",
                    "mark the section's field",
                )


def limit_number(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """A limit is a number that stands in a section itself."""
    sections = {section.section for section in catalog.sections}
    for where, fields in all_fields(catalog):
        for field in fields:
            number = field.type in (Scalar("int"), Scalar("number"))
            if field.limit and not (number and where in sections):
                faults.add(
                    field.place,
                    "limit-number",
                    f"{where}.{field.name} is a limit, and no number of a section",
                    "remove limit:; a project file that was found by itself may not set it",
                )


def default_bounds(catalog: Catalog, _others: tuple[Catalog, ...], faults: Faults) -> None:
    """A default lies within its own bounds."""
    for where, fields in all_fields(catalog):
        for field in fields:
            value = field.default
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            below = field.min is not None and value < field.min
            not_above = field.above is not None and value <= field.above
            beyond = field.max is not None and value > field.max
            if below or not_above or beyond:
                faults.add(
                    field.place,
                    "default-bounds",
                    f"the default of {where}.{field.name} is {value}, which its bounds refuse",
                    "change the one or the other",
                )
