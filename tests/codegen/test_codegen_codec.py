"""The generated codec against an oracle that knows only the classes: same verdict, same value.

The oracle is a strict cattrs converter with hooks that read annotations; it shares no code with the
generator. What annotations cannot tell (a flag from a boolean) stands here as a list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from math import copysign, isfinite
from types import UnionType
from typing import Literal, Union, cast, get_args, get_origin

import attrs
import cattrs
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import codec
from dsh.catalog.refusal import CodecError
from dsh.hooks import AnyDurable, InvalidJson, frozen_json

DURABLES = sorted(ev.registry.DURABLES)
#: Boolean fields that are `true` or absent; every other one may also be `false`.
FLAGS = {
    ("EndSeed", "inherited"),
    ("Header", "starts_series"),
    ("LlmCallConfigAdapterDefaults", "max_tokens"),
    ("LlmCallConfigAdapterDefaults", "reasoning_effort"),
    ("Message", "interrupted"),
    ("Summary", "llm_stream_call"),
}
MAX = 2**53 - 1


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


Hook = Callable[[object, object], object]


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
        if isinstance(value, int) and not -MAX <= value <= MAX:
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


ORACLE = converter()


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


TEXT = st.text(max_size=6)
INTS = st.integers(-MAX, MAX)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)
NUMBERS = st.one_of(INTS, FLOATS.filter(lambda x: copysign(1, x) > 0 or x != 0))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), INTS, NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=5,
)


def values(hint: object) -> st.SearchStrategy[object]:
    """Valid values of a type."""
    simple: dict[object, st.SearchStrategy[object]] = {
        str: TEXT, int: INTS, float: NUMBERS, bool: st.booleans(), type(None): st.none(),
        Json: JSON, Object: st.dictionaries(TEXT, JSON, max_size=3),
    }  # fmt: skip
    if isinstance(hint, type) and hint in simple:
        return simple[hint]
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), max_size=3).map(tuple)
    if len(parts(hint)) > 1:
        return st.one_of(*(values(part) for part in parts(hint)))
    return st.deferred(lambda: objects(cast("type", hint)))


@cache
def objects(cls: type) -> st.SearchStrategy[object]:
    """Valid objects of a class."""
    types = hints(cls)
    return st.builds(cls, **{name: values(hint) for name, hint in types.items()})


PAYLOADS = st.sampled_from(DURABLES).flatmap(
    lambda name: objects(ev.registry.DURABLES[name].payload)
)
JUNK = st.sampled_from(
    [None, True, False, 0, 1, -1, 1.5, float("nan"), float("inf"), -0.0, 2**53, -(2**53), "", "x",
     "\ud800", "text", [], {}, [None], {"kind": "user"}, {"type": "text"}, b"x", (1,)]
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, object]:
    """A stored payload with one thing changed somewhere: dropped, added, renamed or replaced."""
    payload = cast("AnyDurable", draw(PAYLOADS))
    data = orjson.loads(orjson.dumps(written(payload)))
    node: object = data
    while True:
        holders = [each for each in children(node) if children(each)]
        if not holders or draw(st.booleans()):
            break
        node = draw(st.sampled_from(holders))
    kind = draw(st.sampled_from(["drop", "add", "replace", "rename"]))
    if isinstance(node, dict):
        fields = cast("dict[str, object]", node)
        key = draw(st.sampled_from(sorted(fields))) if fields else "x"
        if kind == "add":
            fields[draw(st.sampled_from(["x", "type", "turn", "plugin", "cwd"]))] = draw(JUNK)
        elif kind == "replace":
            fields[key] = draw(JUNK)
        elif kind == "rename" and fields:
            fields[key + "s"] = fields.pop(key)
        else:
            fields.pop(key, None)
    elif isinstance(node, list):
        cast("list[object]", node).append(draw(JUNK))
    return payload.TOKEN.name, data


def is_object(value: object) -> bool:
    """True for what JSON calls an object."""
    return type(value) is dict


def fields_of(node: object) -> dict[str, object]:
    """The fields of an object; none for anything else."""
    return cast("dict[str, object]", node) if type(node) is dict else {}


def children(node: object) -> list[object]:
    """What stands directly in an object or list."""
    if is_object(node):
        return list(fields_of(node).values())
    return list(cast("list[object]", node)) if type(node) is list else []


SETTINGS = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.holds("CAT05")
@SETTINGS
@given(PAYLOADS)
def test_valid_payloads_are_written_and_read_as_the_oracle_does(payload: AnyDurable) -> None:
    data = codec.encode(payload)
    text = orjson.dumps(data)
    assert text == orjson.dumps(written(payload))
    read = orjson.loads(text)
    back = codec.decode(payload.TOKEN.name, read)
    assert back == payload
    assert structured(read, type(payload)) == back
    assert orjson.dumps(codec.encode(back)) == text


@pytest.mark.holds("CAT05")
@SETTINGS
@given(damaged())
def test_damaged_payloads_get_the_oracle_s_verdict(case: tuple[str, object]) -> None:
    name, data = case
    cls = ev.registry.DURABLES[name].payload
    try:
        expected: object = structured(data, cls)
    except RefusedError:
        with pytest.raises(CodecError):
            codec.decode(name, data)
    else:
        assert codec.decode(name, data) == expected


def test_the_oracle_knows_every_flag() -> None:
    booleans = {
        (cls.__name__, name)
        for cls in stored_classes()
        for name, hint in hints(cls).items()
        if hint is bool
    }
    assert booleans - FLAGS == {("ToolResultMessage", "is_error")}


def stored_classes() -> set[type]:
    """All classes that stored payloads reach."""
    found: set[type] = set()
    waiting: list[object] = [token.payload for token in ev.registry.DURABLES.values()]
    while waiting:
        hint = waiting.pop()
        if isinstance(hint, type) and attrs.has(hint):
            if hint not in found:
                found.add(hint)
                waiting += hints(hint).values()
        else:
            waiting += [part for part in get_args(hint) if part is not ...]
    return found
