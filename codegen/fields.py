"""Builds fields and records from their nodes.

What comes in: the mapping under `fields:`, `payload:`, `records:`, `unions:`. What goes out: model
objects with resolved types; faults are noted and the rest goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from .expressions import TypeFaultError, parse_type
from .faults import Place
from .model import Derived, Field, ListType, Record, Scalar, UnionDef
from .names import camel, field_pattern, is_python_name, pascal, word_pattern
from .read import Entries, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .faults import Faults
    from .model import Catalog, Json, Type
    from .read import Node
    from .values import Values

__all__ = ["FieldBuilder", "all_fields", "is_numeric", "variant_class"]

FIELD_KEYS: Final = (
    "type", "doc", "unit", "optional", "default", "live", "limit", "min", "max", "above",
    "nonempty",
)  # fmt: skip
RECORD_KEYS: Final = ("doc", "fields", "derived", "public", "reserved")
VARIANT_KEYS: Final = ("doc", "fields", "class", "bare", "reserved")
UNION_KEYS: Final = ("doc", "tag", "suffix", "variants", "public", "reserved")
#: The type of a field whose type could not be read; the lints leave it alone.
_UNKNOWN: Final = Scalar("unknown")


@frozen
class FieldBuilder:
    """Builds classes of fields; `known` are the types that names stand for."""

    faults: Faults
    values: Values
    known: Mapping[str, Type]

    def type_of(self, node: Node, what: str) -> tuple[Type, bool]:
        """The type written at `node`; `unknown`, with a fault noted, if it cannot be read."""
        text = self.values.text(node, f"the type of {what}")
        if text is None or not isinstance(node, Text):
            return _UNKNOWN, False
        try:
            return parse_type(text, self.known)
        except TypeFaultError as fault:
            quote = 0 if node.plain else 1
            place = Place(
                node.place.file, node.place.line, node.place.column + fault.offset + quote
            )
            self.faults.add(place, fault.rule, fault.what, fault.remedy)
            return _UNKNOWN, False

    def field(self, name: str, node: Node, where: str) -> Field | None:
        """One field."""
        what = f"field {where}.{name}"
        keys = self.values.keys(node, what, FIELD_KEYS, ("type", "doc"))
        if keys is None:
            return None
        values = self.values
        kind, nullable = self.type_of(keys["type"], what) if "type" in keys else (_UNKNOWN, False)
        default: Json = None
        if "default" in keys:
            default = values.default(keys["default"], kind, what, nullable=nullable)
        return Field(
            name=name,
            wire=camel(name),
            type=kind,
            doc=values.text_at(keys, "doc", what),
            place=node.place,
            nullable=nullable,
            optional=values.truth_at(keys, "optional", what),
            has_default="default" in keys,
            default=default,
            unit=values.text_at(keys, "unit", what) or None,
            live=values.truth_at(keys, "live", what),
            limit=values.truth_at(keys, "limit", what),
            min=values.number_at(keys, "min", what),
            max=values.number_at(keys, "max", what),
            above=values.number_at(keys, "above", what),
            nonempty=values.truth_at(keys, "nonempty", what),
        )

    def fields(self, node: Node, where: str) -> tuple[Field, ...]:
        """All fields of a class, in order."""
        found: list[Field] = []
        for name, place, below in self.values.each(node, f"the fields of {where}"):
            self.check_name(name, place, where)
            field = self.field(name, below, where)
            if field is not None:
                found.append(field)
        return tuple(found)

    def check_name(self, name: str, place: Place, where: str) -> None:
        """Field names are snake_case words that Python allows."""
        if not field_pattern.fullmatch(name) or not is_python_name(name):
            snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
            remedy = (
                f"write {snake!r}; the wire's spelling is made from it"
                if field_pattern.fullmatch(snake) and is_python_name(snake) and snake != name
                else "use small words joined by _, and no word of Python"
            )
            self.faults.add(place, "field-name", f"{name!r} cannot be a field of {where}", remedy)

    def record(self, name: str, node: Node, module: str) -> Record | None:
        """One record."""
        what = f"record {name}"
        keys = self.values.keys(node, what, RECORD_KEYS, ("doc", "fields"))
        if keys is None:
            return None
        fields = self.fields(keys["fields"], name) if "fields" in keys else ()
        return Record(
            name=name,
            module=module,
            doc=self.values.text_at(keys, "doc", what),
            fields=fields,
            place=node.place,
            derived=self.derived(keys["derived"], name, fields) if "derived" in keys else (),
            public=self.values.text_at(keys, "public", what) or None,
            reserved=self.values.texts_at(keys, "reserved", what),
        )

    def derived(self, node: Node, where: str, fields: tuple[Field, ...]) -> tuple[Derived, ...]:
        """Read-only sums."""
        by_name = {field.name: field for field in fields}
        found: list[Derived] = []
        for name, _, below in self.values.each(node, f"derived of {where}"):
            what = f"derived {where}.{name}"
            keys = self.values.keys(
                below, what, ("sum", "unless", "unit", "doc"), ("sum", "unit", "doc")
            )
            if keys is None or "sum" not in keys:
                continue
            summands = self.values.texts(keys["sum"], f"sum of {what}")
            unless = (
                self.values.text(keys["unless"], f"unless of {what}") if "unless" in keys else None
            )
            for summand in (*summands, *([unless] if unless else [])):
                if summand not in by_name:
                    self.faults.add(
                        below.place,
                        "unknown-field",
                        f"{what} adds {summand!r}, which {where} does not have",
                        f"one of {', '.join(by_name)}",
                    )
            found.append(
                Derived(
                    name=name,
                    summands=tuple(by_name[s] for s in summands if s in by_name),
                    unless=unless,
                    doc=(self.values.text(keys["doc"], what) or "") if "doc" in keys else "",
                )
            )
        return tuple(found)

    def union(self, name: str, node: Node, module: str) -> UnionDef | None:
        """One tagged union and its variants."""
        what = f"union {name}"
        keys = self.values.keys(node, what, UNION_KEYS, ("doc", "tag", "suffix", "variants"))
        if keys is None:
            return None
        tag = self.values.text_at(keys, "tag", what)
        variants: list[Record] = []
        for word, place, below in (
            self.values.each(keys["variants"], what) if "variants" in keys else ()
        ):
            if not word_pattern.fullmatch(word):
                self.faults.add(
                    place,
                    "tag-name",
                    f"{word!r} is no tag",
                    "use small words and hyphens",
                )
            variant = self.variant(word, below, name, tag, variant_class(keys, word, below), module)
            if variant is not None:
                variants.append(variant)
        return UnionDef(
            name=name,
            module=module,
            doc=self.values.text_at(keys, "doc", what),
            tag_field=tag,
            variants=tuple(variants),
            place=node.place,
            public=self.values.text_at(keys, "public", what) or None,
            reserved=self.values.texts_at(keys, "reserved", what),
        )

    def variant(
        self, word: str, node: Node, union: str, tag: str, class_name: str, module: str
    ) -> Record | None:
        """One variant of a union."""
        what = f"variant {union}.{word}"
        keys = self.values.keys(node, what, VARIANT_KEYS, ("doc", "fields"))
        if keys is None:
            return None
        fields = self.fields(keys["fields"], class_name) if "fields" in keys else ()
        if any(field.name == tag for field in fields):
            self.faults.add(
                node.place, "field-name", f"{what} has a field {tag!r}, its tag", "rename the field"
            )
        return Record(
            name=class_name,
            module=module,
            doc=self.values.text_at(keys, "doc", what),
            fields=fields,
            place=node.place,
            tag_field=tag,
            tag=word,
            bare=self.values.truth_at(keys, "bare", what),
            reserved=self.values.texts_at(keys, "reserved", what),
        )


def variant_class(union_keys: Mapping[str, Node], word: str, variant: Node) -> str:
    """The class of a variant: what `class:` says, else the tag's words and the union's suffix."""
    given = variant.entries.get("class") if isinstance(variant, Entries) else None
    if isinstance(given, Text):
        return given.value
    suffix = union_keys.get("suffix")
    return pascal(word) + (suffix.value if isinstance(suffix, Text) else "")


def is_numeric(kind: Type) -> bool:
    """True if a value of this type, or its items, need a unit."""
    if isinstance(kind, ListType):
        return is_numeric(kind.item)
    return kind in (Scalar("int"), Scalar("number"))


def all_fields(catalog: Catalog) -> Iterator[tuple[str, tuple[Field, ...]]]:
    """Every class of fields of a catalog: where it is declared, and its fields."""
    for record in (*catalog.records, *catalog.variants):
        yield record.name, record.fields
    for section in catalog.sections:
        yield section.section, section.fields
        for record in section.records:
            yield record.name, record.fields
    for event in catalog.events:
        yield event.name, event.fields
        for answer in event.answers:
            yield f"{event.name}.{answer.name}", answer.fields
