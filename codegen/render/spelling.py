"""Spells model objects as Python: annotations, defaults, fields and classes.

What comes in: resolved types and fields. What goes out: lines of code, complete but for their
place in a module. Decisions are taken here, so that templates only lay out.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from attrs import frozen

from ..model import (
    EnumType,
    IdType,
    ListType,
    LiveType,
    MapType,
    RefType,
    Scalar,
    Type,
    UnionType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..model import Answer, Derived, Field, Json, Record

__all__ = [
    "ClassView",
    "Speller",
    "docstring",
    "imports",
    "literal",
    "one_line",
    "wrapped_names",
]

_SCALARS: Final = {
    "string": "str",
    "int": "int",
    "number": "float",
    "bool": "bool",
    "flag": "bool",
    "json": "JsonValue",
    "object": "JsonObject",
    "logged": "Logged[AnyDurable]",
}
WIDTH: Final = 96


@frozen
class ClassView:
    """A class, ready to be laid out: its lines have no indentation."""

    name: str
    bases: str
    doc: tuple[str, ...]
    lines: tuple[str, ...]


def one_line(text: str) -> str:
    """Text without line breaks and repeated blanks."""
    return " ".join(text.split())


def docstring(text: str, details: Iterable[str] = (), width: int = WIDTH) -> tuple[str, ...]:
    """The lines of a docstring, quotes included, without indentation."""
    head = textwrap.wrap(one_line(text), width - 4, break_long_words=False) or [""]
    below: list[str] = []
    for detail in details:
        below += textwrap.wrap(
            one_line(detail), width - 8, break_long_words=False, subsequent_indent="    "
        )
    if not below and len(head) == 1:
        return (f'"""{_escaped(head[0])}"""',)
    lines = [f'"""{_escaped(head[0])}', *map(_escaped, head[1:])]
    if below:
        lines += ["", "Attributes:", *("    " + _escaped(line) for line in below)]
    return (*lines, '"""')


def _escaped(line: str) -> str:
    escaped = line.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return escaped[:-1] + '\\"' if escaped.endswith('"') else escaped


def literal(value: Json) -> str:
    """A default as Python code."""
    match value:
        case None | bool():
            return repr(value)
        case str():
            return quoted(value)
        case int() | float():
            return repr(value)
        case list():
            inner = ", ".join(map(literal, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case dict():
            return "{}"


def quoted(text: str) -> str:
    """A string literal with double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def wrapped_names(names: Sequence[str], head: str, close: str) -> list[str]:
    """`head` and names on one line if they fit, else one name a line."""
    line = f"{head}{', '.join(names)}{close}"
    if len(line) <= WIDTH + 4:
        return [line]
    return [head, *(f"    {name}," for name in names), close]


def imports(code: str, candidates: Mapping[str, Sequence[str]]) -> list[str]:
    """Import lines for those candidate names that `code` uses; module → names."""
    code = "\n".join(line for line in code.split("\n") if not line.startswith("#"))
    code = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', code)
    lines: list[str] = []
    for module, names in candidates.items():
        used = [
            name for name in names if re.search(rf"(?<![\w.]){name.rpartition(' as ')[2]}\b", code)
        ]
        if not used:
            continue
        used.sort(key=lambda name: (not name.isupper(), not name[:1].isupper(), name))
        line = f"from {module} import {', '.join(used)}"
        if len(line) > WIDTH + 4:
            lines += [f"from {module} import (", *(f"    {name}," for name in used), ")"]
        else:
            lines.append(line)
    return lines


@frozen
class Speller:
    """Spells types for one module. `prefix` says how the names of other modules are reached."""

    prefix: Mapping[str, str]
    config: bool = False

    def name(self, module: str, name: str) -> str:
        """A name as this module reaches it."""
        return f"{self.prefix[module]}{name}"

    def type(self, kind: Type) -> str:
        """The annotation of a type."""
        match kind:
            case Scalar():
                return _SCALARS[kind.name]
            case EnumType():
                if kind.name:
                    return self.name(kind.module, kind.name)
                return f"Literal[{', '.join(map(quoted, kind.values))}]"
            case IdType() | RefType():
                return self.name(kind.module, kind.name)
            case ListType():
                return f"tuple[{self.type(kind.item)}, ...]"
            case MapType():
                return f"Mapping[str, {self.type(kind.item)}]"
            case LiveType():
                return f"live.{kind.name}"
            case UnionType():
                return " | ".join(map(self.type, kind.members))

    def annotation(self, field: Field) -> str:
        """The annotation of a field."""
        text = self.type(field.type)
        return f"{text} | None" if field.nullable or field.optional else text

    def default(self, field: Field) -> str | None:
        """The default of a field as code; None when it is required."""
        if field.has_default:
            return literal(field.default)
        if field.optional:
            return "None"
        return "False" if field.type == Scalar("flag") else None

    def empty_map(self, field: Field) -> str:
        """The option that makes a new empty map."""
        item = field.type.item if isinstance(field.type, MapType) else Scalar("json")
        return f"factory=dict[str, {self.type(item)}]"

    def converter(self, field: Field) -> str | None:
        """What freezes a JSON value at construction."""
        if field.type == Scalar("json"):
            return "frozen_json"
        if field.type == ListType(Scalar("json")):
            return "frozen_array"
        if field.type == Scalar("object"):
            nullable = field.optional or field.nullable
            return "converters.optional(frozen_object)" if nullable else "frozen_object"
        return None

    def validator(self, field: Field) -> str | None:
        """Bounds as attrs validators."""
        checks: list[str] = []
        if field.min is not None:
            checks.append(f"validators.ge({field.min})")
        if field.above is not None:
            checks.append(f"validators.gt({field.above})")
        if field.max is not None:
            checks.append(f"validators.le({field.max})")
        if field.nonempty:
            checks.append("validators.min_len(1)")
        if not checks:
            return None
        text = checks[0] if len(checks) == 1 else f"validators.and_({', '.join(checks)})"
        return f"validators.optional({text})" if field.optional or field.nullable else text

    def field(self, field: Field) -> list[str]:
        """The lines that declare a field."""
        head = f"{field.name}: {self.annotation(field)}"
        default = self.default(field)
        options: list[str] = []
        if default is not None:
            options.append(self.empty_map(field) if default == "{}" else f"default={default}")
        if (converter := self.converter(field)) is not None:
            options.append(f"converter={converter}")
        if (validator := self.validator(field)) is not None:
            options.append(f"validator={validator}")
        if self.config:
            options += self.metadata(field)
        elif len(options) == 1 and options[0].startswith("default="):
            return [f"{head} = {default}"]
        if not options:
            return [head]
        line = f"{head} = field({', '.join(options)})"
        if len(line) <= WIDTH and not self.config:
            return [line]
        closed = [f"    {option}{'' if option.endswith(('{', ',')) else ','}" for option in options]
        return [f"{head} = field(", *closed, ")"]

    def metadata(self, field: Field) -> list[str]:
        """What readers of the composition need to know of a config field."""
        entries = [f'"wire": {quoted(field.wire)}', f'"live": {field.live}']
        entries += ['"limit": True'] if field.limit else []
        entries += [f'"unit": {quoted(field.unit)}'] if field.unit else []
        entries.append(f'"doc": {quoted(one_line(field.doc))}')
        return ["metadata={", *(f"    {entry}," for entry in entries), "}"]

    def details(self, fields: Sequence[Field]) -> list[str]:
        """One docstring line for each field."""
        found: list[str] = []
        for field in fields:
            unit = f" [{field.unit}]" if field.unit else ""
            found.append(f"{field.name}: {field.doc}{unit}")
        return found

    def record(self, record: Record, bases: str = "") -> ClassView:
        """A record or variant."""
        lines: list[str] = []
        if record.tag_field:
            tag = quoted(record.tag)
            lines += [f"{record.tag_field}: ClassVar[Literal[{tag}]] = {tag}", ""]
        for field in record.fields:
            lines += self.field(field)
        for derived in record.derived:
            lines += ["", *self.derived(derived)]
        while lines and not lines[-1]:
            lines.pop()
        return ClassView(
            record.name, bases, docstring(record.doc, self.details(record.fields)), tuple(lines)
        )

    def derived(self, derived: Derived) -> list[str]:
        """A read-only property that adds up other fields."""
        terms = [
            f"(self.{field.name} or 0)" if field.optional else f"self.{field.name}"
            for field in derived.summands
        ]
        total = " + ".join(terms)
        lines = ["@property", f"def {derived.name}(self) -> int:"]
        lines += [f"    {line}" for line in docstring(derived.doc)]
        if derived.unless:
            lines += [
                f"    if self.{derived.unless} is not None:",
                f"        return self.{derived.unless}",
            ]
        line = f"    return {total}"
        if len(line) <= WIDTH:
            return [*lines, line]
        parts = [f"        {'+ ' if index else ''}{term}" for index, term in enumerate(terms)]
        return [*lines, "    return (", *parts, "    )"]

    def answer(self, answer: Answer, event: str) -> ClassView:
        """A class a listener may answer with."""
        lines: list[str] = []
        for field in answer.fields:
            lines += self.field(field)
        doc = docstring(f"Answer to `{event}`: {answer.doc}", self.details(answer.fields))
        return ClassView(answer.name, "", doc, tuple(lines))
