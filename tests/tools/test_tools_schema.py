"""attrs classes as JSON Schema, and JSON as attrs classes: strict, with the path of each fault."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal

import attrs
import pytest

from dsh.errors import PluginError
from dsh.hooks import frozen_json
from dsh.tools import define_tool, param
from dsh.tools.schema import ShapeError, shape_of


class Level(enum.Enum):
    """How much."""

    LOW = "low"
    HIGH = "high"


@attrs.frozen
class Point:
    """A nested object."""

    x: int = attrs.field(metadata=param("from the left", ge=0, le=10))
    y: float = 0.5


@attrs.frozen(kw_only=True)
class Everything:
    """One field of every kind."""

    text: str = attrs.field(metadata=param("some text", min_length=1, pattern="^a"))
    number: int
    flag: bool
    ratio: float
    word: Literal["a", "b"]
    level: Level
    point: Point
    points: tuple[Point, ...] = ()
    names: list[str] = attrs.field(factory=list, metadata=param("names", max_length=2))
    table: Mapping[str, int] = attrs.field(factory=dict[str, int])
    maybe: str | None = None
    nullable: int | None = attrs.field()


GOOD: dict[str, object] = {
    "text": "abc",
    "number": 1,
    "flag": True,
    "ratio": 2,
    "word": "a",
    "level": "high",
    "point": {"x": 3},
    "nullable": None,
}


def test_schema_says_every_kind() -> None:
    schema = shape_of(Everything).schema
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == (
        "text",
        "number",
        "flag",
        "ratio",
        "word",
        "level",
        "point",
        "nullable",
    )
    properties = schema["properties"]
    assert isinstance(properties, Mapping)
    assert properties["text"] == {
        "type": "string",
        "description": "some text",
        "minLength": 1,
        "pattern": "^a",
    }
    assert properties["number"] == {"type": "integer"}
    assert properties["flag"] == {"type": "boolean"}
    assert properties["ratio"] == {"type": "number"}
    assert properties["word"] == {"type": "string", "enum": ("a", "b")}
    assert properties["level"] == {"type": "string", "enum": ("low", "high")}
    assert properties["names"] == {
        "type": "array",
        "items": {"type": "string"},
        "description": "names",
        "maxItems": 2,
    }
    assert properties["table"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert properties["maybe"] == {"type": "string"}
    assert properties["nullable"] == {"anyOf": ({"type": "integer"}, {"type": "null"})}
    assert properties["point"] == {
        "type": "object",
        "properties": {
            "x": {"type": "integer", "description": "from the left", "minimum": 0, "maximum": 10},
            "y": {"type": "number", "default": 0.5},
        },
        "required": ("x",),
        "additionalProperties": False,
    }


@pytest.mark.holds("XT89")
def test_good_arguments_become_the_typed_value() -> None:
    found = shape_of(Everything).structure(
        frozen_json({**GOOD, "points": [{"x": 1, "y": 2}], "names": ["n"], "table": {"k": 4}})
    )
    assert found.level is Level.HIGH
    assert found.ratio == 2.0
    assert isinstance(found.ratio, float)
    assert found.points == (Point(1, 2.0),)
    assert found.names == ["n"]
    assert found.table == {"k": 4}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"text": 5}, "$.text: expected string, got number 5"),
        ({"text": ""}, "$.text: must have a length of at least 1, got 0"),
        ({"text": "x"}, "$.text: must match '^a', got text 'x'"),
        ({"number": "1"}, "$.number: expected integer, got text '1'"),
        ({"number": True}, "$.number: expected integer, got boolean true"),
        ({"number": 1.0}, "$.number: expected integer, got number 1.0"),
        ({"flag": 1}, "$.flag: expected boolean, got number 1"),
        ({"flag": "true"}, "$.flag: expected boolean, got text 'true'"),
        ({"ratio": "2"}, "$.ratio: expected number, got text '2'"),
        ({"ratio": False}, "$.ratio: expected number, got boolean false"),
        ({"word": "c"}, "$.word: expected one of 'a', 'b', got text 'c'"),
        ({"level": "HIGH"}, "$.level: expected one of 'low', 'high', got text 'HIGH'"),
        ({"point": {"x": 11}}, "$.point.x: must be at most 10, got 11"),
        ({"point": {}}, "$.point.x: required, but missing"),
        ({"point": {"x": 1, "xx": 1}}, "$.point: unknown key 'xx'; did you mean 'x'?"),
        ({"point": [1]}, "$.point: expected an object, got a list"),
        ({"points": [{"x": 1}, {"x": "1"}]}, "$.points[1].x: expected integer, got text '1'"),
        ({"names": "abc"}, "$.names: expected a list, got text 'abc'"),
        ({"names": ["a", 1]}, "$.names[1]: expected string, got number 1"),
        ({"names": ["a", "b", "c"]}, "$.names: must have a length of at most 2, got 3"),
        ({"table": {"k": "v"}}, "$.table['k']: expected integer, got text 'v'"),
        ({"maybe": 1}, "$.maybe: expected string, got number 1"),
        ({"mabye": "x"}, "$: unknown key 'mabye'; did you mean 'maybe'?"),
    ],
)
def test_each_fault_is_refused_with_its_path(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ShapeError) as caught:
        shape_of(Everything).structure(frozen_json({**GOOD, **change}))
    assert caught.value.problems == (problem,)


@pytest.mark.holds("XT90", "XT91")
def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ShapeError) as caught:
        shape_of(Everything).structure(frozen_json({"text": 1, "point": {"x": "0"}, "nullable": 2}))
    told = " ".join(caught.value.problems)
    for place in ("$.text", "$.number", "$.flag", "$.ratio", "$.word", "$.level", "$.point.x"):
        assert place in told


@pytest.mark.parametrize("top", [[GOOD], 42, True, "text", None])
def test_anything_but_an_object_is_refused(top: object) -> None:
    with pytest.raises(ShapeError, match="expected an object"):
        shape_of(Everything).structure(frozen_json(top))


@attrs.frozen
class Bad:
    """A field that JSON Schema cannot say."""

    when: complex = 1j


@attrs.frozen
class Nested:
    """Holds itself."""

    child: Nested | None = None


async def _never(_args: object, _run: object) -> str:
    raise AssertionError


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (Bad, r"\$\.when: the type <class 'complex'>"),
        (Nested, "contains itself"),
        (str, "attrs class"),
    ],
)
def test_types_without_a_schema_are_refused_at_registration(args: type, told: str) -> None:
    with pytest.raises(PluginError, match=told):
        define_tool(name="t", description="", args=args, output=str, execute=_never)


@pytest.mark.holds("XT81")
@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_bad_timeout_is_refused(timeout: float) -> None:
    with pytest.raises(PluginError, match="timeout"):
        define_tool(
            name="t", description="", args=Point, output=str, execute=_never, timeout=timeout
        )


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "run_code", "tool\n", "ü"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(PluginError, match="name"):
        define_tool(name=name, description="", args=Point, output=str, execute=_never)
