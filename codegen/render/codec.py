"""Writes the straight-line codec: one encoder and one decoder for each stored class.

What comes in: records, unions and durable events. What goes out: lines of Python. This is code
made by code, because nested expressions are no template's work. The codec checks every value by
its exact class and converts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from ..model import EnumType, IdType, ListType, MapType, RefType, Scalar
from ..values import INT_MAX
from .codec_making import differs, encoders, filled, found, looked_up, slots, snake
from .spelling import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Event, Field, Record, Type, UnionDef

__all__ = ["CodecWriter"]


def _indent(lines: Sequence[str], by: str = "    ") -> list[str]:
    return [by + line for line in lines]


@frozen
class CodecWriter:
    """Writes functions. `prefix` is how classes of the catalog's own records are reached.

    `unions` are those whose tables stand in the same module.
    """

    prefix: str
    unions: frozenset[str] = frozenset()

    # Checks that hold for both directions: `local` holds the value, `key` is its path.

    def check(self, kind: Type, local: str, key: str) -> list[str]:
        """Lines that refuse a scalar of the wrong class or out of range."""
        match kind:
            case Scalar("string") | IdType():
                clean = f"({local}.isascii() or is_clean({local}))"
                return [
                    f"if {local}.__class__ is not str or not {clean}:",
                    f"    raise bad_text({key}, {local})",
                ]
            case Scalar("int"):
                return [
                    f"if {local}.__class__ is not int or not {-INT_MAX} <= {local} <= {INT_MAX}:",
                    f"    raise bad_int({key}, {local})",
                ]
            case Scalar("number"):
                foreign = f"{local}.__class__ is not float and {local}.__class__ is not int"
                return [
                    f"if ({foreign}) or not is_number({local}):",
                    f"    raise bad_number({key}, {local})",
                ]
            case Scalar("bool"):
                return [
                    f"if {local} is not True and {local} is not False:",
                    f'    raise bad_value({key}, {local}, "true or false")',
                ]
            case EnumType():
                name = self.choices(kind)
                return [
                    f"if {local}.__class__ is not str or {local} not in {name}:",
                    f"    raise bad_choice({key}, {local}, {name})",
                ]
            case _:
                return []

    def choices(self, kind: EnumType) -> str:
        """The values of an enum, as a constant tuple."""
        inner = ", ".join(map(quoted, kind.values))
        return f"({inner},)" if len(kind.values) == 1 else f"({inner})"

    def class_check(self, kind: RefType, local: str, key: str) -> list[str]:
        """Lines that refuse an object of another class; a union's encoder does that itself."""
        if kind.is_union:
            return []
        name = f"{self.prefix}{kind.name}"
        return [
            f"if {local}.__class__ is not {name}:",
            f"    raise bad_class({key}, {local}, {quoted(kind.name)}, ())",
        ]

    # Encoding

    def encode_value(self, kind: Type, local: str, key: str) -> tuple[list[str], str]:
        """Lines before, and the expression of the encoded value."""
        match kind:
            case Scalar("json") | Scalar("object"):
                return [], local
            case RefType() if kind.name in self.unions:
                return [
                    *found(kind.name, local, key),
                    "try:",
                    f"    {local}_ = encoder({local})",
                    "except CodecError as error:",
                    f"    raise error.under({key}) from None",
                ], f"{local}_"
            case RefType():
                return [
                    *self.class_check(kind, local, key),
                    "try:",
                    f"    {local}_ = encode_{snake(kind.name)}({local})",
                    "except CodecError as error:",
                    f"    raise error.under({key}) from None",
                ], f"{local}_"
            case ListType():
                return self.encode_list(kind, local, key)
            case MapType():
                raise NotImplementedError("maps are for configuration; lint refuses them here")
            case _:
                return self.check(kind, local, key), local

    def encode_list(self, kind: ListType, local: str, key: str) -> tuple[list[str], str]:
        """A tuple of items to a list."""
        lines = [
            f"if {local}.__class__ is not tuple:",
            f'    raise bad_value({key}, {local}, "a tuple")',
        ]
        if kind.item == Scalar("json"):
            return lines, f"list({local})"
        if isinstance(kind.item, RefType) and kind.item.name in self.unions:
            item = f"{local}_item"
            inside = [
                *_indent(found(kind.item.name, item, '""')),
                f"    {local}_.append(encoder({item}))",
            ]
        elif isinstance(kind.item, RefType):
            inside = [
                *_indent(self.class_check(kind.item, f"{local}_item", '""')),
                f"    {local}_.append(encode_{snake(kind.item.name)}({local}_item))",
            ]
        else:
            inside = [
                *_indent(self.check(kind.item, f"{local}_item", '""')),
                f"    {local}_.append({local}_item)",
            ]
        return [
            *lines,
            f"{local}_: list[object] = []",
            "try:",
            f"    for {local}_item in {local}:",
            *_indent(inside),
            "except CodecError as error:",
            f'    raise error.under(f"{key[1:-1]}[{{len({local}_)}}]") from None',
        ], f"{local}_"

    def encoder(
        self, name: str, annotation: str, record_fields: Sequence[Field], tag: tuple[str, str]
    ) -> list[str]:
        """An encoder of one class."""
        body: list[str] = []
        start: list[str] = [f"{quoted(tag[0])}: {quoted(tag[1])}"] if tag[0] else []
        fields = list(record_fields)
        while fields and fields[0].required and not fields[0].nullable:
            field = fields.pop(0)
            lines, value = self.encode_field(field)
            body += lines
            start.append(f"{quoted(field.wire)}: {value}")
        tail: list[str] = []
        for field in fields:
            tail += self.encode_later(field)
        made = f"{{{', '.join(start)}}}"
        if tail:
            body += [f"out: dict[str, object] = {made}", *tail, "return out"]
        else:
            body.append(f"return {made}")
        return [f"def encode_{name}(x: {annotation}) -> dict[str, object]:", *_indent(body)]

    def encode_field(self, field: Field) -> tuple[list[str], str]:
        """A field that is always there."""
        local = f"v_{field.name}"
        lines, value = self.encode_value(field.type, local, quoted(field.wire))
        return [f"{local} = x.{field.name}", *lines], value

    def encode_later(self, field: Field) -> list[str]:
        """A field that may be absent or null."""
        local, key = f"v_{field.name}", quoted(field.wire)
        if field.type == Scalar("flag"):
            return [
                f"{local} = x.{field.name}",
                f"if {local} is True:",
                f"    out[{key}] = True",
                f"elif {local} is not False:",
                f'    raise bad_value({key}, {local}, "true or false")',
            ]
        lines, value = self.encode_value(field.type, local, key)
        store = [*lines, f"out[{key}] = {value}"]
        if field.optional:
            test = f"if {local} is not None:"
        elif field.nullable:
            plain = [f"{local} = x.{field.name}", f"if {local} is None:"]
            absent = field.has_default and field.default is None
            return [
                *plain,
                "    pass" if absent else f"    out[{key}] = None",
                "else:",
                *_indent(store),
            ]
        elif field.has_default:
            test = differs(field, local)
        else:
            return [f"{local} = x.{field.name}", *store]
        return [f"{local} = x.{field.name}", test, *_indent(store)]

    def union_encoder(self, union: UnionDef) -> list[str]:
        """An encoder that looks the class up."""
        name, table = snake(union.name), encoders(union.name)
        return [
            f"{table}: Final[dict[type, Encoder]] = {{",
            *(f"    {self.prefix}{v.name}: encode_{snake(v.name)}," for v in union.variants),
            "}",
            "",
            "",
            f"def encode_{name}(x: {self.prefix}{union.name}) -> object:",
            *_indent(found(union.name, "x", '""')),
            "    return encoder(x)",
        ]

    # Decoding

    def decode_value(self, kind: Type, local: str, key: str) -> list[str]:
        """Lines that check `local` and put its decoded value in its place."""
        match kind:
            case Scalar("json") | Scalar("object"):
                return [
                    "try:",
                    f"    {local} = frozen_{kind.name}({local})",
                    "except InvalidJson as error:",
                    f"    raise of_json({key}, error) from None",
                ]
            case RefType():
                return [
                    "try:",
                    f"    {local} = decode_{snake(kind.name)}({local})",
                    "except CodecError as error:",
                    f"    raise error.under({key}) from None",
                ]
            case ListType():
                return self.decode_list(kind, local, key)
            case MapType():
                raise NotImplementedError("maps are for configuration; lint refuses them here")
            case EnumType():
                name = self.choices(kind)
                return [
                    f"if {local} not in {name}:",
                    f"    raise bad_choice({key}, {local}, {name})",
                ]
            case _:
                return self.check(kind, local, key)

    def decode_list(self, kind: ListType, local: str, key: str) -> list[str]:
        """A list of items to a tuple."""
        item = f"{local}_item"
        if isinstance(kind.item, RefType):
            inside = [f"{local}_.append(decode_{snake(kind.item.name)}({item}))"]
        else:
            inside = [*self.decode_value(kind.item, item, '""'), f"{local}_.append({item})"]
        return [
            f"if {local}.__class__ is not list:",
            f'    raise bad_value({key}, {local}, "a list")',
            f"{local}_ = []",
            "try:",
            f"    for {item} in {local}:",
            *_indent(_indent(inside)),
            "except CodecError as error:",
            f'    raise error.under(f"{key[1:-1]}[{{len({local}_)}}]") from None',
            f"{local} = tuple({local}_)",
        ]

    def decoder(
        self, name: str, class_name: str, fields: Sequence[Field], tag: tuple[str, str]
    ) -> list[str]:
        """A decoder of one class."""
        keys = [*([tag[0]] if tag[0] else []), *(field.wire for field in fields)]
        constant = f"KEYS_{name.upper()}"
        always = [field for field in fields if field.required]
        body = ["if type(d) is not dict:", '    raise bad_value("", d, "an object")']
        if tag[0]:
            body += [
                f"if d.get({quoted(tag[0])}) != {quoted(tag[1])}:",
                f"    raise bad_tag(d, {quoted(tag[0])}, ({quoted(tag[1])},))",
            ]
        body.append(f"n = {len(always) + (1 if tag[0] else 0)}")
        if always:
            body += ["try:", *(f"    v_{f.name} = d[{quoted(f.wire)}]" for f in always)]
            body += [
                "except KeyError as error:",
                f"    raise missing(d, error, {constant}) from None",
            ]
        for field in fields:
            body += self.decode_field(field)
        body += ["if len(d) != n:", f"    raise unknown(d, {constant})"]
        # Modules of records are always there; those of payloads are imported when needed.
        direct = not name.endswith("_event")
        body += filled(name, class_name, fields) if direct else looked_up(class_name, fields)
        inner = ", ".join(map(quoted, keys))
        return [
            f"{constant}: Final[tuple[str, ...]] = ({inner}{',' if len(keys) == 1 else ''})",
            *(slots(name, class_name, fields) if direct else []),
            "",
            "",
            f"def decode_{name}(d: object) -> {class_name}:",
            *_indent(body),
        ]

    def decode_field(self, field: Field) -> list[str]:
        """One field, present or not."""
        local, key = f"v_{field.name}", quoted(field.wire)
        if field.required:
            lines = self.decode_value(field.type, local, key)
            return (
                [f"if {local} is not None:", *_indent(lines)] if field.nullable and lines else lines
            )
        get = [f"{local} = d.get({key}, ABSENT)", f"if {local} is ABSENT:"]
        if field.type == Scalar("flag"):
            return [
                *get,
                f"    {local} = False",
                f"elif {local} is True:",
                "    n += 1",
                "else:",
                f'    raise bad_value({key}, {local}, "true, or no such field")',
            ]
        lines = self.decode_value(field.type, local, key)
        if field.nullable and lines:
            lines = [f"if {local} is not None:", *_indent(lines)]
        elif field.optional and field.type in (Scalar("json"), Scalar("object")):
            lines = [f"if {local} is None:", f"    raise bad_null({key})", *lines]
        absent = literal(field.default) if field.has_default else "None"
        return [*get, f"    {local} = {absent}", "else:", "    n += 1", *_indent(lines)]

    def union_decoder(self, union: UnionDef) -> list[str]:
        """A decoder that looks the tag up."""
        name, table = snake(union.name), f"DECODE_{snake(union.name).upper()}"
        plain = [v for v in union.variants if not v.bare]
        bare = [v for v in union.variants if v.bare]
        lines = [
            f"{table}: Final[dict[str, Callable[[object], {self.prefix}{union.name}]]] = {{",
            *(f"    {quoted(v.tag)}: decode_{snake(v.name)}," for v in plain),
            "}",
            "",
            "",
            f"def decode_{name}(d: object) -> {self.prefix}{union.name}:",
        ]
        for variant in bare:
            lines += [
                f"    if d == {quoted(variant.tag)} and d.__class__ is str:",
                f"        return {self.prefix}{variant.name}()",
            ]
        return [
            *lines,
            "    if type(d) is not dict:",
            '        raise bad_value("", d, "an object")',
            f"    tag = d.get({quoted(union.tag_field)})",
            f"    decoder = {table}.get(tag) if isinstance(tag, str) else None",
            "    if decoder is None:",
            f"        raise bad_tag(d, {quoted(union.tag_field)}, {table})",
            "    return decoder(d)",
        ]

    # Whole functions

    def record(self, record: Record) -> list[list[str]]:
        """Encoder and decoder of a record or variant."""
        name, class_name = snake(record.name), f"{self.prefix}{record.name}"
        tag = (record.tag_field, record.tag)
        if record.bare:
            encoder = [
                f"def encode_{name}(x: {class_name}) -> str:",
                f"    return {quoted(record.tag)}",
            ]
            decoder = [
                f"def decode_{name}(d: object) -> {class_name}:",
                f"    if d.__class__ is not str or d != {quoted(record.tag)}:",
                f'        raise bad_value("", d, {quoted(record.tag)})',
                f"    return {class_name}()",
            ]
            return [encoder, decoder]
        return [
            self.encoder(name, class_name, record.fields, tag),
            self.decoder(name, class_name, record.fields, tag),
        ]

    def event(self, event: Event, module: str) -> list[list[str]]:
        """Encoder and decoder of a durable payload."""
        name = f"{module}_{snake(event.payload_class)}_event"
        class_name = f"{module}.{event.payload_class}"
        return [
            self.encoder(name, class_name, event.fields, ("", "")),
            self.decoder(name, class_name, event.fields, ("", "")),
        ]
