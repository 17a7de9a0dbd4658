"""Renders docs/events.md: every event, for people.

What comes in: the core's catalog and those of plugins. What goes out: one Markdown file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ..model import EnumType, IdType, ListType, LiveType, MapType, RefType, Scalar, UnionType
from .spelling import literal
from .templating import header, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Catalog, ConfigSection, Domain, Event, Field, PluginInfo, Record, Type

__all__ = ["events_document"]


@frozen
class FieldView:
    """A row of a table of fields."""

    wire: str
    type: str
    absent: str
    doc: str


@frozen
class ClassView:
    """An answer, record or variant with its fields."""

    name: str
    doc: str
    fields: tuple[FieldView, ...]


@frozen
class EventView:
    """One event as the document shows it."""

    name: str
    anchor: str
    kind: str
    python: str
    purpose: str
    facts: tuple[tuple[str, str], ...]
    fields: tuple[FieldView, ...]
    answers: tuple[ClassView, ...]


@frozen
class DomainView:
    """One domain as the document shows it."""

    title: str
    name: str
    doc: str
    events: tuple[EventView, ...]


@frozen
class UnionView:
    """A union as the document shows it."""

    name: str
    doc: str
    tag: str
    variants: tuple[ClassView, ...]


def type_text(kind: Type) -> str:
    """A type in the words of the schema."""
    match kind:
        case Scalar() | IdType() | RefType():
            return kind.name
        case EnumType():
            return kind.name or " or ".join(f"`{value}`" for value in kind.values)
        case ListType():
            return f"list of {type_text(kind.item)}"
        case MapType():
            return f"map of {type_text(kind.item)}"
        case LiveType():
            return f"live {kind.name}"
        case UnionType():
            return " or ".join(map(type_text, kind.members))


def field_view(field: Field, *, python: bool) -> FieldView:
    """One field; `python` names it as code does, else as the wire does."""
    if field.optional or field.type == Scalar("flag"):
        absent = "may be absent"
    elif field.has_default:
        absent = f"default {'null' if field.default is None else f'`{literal(field.default)}`'}"
    else:
        absent = ""
    text = type_text(field.type) + (" or null" if field.nullable else "")
    unit = f" [{field.unit}]" if field.unit else ""
    bounds = "".join(
        f" {sign} {bound}"
        for sign, bound in (("≥", field.min), (">", field.above), ("≤", field.max))
        if bound is not None
    )
    marks = "".join(
        f" *({mark})*" for mark, set_ in (("live", field.live), ("limit", field.limit)) if set_
    )
    name = field.name if python else field.wire
    return FieldView(name, f"{text}{unit}{bounds}", absent, f"{field.doc}{marks}")


def class_view(name: str, doc: str, fields: Sequence[Field], *, python: bool = False) -> ClassView:
    """A class with its fields."""
    return ClassView(name, doc, tuple(field_view(field, python=python) for field in fields))


def facts(event: Event) -> tuple[tuple[str, str], ...]:
    """What the declaration says beside the payload."""
    found = [("since", event.since), ("emitted by", event.emitter.replace("plugin/", "plugin "))]
    if event.kind == "durable":
        found.append(
            ("in the log as", "a message for the model" if event.surface else "a record only")
        )
        found.append(("appended by", "dsh itself" if event.emit == "core" else "any plugin"))
        if event.version > 1:
            found.append(("version", str(event.version)))
        if event.ignorable:
            found.append(("ignorable", "a reader without this catalog goes on"))
    else:
        found.append(("scope", "everyone" if event.scope == "global" else f"`{event.scope}`"))
        found.append(("a listener that raises", _ERRORS[event.errors]))
    if event.default:
        found.append(("when nobody answers", event.default))
    if event.none:
        found.append(("None means", event.none))
    if event.returns is not None:
        found.append(("answer", type_text(event.returns)))
    if event.chunk is not None:
        found.append(("chunk", type_text(event.chunk)))
    if event.rerun:
        found.append(("call_next", "may be awaited again, after it returned"))
    if event.listeners:
        found.append(("used by", ", ".join(event.listeners)))
    if event.near:
        found.append(("not to be confused with", ", ".join(f"`{name}`" for name in event.near)))
    if event.note:
        found.append(("note", event.note))
    return tuple(found)


_ERRORS = {
    "propagate": "fails whoever asked",
    "contain": "is logged; the others still run",
    "veto": "takes back what was announced",
}


def event_view(domain: Domain, event: Event) -> EventView:
    """One event."""
    python = event.kind != "durable"
    return EventView(
        name=event.name,
        anchor=event.name.replace("/", "").lower(),
        kind=event.kind,
        python=f"ev.{domain.module}.{event.token}, ev.{domain.module}.{event.payload_class}"
        if domain.owner == "core"
        else f"{domain.module}.{event.token}, {domain.module}.{event.payload_class}",
        purpose=event.purpose,
        facts=facts(event),
        fields=tuple(field_view(field, python=python) for field in event.fields),
        answers=tuple(class_view(a.name, a.doc, a.fields, python=True) for a in event.answers),
    )


def domain_views(catalog: Catalog) -> list[DomainView]:
    """All domains of a catalog."""
    return [
        DomainView(d.title, d.name, d.doc, tuple(event_view(d, event) for event in d.events))
        for d in catalog.domains
    ]


def section_view(section: ConfigSection) -> ClassView:
    """One config section."""
    return class_view(section.section, section.doc, section.fields)


def record_view(record: Record) -> ClassView:
    """A record, or a variant under its tag."""
    return class_view(record.name, record.doc, record.fields)


def events_document(core: Catalog, extensions: Sequence[tuple[PluginInfo, Catalog]]) -> str:
    """The whole document."""
    catalogs = [core, *(catalog for _, catalog in extensions)]
    sections = [s for catalog in catalogs for s in catalog.sections]
    records = [r for catalog in catalogs for r in catalog.records]
    records += [r for section in sections for r in section.records]
    return render(
        "events.md.j2",
        header=header("schema/ and plugins/*/schema/", "python -m codegen"),
        domains=[view for catalog in catalogs for view in domain_views(catalog)],
        count=sum(len(catalog.events) for catalog in catalogs),
        ids=[each for catalog in catalogs for each in catalog.ids],
        enums=[each for catalog in catalogs for each in catalog.enums],
        records=[record_view(record) for record in records],
        retired=[
            (each.name, each.since, each.doc, each.becomes)
            for catalog in catalogs
            for each in catalog.retired
        ],
        unions=[
            UnionView(
                u.name,
                u.doc,
                u.tag_field,
                tuple(class_view(f"{v.tag}` → `{v.name}", v.doc, v.fields) for v in u.variants),
            )
            for catalog in catalogs
            for u in catalog.unions
        ],
        sections=[section_view(section) for section in sections],
    )
