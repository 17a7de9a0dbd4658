"""The generated codec against an oracle that knows only the classes: same verdict, same value.

The oracle is `dsh.testing.oracle`, a strict cattrs converter; it shares no code with the generator.
"""

from __future__ import annotations

from functools import cache
from math import copysign
from typing import TYPE_CHECKING, Literal, cast, get_args, get_origin

import attrs
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import codec
from dsh.catalog.refusal import CodecError
from dsh.testing.oracle import (
    FLAGS,
    INT_MAX,
    Json,
    Object,
    RefusedError,
    fields_of,
    hints,
    is_object,
    parts,
    structured,
    written,
)

if TYPE_CHECKING:
    from dsh.hooks import AnyDurable

DURABLES = sorted(ev.registry.DURABLES)
TEXT = st.text(max_size=6)
INTS = st.integers(-INT_MAX, INT_MAX)
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
