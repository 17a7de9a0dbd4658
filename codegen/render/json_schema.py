"""Renders JSON Schemas: of one line of a session log, and of a composition file.

What comes in: all resolved catalogs. What goes out: two JSON documents (draft 2020-12). Editors
complete and check `dsh.yml` with the second; other programs read logs with the first.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from ..model import EnumType, IdType, ListType, MapType, RefType, Scalar, UnionType
from ..values import INT_MAX
from .reach import configured_names, stored_names
from .templating import header

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model import Catalog, Event, Field, Json, PluginInfo, Record, Type, UnionDef

__all__ = ["composition_schema", "log_schema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
SOURCE: Final = "schema/ and plugins/*/schema/"
Node = dict[str, "Json"]
COUNT: Final[Node] = {"type": "integer", "minimum": 0, "maximum": INT_MAX}


def _ref(name: str) -> Node:
    return {"$ref": f"#/$defs/{name}"}


def _scalar(kind: Scalar) -> Node:
    scalars: dict[str, Node] = {
        "string": {"type": "string"},
        "int": {"type": "integer", "minimum": -INT_MAX, "maximum": INT_MAX},
        "number": {"type": "number"},
        "bool": {"type": "boolean"},
        "flag": {"const": True},
        "json": {},
        "object": {"type": "object"},
    }
    return dict(scalars[kind.name])


def _type(kind: Type) -> Node:
    """The schema of a type."""
    match kind:
        case Scalar():
            return _scalar(kind)
        case IdType():
            return {"type": "string"}
        case EnumType():
            return {"enum": [*kind.values]}
        case ListType():
            return {"type": "array", "items": _type(kind.item)}
        case MapType():
            return {"type": "object", "additionalProperties": _type(kind.item)}
        case RefType():
            return _ref(kind.name)
        case UnionType():
            return {"anyOf": [_type(member) for member in kind.members]}
        case _:
            raise TypeError(kind)


def _field(field: Field) -> Node:
    """The schema of a field, with what an editor shows of it."""
    made: Node = _type(field.type)
    if field.type == Scalar("json") and field.optional:
        made = Node({"not": {"type": "null"}})
    for key, value in (
        ("minimum", field.min),
        ("exclusiveMinimum", field.above),
        ("maximum", field.max),
    ):
        if value is not None:
            made[key] = value
    if field.nonempty:
        made["minItems" if isinstance(field.type, ListType) else "minLength"] = 1
    if field.nullable:
        made = Node({"anyOf": [made, {"type": "null"}]})
    unit = f" [{field.unit}]" if field.unit else ""
    live = " An edit takes effect without a restart." if field.live else ""
    limit = " A project file that was found by itself may only lower it." if field.limit else ""
    made["description"] = f"{field.doc}{unit}{live}{limit}"
    if field.has_default:
        made["default"] = field.default
    return made


def _fields(fields: Iterable[Field], doc: str, tag: tuple[str, str] = ("", "")) -> Node:
    properties: Node = {tag[0]: {"const": tag[1]}} if tag[0] else {}
    required: list[Json] = [tag[0]] if tag[0] else []
    for field in fields:
        properties[field.wire] = _field(field)
        if field.required:
            required.append(field.wire)
    made: Node = {"description": doc, "type": "object", "properties": properties}
    if required:
        made["required"] = required
    made["additionalProperties"] = False
    return made


def _union(each: UnionDef) -> Node:
    return {"description": each.doc, "oneOf": [_ref(variant.name) for variant in each.variants]}


def _record(each: Record, *, config: bool) -> Node:
    if each.bare and not config:
        return {"description": each.doc, "const": each.tag}
    return _fields(each.fields, each.doc, (each.tag_field, each.tag))


def _definitions(catalogs: Sequence[Catalog], names: set[str], *, config: bool = False) -> Node:
    made: Node = {}
    for catalog in catalogs:
        beside = tuple(record for section in catalog.sections for record in section.records)
        for record in (*catalog.records, *catalog.variants, *beside):
            if record.name in names:
                made[record.name] = _record(record, config=config)
        for union in catalog.unions:
            if union.name in names:
                made[union.name] = _union(union)
    return made


def _text(title: str, doc: str, body: Node) -> str:
    comment = header(SOURCE, "python -m codegen")
    top: Node = {"$schema": DIALECT, "title": title, "description": doc, **body}
    text = json.dumps(top, ensure_ascii=False, indent=1)
    return f'{{ "$comment": {json.dumps(comment, ensure_ascii=False)},{text[1:]}\n'


def _event(event: Event, *, owned: bool) -> Node:
    """One event as a line: the envelope's keys, and data of its shape."""
    properties: Node = {
        "type": {"const": event.name},
        "v": {"const": event.version},
        "seq": COUNT,
        "time": {**COUNT, "description": "epoch ms"},
    }
    required: list[Json] = ["type", "seq", "time", "data"]
    if event.version > 1:
        required.insert(1, "v")
    if owned:
        properties["owner"] = {"type": "string", "pattern": "^[^@]+@.+$"}
        required.append("owner")
    if event.ignorable:
        properties["ignorable"] = {"const": True}
        required.append("ignorable")
    if event.surface:
        properties["surfaceOp"] = _ref("SurfaceOp")
        required.append("surfaceOp")
    run: Node = {"type": "array", "prefixItems": [COUNT, COUNT], "items": False, "minItems": 2}
    properties["sourceEventSeqs"] = {"type": "array", "items": run}
    properties["data"] = _fields(event.fields, event.purpose)
    return {
        "description": f"{event.name} ({event.since})",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def log_schema(catalogs: Sequence[Catalog]) -> str:
    """`log.schema.json`: one line of a log."""
    stored = stored_names(tuple(catalogs))
    definitions = _definitions(catalogs, stored)
    lines: list[Json] = []
    heads = [each for each in catalogs[0].records if each.name == "SessionHeader"]
    for head in heads:
        definitions["header"] = _fields(head.fields, head.doc, ("type", "session"))
        lines.append(_ref("header"))
    known: list[Json] = []
    for catalog in catalogs:
        for event in catalog.events:
            if event.kind == "durable":
                definitions[event.name.replace("/", ".")] = _event(
                    event, owned=catalog.owner != "core"
                )
                lines.append(_ref(event.name.replace("/", ".")))
                known.append(event.name)
                if event.version > 1:
                    lines.append(_older(event))
    known.append("session")
    lines.append(
        {
            "description": "An event of a catalog that this schema does not have.",
            "type": "object",
            "properties": {"type": {"type": "string", "not": {"enum": known}}, "seq": COUNT},
            "required": ["type", "seq", "time", "data"],
        }
    )
    lines.append(
        {
            "description": "Deltas that go on where the line above ends: seq, then ms and piece.",
            "type": "array",
            "prefixItems": [COUNT],
            "items": {"type": ["integer", "string"]},
            "minItems": 3,
        }
    )
    doc = "One line of a session log: the header, an event, or packed deltas."
    return _text("A session log of dsh", doc, {"oneOf": lines, "$defs": definitions})


def _older(event: Event) -> Node:
    return {
        "description": f"{event.name} of another version.",
        "type": "object",
        "properties": {"type": {"const": event.name}, "v": {"not": {"const": event.version}}},
        "required": ["type", "seq", "time", "data"],
    }


def composition_schema(catalogs: Sequence[Catalog], plugins: Sequence[PluginInfo]) -> str:
    """`composition.schema.json`: a composition file, with the configuration of every row.

    A plugin that is known by other names too is offered, and its configuration read, under each.
    """
    definitions = _definitions(catalogs, configured_names(tuple(catalogs)), config=True)
    others = {plugin.name: plugin.known_as for plugin in plugins}
    docs = {plugin.name: plugin.summary for plugin in plugins}
    rules: list[Json] = []
    for catalog in catalogs:
        for section in catalog.sections:
            docs[section.section] = section.doc
            key = f"row.{section.section}"
            definitions[key] = _fields(section.fields, section.doc)
            names = (section.section, *others.get(section.section, ()))
            rules.append(_configured(names, key))
    for name, known_as in others.items():
        docs |= dict.fromkeys(known_as, f"Another name of {name}.")
    choices: list[Json] = [{"const": name, "description": docs[name]} for name in sorted(docs)]
    row: Node = {
        "type": "object",
        "properties": {
            "name": {
                "description": "The plugin.",
                "type": "string",
                "anyOf": [*choices, {"pattern": "."}],
            },
            "id": {"description": "What the row is called; its name if absent.", "type": "string"},
            "config": {"description": "What the plugin is told.", "type": "object"},
            "disabled": {"description": "Whether the row is left out.", "type": "boolean"},
            "optional": {
                "description": "Whether a run goes on when the row cannot be active.",
                "type": "boolean",
            },
        },
        "anyOf": [{"required": ["name"]}, {"required": ["id"]}],
        "additionalProperties": False,
        "allOf": rules,
    }
    doc = "Which plugins are mounted, in which order, with which configuration."
    body: Node = {"type": "array", "items": row, "$defs": definitions}
    return _text("A composition of dsh", doc, body)


def _configured(names: Sequence[str], key: str) -> Node:
    """Rows of these names have this configuration."""
    words = "|".join(re.escape(name).replace(r"\-", "-") for name in names)
    pattern = f"^(@[^/]+/dsh-)?{words if len(names) == 1 else f'({words})'}$"
    ids: Node = {"const": names[0]} if len(names) == 1 else {"enum": [*names]}
    return {
        "if": {
            "anyOf": [
                {"properties": {"name": {"pattern": pattern}}, "required": ["name"]},
                {"properties": {"id": ids, "name": False}, "required": ["id"]},
            ]
        },
        "then": {"properties": {"config": _ref(key)}},
    }
