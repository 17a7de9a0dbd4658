"""The lock: a catalog without its prose, as it was last reviewed.

What comes in: resolved catalogs, or the text of a catalog.lock.json. What goes out: the same in the
other form. Only what old logs, plugins and configuration can feel stands in it: no documentation.
It is laid out for review: one field a line, everything by name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, Required, TypedDict, cast

from .model import (
    EnumDef,
    EnumType,
    IdDef,
    IdType,
    ListType,
    LiveType,
    MapType,
    RefType,
    Scalar,
    UnionDef,
    UnionType,
)
from .names import pascal
from .render.reach import configured_names, reached, types_of_event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Catalog, Event, Field, Json, Record, Retired, Type

__all__ = [
    "EventEntry",
    "FieldEntry",
    "Fields",
    "Lock",
    "LockError",
    "RetiredEntry",
    "SectionEntry",
    "TypeEntry",
    "laid_out",
    "lock_of",
    "lock_text",
    "read_lock",
    "spelt",
    "types_in",
]

LOCK_FORMAT: Final = 1
WIDTH: Final = 100


class FieldEntry(TypedDict, total=False):
    """One field; without optional and default it is required."""

    type: Required[str]
    unit: str
    optional: Literal[True]
    default: Json
    live: Literal[True]
    limit: Literal[True]
    min: float | int
    max: float | int
    above: float | int
    nonempty: Literal[True]


Fields = dict[str, FieldEntry]


class TypeEntry(TypedDict, total=False):
    """An id, an enum, a record (or variant, which has its tag) or a union."""

    id: Literal[True]
    enum: list[str]
    record: Fields
    tag: str
    bare: Literal[True]
    union: dict[str, str]
    reserved: list[str]


class EventEntry(TypedDict, total=False):
    """One event."""

    kind: Required[str]
    version: int
    emit: str
    surface: Literal[True]
    ignorable: Literal[True]
    errors: str
    scope: str
    rerun: Literal[True]
    class_name: str
    payload: Required[Fields]
    answers: dict[str, Fields]
    none: Literal[True]
    returns: str
    chunk: str
    reserved: list[str]


class RetiredEntry(TypedDict, total=False):
    """An event that is written no more; `becomes` is `name@version` of its successor."""

    version: Required[int]
    becomes: str


class SectionEntry(TypedDict, total=False):
    """The configuration of one row."""

    class_name: Required[str]
    fields: Required[Fields]
    reserved: list[str]


class Lock(TypedDict):
    """Everything. `borrowed` are the core's types that an extension's reach.

    `accounted` are the entries of changes.yaml that led here, `sealed` the digests of files that
    are written once.
    """

    lock: int
    owner: str
    accounted: list[str]
    sealed: dict[str, str]
    public: list[str]
    events: dict[str, EventEntry]
    retired: dict[str, RetiredEntry]
    config: dict[str, SectionEntry]
    types: dict[str, TypeEntry]
    borrowed: dict[str, TypeEntry]


class LockError(Exception):
    """A file is no lock that this generator reads; the text says why and what to do."""


def spelt(kind: Type) -> str:
    """A type as the schema writes it."""
    match kind:
        case Scalar() | IdType() | RefType():
            return kind.name
        case EnumType():
            return kind.name or f"enum<{'|'.join(kind.values)}>"
        case ListType():
            return f"list<{spelt(kind.item)}>"
        case MapType():
            return f"map<{spelt(kind.item)}>"
        case LiveType():
            return f"live<{kind.name}>"
        case UnionType():
            return " | ".join(map(spelt, kind.members))


def _field(field: Field) -> FieldEntry:
    entry: FieldEntry = {"type": spelt(field.type) + (" | null" if field.nullable else "")}
    if field.unit:
        entry["unit"] = field.unit
    if field.optional:
        entry["optional"] = True
    if field.has_default:
        entry["default"] = field.default
    if field.live:
        entry["live"] = True
    if field.limit:
        entry["limit"] = True
    if field.min is not None:
        entry["min"] = field.min
    if field.max is not None:
        entry["max"] = field.max
    if field.above is not None:
        entry["above"] = field.above
    if field.nonempty:
        entry["nonempty"] = True
    return entry


def _fields(fields: Iterable[Field]) -> Fields:
    return {field.name: _field(field) for field in fields}


def _record(record: Record) -> TypeEntry:
    entry: TypeEntry = {"record": _fields(record.fields)}
    if record.tag_field:
        entry["tag"] = f"{record.tag_field}: {record.tag}"
    if record.bare:
        entry["bare"] = True
    if record.reserved:
        entry["reserved"] = sorted(record.reserved)
    return entry


def _type(each: IdDef | EnumDef | Record | UnionDef) -> TypeEntry:
    match each:
        case IdDef():
            return {"id": True}
        case EnumDef():
            entry: TypeEntry = {"enum": list(each.values)}
        case UnionDef():
            entry = {
                "tag": each.tag_field,
                "union": {variant.tag: variant.name for variant in each.variants},
            }
        case _:
            return _record(each)
    if each.reserved:
        entry["reserved"] = sorted(each.reserved)
    return entry


def _event(event: Event) -> EventEntry:
    entry: EventEntry = {"kind": event.kind, "payload": _fields(event.fields)}
    if event.kind == "durable":
        entry["version"] = event.version
    else:
        entry["errors"] = event.errors
        entry["scope"] = event.scope
    if event.emit:
        entry["emit"] = event.emit
    if event.surface:
        entry["surface"] = True
    if event.ignorable:
        entry["ignorable"] = True
    if event.rerun:
        entry["rerun"] = True
    if event.payload_class != pascal(event.rest):
        entry["class_name"] = event.payload_class
    if event.answers:
        entry["answers"] = {answer.name: _fields(answer.fields) for answer in event.answers}
    if event.none:
        entry["none"] = True
    if event.returns is not None:
        entry["returns"] = spelt(event.returns)
    if event.chunk is not None:
        entry["chunk"] = spelt(event.chunk)
    if event.reserved:
        entry["reserved"] = sorted(event.reserved)
    return entry


def _retired(retired: Retired) -> RetiredEntry:
    entry: RetiredEntry = {"version": retired.version}
    if retired.becomes:
        entry["becomes"] = f"{retired.becomes}@{retired.becomes_version}"
    return entry


def types_in(catalog: Catalog) -> dict[str, TypeEntry]:
    """The types a catalog declares, those beside its config sections too."""
    named = (*catalog.types, *catalog.variants)
    beside = tuple(record for section in catalog.sections for record in section.records)
    return {each.name: _type(each) for each in (*named, *beside)}


def lock_of(catalog: Catalog, core: Catalog | None = None) -> Lock:
    """The lock of a catalog; `core` is what it stands on, if it is not the core itself."""
    types = types_in(catalog)
    borrowed: dict[str, TypeEntry] = {}
    if core is not None:
        kinds = ("durable", "waterfall", "stream", "serial", "emit", "parallel")
        start = types_of_event(catalog, kinds) | configured_names((catalog,)) | set(types)
        below = types_in(core)
        names = reached((core, catalog), start)
        borrowed = {name: below[name] for name in sorted(names & below.keys())}
    lock: Lock = {
        "lock": LOCK_FORMAT,
        "owner": catalog.owner,
        "accounted": [],
        "sealed": {},
        "public": sorted(each.name for each in catalog.shapes if each.public),
        "events": {event.name: _event(event) for event in catalog.events},
        "retired": {each.name: _retired(each) for each in catalog.retired},
        "config": {},
        "types": {name: types[name] for name in sorted(types)},
        "borrowed": borrowed,
    }
    for section in sorted(catalog.sections, key=lambda each: each.section):
        entry: SectionEntry = {
            "class_name": section.class_name,
            "fields": _fields(section.fields),
        }
        if section.reserved:
            entry["reserved"] = sorted(section.reserved)
        lock["config"][section.section] = entry
    lock["events"] = {name: lock["events"][name] for name in sorted(lock["events"])}
    return lock


def read_lock(text: str, name: str) -> Lock:
    """The lock in a text; `name` is told in LockError, which says what else the file is."""
    try:
        data: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise LockError(
            f"{name}:{error.lineno}: not JSON: {error.msg}; take it back from git"
        ) from None
    if not isinstance(data, dict) or not {"lock", "events", "types"} <= data.keys():
        raise LockError(f"{name}: no lock of a catalog; name a catalog.lock.json")
    found = cast("dict[str, object]", data)
    if found["lock"] != LOCK_FORMAT:
        raise LockError(
            f"{name}: a lock of format {found['lock']}, this generator has {LOCK_FORMAT}; "
            "use the generator that wrote it"
        )
    found.pop("$comment", None)
    return cast("Lock", cast("object", found))


def _event_order(item: tuple[str, object]) -> bool:
    """What an event is stands before what it carries."""
    return isinstance(item[1], dict | list)


def lock_text(lock: Lock, header: str) -> str:
    """The lock as a file: what fits stands on one line, the rest one entry a line."""
    events = {
        name: dict(sorted(event.items(), key=_event_order))
        for name, event in lock["events"].items()
    }
    body = {key: value for key, value in lock.items() if value not in ({}, [])}
    full = cast("dict[str, object]", {"$comment": header, **body, "events": events})
    for key in ("accounted", "public"):
        full.setdefault(key, [])
    for key in ("sealed", "events", "retired", "config", "types", "borrowed"):
        full.setdefault(key, {})
    text = laid_out(full, "")
    return text.replace('{\n  "$comment"', '{ "$comment"', 1) + "\n"


def laid_out(value: object, indent: str, room: int = WIDTH) -> str:
    """JSON for people: what fits stands on one line, the rest one entry a line."""
    flat = json.dumps(value, ensure_ascii=False)
    deep = isinstance(value, dict) and any(
        isinstance(below, dict) for below in cast("dict[str, object]", value).values()
    )
    if not isinstance(value, dict | list) or not value:
        return flat
    if indent and not deep and len(flat) <= room - len(indent):
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        lines = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: "
            + laid_out(below, inner, WIDTH - len(key) - 5)
            for key, below in entries.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    items = [inner + laid_out(item, inner) for item in cast("list[object]", value)]
    return "[\n" + ",\n".join(items) + f"\n{indent}]"
