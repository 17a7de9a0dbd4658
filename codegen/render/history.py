"""Renders `history.py`: shapes of earlier versions, declared steps, the table of those to write.

What comes in: the steps of one catalog. What goes out: the text of the module. Shapes are spelt as
JSON has them, in the wire's names, so that a step written by hand is checked against both ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ..evolve_fields import parsed, symbols
from ..model import EnumType, IdType, ListType, MapType, RefType, Scalar
from ..names import camel, pascal
from .spelling import docstring, imports, literal, quoted
from .templating import header, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..history import Step
    from ..lock import FieldEntry, Fields, TypeEntry
    from ..model import Catalog, Json, Retired, Type, Upcast
    from ..past import OldShape

__all__ = ["hand_written", "history_module"]

_SCALARS = {
    "string": "str",
    "int": "int",
    "number": "float",
    "bool": "bool",
    "flag": "Literal[True]",
    "json": "object",
    "object": "dict[str, object]",
}


@frozen
class ShapeView:
    """A TypedDict, ready to be laid out."""

    name: str
    doc: tuple[str, ...]
    lines: tuple[str, ...]


@frozen
class StepView:
    """A declared step, ready to be laid out."""

    key: str
    function: str
    doc: str
    lines: tuple[str, ...]


@frozen
class TableView:
    """A step that is a function, ready to be laid out."""

    key: str
    source: str
    target: str


@frozen
class RetiredView:
    """A retired event, ready to be laid out."""

    name: str
    value: str


def shape_name(event: str, version: int, type_name: str = "") -> str:
    """`demo/done`, 1 → `DemoDoneV1`; with a type it reaches, `DemoDoneV1Usage`."""
    return f"{pascal(event)}V{version}{type_name}"


class _Shapes:
    """Spells the types of one old shape."""

    def __init__(self, shape: OldShape) -> None:
        self.shape = shape
        self.known = symbols(shape["types"])
        self.stem = shape_name(shape["event"], shape["version"])
        self.made: dict[str, ShapeView] = {}

    def views(self) -> list[ShapeView]:
        """The payload's shape last, after everything it names."""
        doc = f"Data of `{self.shape['event']}` as version {self.shape['version']} has it."
        self.made[""] = self.typed_dict(self.stem, doc, self.shape["payload"], {})
        return list(self.made.values())

    def typed_dict(self, name: str, doc: str, fields: Fields, tag: Mapping[str, str]) -> ShapeView:
        lines = [f"{key}: {value}" for key, value in tag.items()]
        lines += [f"{camel(key)}: {self.field(entry)}" for key, entry in fields.items()]
        return ShapeView(name, docstring(doc), tuple(lines))

    def field(self, entry: FieldEntry) -> str:
        kind, nullable = parsed(entry["type"], self.known)
        text = self.type(kind) + (" | None" if nullable else "")
        absent = "optional" in entry or "default" in entry or entry["type"] == "flag"
        return f"NotRequired[{text}]" if absent else text

    def type(self, kind: Type) -> str:
        match kind:
            case Scalar():
                return _SCALARS[kind.name]
            case IdType():
                return "str"
            case EnumType():
                return f"Literal[{', '.join(map(quoted, kind.values))}]"
            case ListType():
                return f"list[{self.type(kind.item)}]"
            case MapType():
                return f"dict[str, {self.type(kind.item)}]"
            case RefType():
                return self.named(kind.name)
            case _:
                return "object"

    def named(self, name: str) -> str:
        """A record's TypedDict, or those of a union's variants."""
        entry: TypeEntry = self.shape["types"][name]
        if "union" in entry:
            return " | ".join(self.named(variant) for variant in entry["union"].values())
        tag_field, _, tag = entry.get("tag", "").partition(": ")
        if "bare" in entry:
            return f"Literal[{quoted(tag)}]"
        made = self.stem + name
        if name not in self.made:
            # Entered first: records may reach themselves.
            self.made[name] = ShapeView(made, (), ())
            tags = {camel(tag_field): f"Literal[{quoted(tag)}]"} if tag_field else {}
            doc = f"`{name}` as `{self.shape['event']}` had it in version {self.shape['version']}."
            view = self.typed_dict(made, doc, entry.get("record", {}), tags)
            del self.made[name]
            self.made[name] = view
        return made


def _declared(step: Step, upcast: Upcast) -> StepView:
    """A step as the schema declares it, as code."""
    lines = ["new = dict(data)"]
    for old, new in upcast.rename:
        before, after = quoted(camel(old)), quoted(camel(new))
        entry = step.source["payload"].get(old, {"type": ""})
        absent = "optional" in entry or "default" in entry or entry["type"] == "flag"
        if absent:
            lines += [f"if {before} in new:", f"    new[{after}] = new.pop({before})"]
        else:
            lines.append(f"new[{after}] = new.pop({before})")
    lines += [f"new.pop({quoted(camel(name))}, None)" for name in upcast.drop]
    lines += [f"new[{quoted(camel(name))}] = {_json(value)}" for name, value in upcast.defaults]
    event, version = step.source["event"], step.source["version"]
    target = f"`{step.target['event']}` version {step.target['version']}"
    return StepView(
        step.key,
        f"lift_{pascal(event)}_{version}".lower(),
        f"`{event}` version {version} becomes {target}.",
        (*lines, "return new"),
    )


def _json(value: Json) -> str:
    """A JSON value as code that makes a new one each time."""
    match value:
        case list():
            return f"[{', '.join(map(_json, value))}]"
        case dict():
            return f"{{{', '.join(f'{quoted(key)}: {_json(value[key])}' for key in value)}}}"
        case _:
            return literal(value)


def hand_written(steps: Sequence[Step]) -> bool:
    """Whether there is a step that nobody declared."""
    return any(step.upcast is None for step in steps)


def _retired(each: Retired) -> RetiredView:
    successor = quoted(each.becomes) if each.becomes else "None"
    return RetiredView(each.name, f"({each.version}, {successor}, {each.becomes_version})")


def history_module(catalog: Catalog, steps: Sequence[Step]) -> str:
    """The text of `history.py`."""
    shapes: dict[str, ShapeView] = {}
    for step in steps:
        if step.upcast is None:
            for shape in (step.source, step.target):
                shapes |= {view.name: view for view in _Shapes(shape).views()}
    code = "\n".join(line for view in shapes.values() for line in view.lines)
    return render(
        "history.py.j2",
        header=header(catalog.home, catalog.command),
        owner="dsh" if catalog.owner == "core" else f"`{catalog.owner}`",
        place="dsh.wire.upcasters"
        if catalog.owner == "core"
        else f"{catalog.package.rpartition('.')[0]}.upcasters",
        typing=imports(
            code + "\nFinal\nTypedDict",
            {"typing": ("Final", "Literal", "NotRequired", "TypedDict")},
        ),
        shapes=list(shapes.values()),
        declared=[_declared(step, step.upcast) for step in steps if step.upcast is not None],
        table=[
            TableView(
                step.key,
                shape_name(step.source["event"], step.source["version"]),
                shape_name(step.target["event"], step.target["version"]),
            )
            for step in steps
            if step.upcast is None
        ],
        retired=[_retired(each) for each in catalog.retired],
    )
