"""Tools with a schema that somebody else wrote: odd, bad and hostile ones, and what they refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.errors import PluginError
from dsh.testing import told
from dsh.tools import json_output, raw_tool

if TYPE_CHECKING:
    from dsh.hooks import JsonObject, JsonValue
    from dsh.hooks.live import ToolRun
    from dsh.testing import ToolRoom
    from dsh.tools import ExecutionMode, Tool


async def back(arguments: JsonObject, _run: ToolRun) -> JsonValue:
    return arguments


def made(schema: object, *, name: str = "raw") -> Tool:
    return raw_tool(
        name=name,
        description="d",
        parameters=schema,  # type: ignore[arg-type]
        output=json_output(),
        execute=back,
    )


def obj(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


NODE = {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/N"}}}}
GOOD: dict[str, tuple[object, list[object], list[object]]] = {
    "defs": (
        {**obj(f={"$ref": "#/$defs/F"}), "required": ["f"],
         "$defs": {"F": {"type": "string", "enum": ["fit", "raw"]}}},
        [{"f": "fit"}],
        [{"f": "x"}, {}, {"f": 1}],
    ),
    "recursive": (
        {**obj(n={"$ref": "#/$defs/N"}), "$defs": {"N": NODE}},
        [{"n": {"c": [{"c": []}]}}],
        [{"n": {"c": [{"c": [1]}]}}],
    ),
    "nullable_enum": (
        obj(a={"anyOf": [{"enum": ["A", "B"], "type": "null"}, {"type": "string"}]}),
        [{"a": "x"}],
        [{"a": 1}],
    ),
    "type_list": (
        obj(a={"type": ["string", "null"], "nullable": True}),
        [{"a": None}, {"a": "x"}],
        [{"a": 1}],
    ),
    "dollar_key": (obj(**{"$.xgafv": {"type": "string"}}), [{"$.xgafv": "x"}], [{"$.xgafv": 1}]),
    "ref_as_name": (obj(**{"$ref": {"type": "string"}}), [{"$ref": "x"}], [{"$ref": 1}]),
    "no_type": ({"properties": {"a": {}}}, [{"a": [1]}, {}], [[], "x"]),
    "open": (obj(id={"type": "string"}), [{"id": "x", "more": 1}], [{"id": 1}]),
    "empty": ({}, [{}, {"a": 1}], [[]]),
    "draft_7": (
        {"$schema": "http://json-schema.org/draft-07/schema#", **obj(a={"const": 1})},
        [{"a": 1}],
        [{"a": 2}],
    ),
}  # fmt: skip
BAD: dict[str, tuple[object, str]] = {
    "null_schema": (None, "NoneType"),
    "true_schema": (True, "bool"),
    "array_top": ({"type": "array", "items": {}}, "'array'"),
    "ext_ref": ({"$ref": "https://example.invalid/s.json"}, "nothing is fetched"),
    "file_ref": (obj(a={"items": [{"$ref": "file:///etc/passwd"}]}), "file:///etc/passwd"),
    "deep_ref": (obj(a={"allOf": [{"$dynamicRef": "other#x"}]}), "other#x"),
    "no_such_ref": (obj(a={"$ref": "#/$defs/none"}), "cannot be used"),
    "big_bounds": (obj(n={"type": "integer", "maximum": 2**64}), "2**53"),
    "bad_pattern": (obj(s={"type": "string", "pattern": "(?<a>x)(?i)["}), "cannot be used"),
    "bad_type": (obj(s={"type": "strnig"}), "strnig"),
    "nan": (obj(s={"minimum": float("nan")}), "not a JSON number"),
    "zero_step": (obj(n={"multipleOf": 0.0}), "cannot be used"),
    "foreign_dialect": ({"$schema": "https://example.invalid/d", **obj()}, "cannot be used"),
}


@pytest.mark.holds("case-075", "XM08", "XT88", "XT89", "XT90")
@pytest.mark.parametrize("name", GOOD)
async def test_a_usable_schema_is_sent_as_it_is_and_checked(room: ToolRoom, name: str) -> None:
    schema, fits, misfits = GOOD[name]
    ctx = await room.plugin("server")
    tool = made(schema)
    room.tools.register(ctx, tool)
    assert isinstance(schema, dict)
    assert json.loads(json.dumps(tool.parameters)) == {"type": "object", **schema}
    assert room.tools.schemas()[0].parameters == tool.parameters
    for arguments in fits:
        assert told(await room.run("raw", arguments)).code is None, arguments
    for arguments in misfits:
        assert told(await room.run("raw", arguments)).code == "INVALID_ARGS", arguments


@pytest.mark.holds("case-075", "XT80")
@pytest.mark.parametrize("name", BAD)
def test_an_unusable_schema_is_refused_when_the_tool_is_made(name: str) -> None:
    schema, words = BAD[name]
    with pytest.raises(PluginError) as caught:
        made(schema, name="their_tool")
    assert caught.value.code == "BAD_TOOL"
    assert "'their_tool'" in caught.value.message
    assert words in caught.value.message


async def test_the_problems_name_each_place_and_are_bounded(room: ToolRoom) -> None:
    ctx = await room.plugin("server")
    room.tools.register(ctx, made(obj(a={"type": "array", "items": {"type": "string"}})))
    one = told(await room.run("raw", {"a": ["x", 1]})).text
    assert one == 'Error: invalid arguments for raw: $.a[1]: 1 is not of type "string"'
    many = told(await room.run("raw", {"a": list(range(5_000))})).text
    assert many.endswith("; and more")
    assert len(many) < 8_000
    huge = told(await room.run("raw", {"a": [{"k": "x" * 100_000}]})).text
    assert len(huge) < 1_000


@pytest.mark.holds("case-075")
@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(a|a)*\1?$", r"^(?=(a+)+$)b"])
async def test_a_pattern_that_backtracks_for_ever_does_not_stop_the_house(
    room: ToolRoom, pattern: str
) -> None:
    ctx = await room.plugin("server")
    room.tools.register(ctx, made(obj(s={"type": "string", "pattern": pattern})))
    # Without a bound this line would not come back.
    finished = told(await room.run("raw", {"s": "a" * 5_000 + "!"}))
    assert finished.code == "INVALID_ARGS"


@pytest.mark.holds("XT79")
async def test_deep_schemas_and_deep_arguments_are_a_refusal_and_no_recursion(
    room: ToolRoom,
) -> None:
    deep: dict[str, object] = {"type": "object"}
    for _ in range(90):
        deep = obj(n=deep)
    ctx = await room.plugin("server")
    room.tools.register(ctx, made(deep))
    room.tools.register(ctx, made({**obj(n={"$ref": "#"})}, name="self"))
    nested: dict[str, object] = {}
    for _ in range(150):
        nested = {"n": nested}
    assert told(await room.run("raw", nested)).code is None
    assert told(await room.run("self", nested)).code is None
    for _ in range(20_000):
        nested = {"n": nested}
    assert told(await room.run("self", nested)).code == "INVALID_ARGS"
    with pytest.raises(PluginError, match="cannot be used"):
        made(nested)


async def test_what_the_model_reads_is_rendered_from_the_arguments_and_mode_is_asked_of_them(
    room: ToolRoom,
) -> None:
    def mode(arguments: JsonObject) -> ExecutionMode:
        return "parallel" if arguments.get("fast") else "exclusive"

    tool = raw_tool(
        name="raw",
        description="",
        parameters=obj(fast={"type": "boolean"}),
        output=json_output(render=lambda arguments, value: f"{arguments} gave {value}"),
        execute=back,
        execution_mode=mode,
    )
    ctx = await room.plugin("server")
    room.tools.register(ctx, tool)
    assert told(await room.run("raw", {"fast": True})).text == "{'fast': True} gave {'fast': True}"
    assert room.tools.is_parallel("raw", {"fast": True})
    assert not room.tools.is_parallel("raw", {"fast": False})
    assert not room.tools.is_parallel("raw", {"fast": "yes"})


async def test_a_rewrite_of_a_raw_tools_arguments_is_checked_too(room: ToolRoom) -> None:
    from dsh.testing import always_pre

    ctx = await room.plugin("server")
    room.tools.register(ctx, made(obj(a={"type": "string"})))
    always_pre(ctx, ev.tools.Allow(arguments={"a": 1}))
    assert told(await room.run("raw", {"a": "x"})).code == "INVALID_ARGS"


async def test_one_bad_tool_of_a_server_leaves_the_others(room: ToolRoom) -> None:
    ctx = await room.plugin("server")
    left_out: list[str] = []
    for name, schema in {
        **{k: v[0] for k, v in GOOD.items()},
        **{k: v[0] for k, v in BAD.items()},
    }.items():
        try:
            room.tools.register(ctx, made(schema, name=name))
        except PluginError as error:
            left_out.append(error.message)
    assert {schema.name for schema in room.tools.schemas()} == set(GOOD)
    assert len(left_out) == len(BAD)


@pytest.mark.holds("XT10")
def test_a_raw_tool_says_what_its_output_is() -> None:
    with pytest.raises(TypeError, match="output"):
        raw_tool(name="t", description="d", parameters=obj(), execute=back)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
