"""What the log's codec must do, said a second time: a strict cattrs converter over the classes.

What comes in: stored data and the class it is of, or a payload. What goes out: the payload, the
stored data, or a refusal. It reads annotations and shares no code with the generator; what they
cannot tell (a flag from a boolean) stands here as a list. Slow, and only for comparing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from math import copysign, isfinite
from types import UnionType
from typing import Final, Literal, TypeAlias, Union, cast, get_args, get_origin

import attrs
import cattrs

from dsh.hooks import InvalidJson, frozen_json

__all__ = [
    "FLAGS",
    "INT_MAX",
    "Json",
    "Object",
    "RefusedError",
    "fields_of",
    "hints",
    "is_object",
    "parts",
    "structured",
    "written",
]

#: Boolean fields that are `true` or absent; every other one may also be `false`.
FLAGS: Final = {
    ("EndSeed", "inherited"),
    ("Header", "starts_series"),
    ("LlmCallConfigAdapterDefaults", "max_tokens"),
    ("LlmCallConfigAdapterDefaults", "reasoning_effort"),
    ("Message", "interrupted"),
    ("Summary", "llm_stream_call"),
}
INT_MAX: Final = 2**53 - 1


class Json:
    """Stands for JsonValue in annotations."""


class Object:
    """Stands for JsonObject in annotations."""


class RefusedError(Exception):
    """The oracle's verdict."""


def camel(name: str) -> str:
    """The wire's spelling of a field."""
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


@cache
def hints(cls: type) -> dict[str, object]:
    """The annotations of a class, with JSON types replaced by the classes above."""
    names = {**vars(sys.modules[cls.__module__]), "JsonValue": Json, "JsonObject": Object}
    return {a.name: eval(str(a.type), names) for a in attrs.fields(cls)}


def tag_of(cls: type) -> tuple[str, str] | None:
    """The tag of a variant: its only class variable with a literal."""
    for name, text in vars(cls).get("__annotations__", {}).items():
        if str(text).startswith("ClassVar[Literal["):
            return name, cast("str", getattr(cls, name))
    return None


def parts(hint: object) -> tuple[object, ...]:
    """The members of a union, or the hint alone."""
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


Hook: TypeAlias = Callable[[object, object], object]


def strict(cls: type, *allowed: type) -> Hook:
    """A hook that takes values of exactly some classes."""

    def hook(value: object, _hint: object) -> object:
        if type(value) not in allowed:
            raise RefusedError(cls.__name__)
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise RefusedError("surrogate") from None
        if isinstance(value, int) and not -INT_MAX <= value <= INT_MAX:
            raise RefusedError("range")
        if isinstance(value, float) and (
            not isfinite(value) or (value == 0.0 and copysign(1, value) < 0)
        ):
            raise RefusedError("number")
        return value

    return hook


def origin_is(*origins: object) -> Callable[[object], bool]:
    """Whether a type is one of some generic ones."""

    def check(hint: object) -> bool:
        return cast("object", get_origin(hint)) in origins

    return check


def converter() -> cattrs.Converter:
    """The strict converter of all stored classes."""
    made = cattrs.Converter(detailed_validation=False)
    made.register_structure_hook(str, strict(str, str))
    made.register_structure_hook(int, strict(int, int))
    made.register_structure_hook(float, strict(float, int, float))
    made.register_structure_hook(bool, strict(bool, bool))
    made.register_structure_hook(Json, json_of)
    made.register_structure_hook(Object, json_of)
    made.register_structure_hook_func(origin_is(tuple), items)
    made.register_structure_hook_func(origin_is(Literal), choice)
    made.register_structure_hook_func(origin_is(Union, UnionType), variant)
    made.register_structure_hook_func(attrs.has, record)
    return made


def structured(value: object, hint: object) -> object:
    """What the converter makes of a value."""
    made: object = ORACLE.structure(value, cast("type[object]", hint))
    return made


def is_object(value: object) -> bool:
    """True for what JSON calls an object."""
    return type(value) is dict


def fields_of(node: object) -> dict[str, object]:
    """The fields of an object; none for anything else."""
    return cast("dict[str, object]", node) if type(node) is dict else {}


def json_of(value: object, hint: object) -> object:
    """A JSON value, frozen."""
    if hint is Object and not is_object(value):
        raise RefusedError("object")
    try:
        return frozen_json(value)
    except InvalidJson as error:
        raise RefusedError(str(error)) from None


def items(value: object, hint: object) -> object:
    """A list, as a tuple."""
    if type(value) is not list:
        raise RefusedError("list")
    item: object = get_args(hint)[0]
    return tuple(structured(each, item) for each in cast("list[object]", value))


def choice(value: object, hint: object) -> object:
    """One of some words."""
    if type(value) is not str or value not in get_args(hint):
        raise RefusedError("choice")
    return value


def variant(value: object, hint: object) -> object:
    """One record of a union, by its tag; or null, where that is allowed."""
    members = [part for part in parts(hint) if part is not type(None)]
    if value is None and len(members) < len(parts(hint)):
        return None
    if len(members) == 1:
        return structured(value, members[0])
    for member in cast("list[type[object]]", members):
        tag = tag_of(member)
        data = fields_of(value)
        if tag is not None and type(data.get(tag[0])) is str and data[tag[0]] == tag[1]:
            return structured(value, member)
    raise RefusedError("tag")


def record(value: object, cls: object) -> object:
    """A record with exactly its fields."""
    if type(value) is not dict:
        raise RefusedError("object")
    cls = cast("type[attrs.AttrsInstance]", cls)
    data = dict(cast("dict[str, object]", value))
    tag = tag_of(cls)
    if tag is not None and data.pop(tag[0], None) != tag[1]:
        raise RefusedError("tag")
    found: dict[str, object] = {}
    types = hints(cls)
    for field in attrs.fields(cls):
        key = camel(field.name)
        if key not in data:
            if field.default is attrs.NOTHING:
                raise RefusedError(f"missing {key}")
            continue
        given, hint = data.pop(key), types[field.name]
        if field.default is None and given is None:
            raise RefusedError("null")
        if (cls.__name__, field.name) in FLAGS and given is not True:
            raise RefusedError("flag")
        found[field.name] = structured(given, hint)
    if data:
        raise RefusedError(f"unknown {sorted(data)}")
    return cast("object", cls(**found))


ORACLE: Final = converter()


def written(value: object) -> object:
    """The oracle's stored form: fields at their default are left out, tags come first."""
    if isinstance(value, tuple):
        return [written(each) for each in cast("tuple[object, ...]", value)]
    if not attrs.has(type(value)):
        return value
    tag = tag_of(type(value))
    out: dict[str, object] = dict([tag] if tag else [])
    for field in attrs.fields(cast("type[attrs.AttrsInstance]", type(value))):
        inner: object = getattr(value, field.name)
        if field.default is attrs.NOTHING or (inner, type(inner)) != (
            field.default,
            type(field.default),
        ):
            out[camel(field.name)] = written(inner)
    return out
