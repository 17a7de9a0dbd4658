"""What a config class declares: its fields by wire name, and its types in words.

What comes in: generated attrs classes and the annotations of their fields. What goes out: wire
names, phrases such as "a whole number" for messages, and the value that the text of a `--set`
argument means for a declared type. It builds no config and reads no file.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from functools import cache
from typing import ClassVar, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
import orjson

from dsh.boot.nearest import did_you_mean
from dsh.boot.nodes import Issue, Node, Place, located

__all__ = [
    "Declared",
    "alternatives",
    "field_at",
    "in_words",
    "may_be_null",
    "node_of_text",
    "tag_of",
    "wire_fields",
]

#: An annotation, as typing hands it out at run time.
Declared: TypeAlias = object

#: JSON types are recursive text aliases; a config class is resolved with these in their place.
JSON_TYPES: Final = {"JsonValue": object, "JsonObject": Mapping[str, object]}

INTEGER: Final = re.compile(r"[-+]?[0-9]+")
SCALARS: Final[Mapping[object, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


@cache
def wire_fields(cls: type) -> Mapping[str, attrs.Attribute[object]]:
    """The fields of a config class by their wire name, with resolved types."""
    attrs.resolve_types(cls, localns=JSON_TYPES)
    return {
        str(field.metadata.get("wire", field.name)): field
        for field in attrs.fields(cls)
        if field.init
    }


def alternatives(declared: Declared) -> tuple[Declared, ...]:
    """The members of a union without None; the type itself when it is no union."""
    if get_origin(declared) in (Union, types.UnionType):
        return tuple(part for part in get_args(declared) if part is not type(None))
    return (declared,)


def may_be_null(declared: Declared) -> bool:
    """Whether null is a value of this type."""
    return declared is None or type(None) in get_args(declared)


@cache
def tag_of(declared: Declared) -> tuple[str, str] | None:
    """Field and word that mark a member of a record union: `("mode", "normal")`. None: no tag."""
    if not (isinstance(declared, type) and attrs.has(declared)):
        return None
    for name, hint in get_type_hints(declared, localns=JSON_TYPES).items():
        if get_origin(hint) is ClassVar and get_origin(get_args(hint)[0]) is Literal:
            return name, str(get_args(get_args(hint)[0])[0])
    return None


def in_words(declared: Declared) -> str:
    """The type as a message names it."""
    only, *others = parts = alternatives(declared)
    tags = [tag for part in parts if (tag := tag_of(part)) is not None]
    if tags:
        return f"a mapping with {tags[0][0]}: " + " or ".join(word for _, word in tags)
    if others:
        return " or ".join(dict.fromkeys(in_words(part) for part in parts))
    if only in SCALARS:
        return SCALARS[only]
    origin = get_origin(only)
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in get_args(only))
    if origin is tuple:
        return "a list"
    if only is object:
        return "any JSON value"
    return "a mapping"


def field_at(cls: type, path: tuple[str, ...], place: Place) -> Declared | Issue:
    """The declared type at a dotted path of wire names below a config class."""
    declared: Declared = cls
    for depth, part in enumerate(path):
        parts = alternatives(declared)
        classes = [one for one in parts if isinstance(one, type) and attrs.has(one)]
        fields = {name: field for one in classes for name, field in wire_fields(one).items()}
        origin = get_origin(parts[0])
        if part in fields:
            declared = fields[part].type
        elif fields:
            above = ".".join(path[:depth]) or "the row's config"
            return Issue(
                place,
                f"no field {part!r} in {above}{did_you_mean(part, fields)} "
                f"Fields: {', '.join(fields)}",
            )
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            declared = get_args(parts[0])[1]
        else:
            return Issue(
                place,
                f"{'.'.join(path[:depth])} is {in_words(declared)} and has no parts; "
                "give the whole value as JSON",
            )
    return declared


def node_of_text(text: str, declared: Declared, place: Place) -> Node:
    """The value that `text` means where `declared` is expected.

    Text that cannot be read as declared stays text, so that the strict structuring names the type.
    """
    if text == "null" and may_be_null(declared):
        return Node(None, place, text)
    for part in alternatives(declared):
        node = _one(text, part, place)
        if node is not None:
            return node
    return Node(text, place, text)


def _one(text: str, declared: Declared, place: Place) -> Node | None:
    if declared is str or get_origin(declared) is Literal:
        return Node(text, place, text)
    if declared is bool:
        return Node(text == "true", place, text) if text in ("true", "false") else None
    if declared is int:
        return Node(int(text), place, text) if INTEGER.fullmatch(text) else None
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if declared is float and (isinstance(value, bool) or not isinstance(value, (int, float))):
        return None
    return located(value, place)
