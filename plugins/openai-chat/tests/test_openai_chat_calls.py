"""Decoding: tool calls from fragments of every shape."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dsh.catalog.records import (
    MaxTokensFinish,
    ToolCallBlock,
    ToolCallDeltaChunk,
    ToolCallsFinish,
)
from dsh.llm import Assembler
from dsh.testing import delta
from dsh.testing.wires import WireBench
from dsh_plugins.openai_chat.reply import ReplyDecoder

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

DONE = b"data: [DONE]\n\n"
CALLS = delta("tool_calls")
STOP = delta("stop")


WIRE = WireBench(ReplyDecoder)


def fragment(*calls: JsonValue) -> bytes:
    return delta(tool_calls=list(calls))


def made(call_id: str, name: str, arguments: str) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, arguments=arguments)


@pytest.mark.holds("case-015", "LM3")
def test_fragments_without_an_index_belong_to_the_call_that_is_streamed() -> None:
    reply = WIRE.assembled(
        fragment(
            {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path":'}}
        ),
        fragment({"function": {"arguments": '"a.txt"}'}}),
        fragment(
            {"id": "b", "type": "function", "function": {"name": "read", "arguments": '{"path":"b'}}
        ),
        fragment({"index": None, "function": {"arguments": '.txt"}'}}),
        CALLS,
        DONE,
    )
    assert reply.blocks() == (
        made("a", "read", '{"path":"a.txt"}'),
        made("b", "read", '{"path":"b.txt"}'),
    )


@pytest.mark.holds("case-015")
def test_whole_calls_without_index_and_id_are_calls_of_their_own() -> None:
    whole: JsonValue = {"function": {"name": "read", "arguments": "{}"}}
    reply = WIRE.assembled(fragment(whole, whole), fragment(whole), CALLS, DONE)
    ids = [block.id for block in reply.blocks() if isinstance(block, ToolCallBlock)]
    assert len(set(ids)) == 3
    assert all(call_id.startswith("call_") for call_id in ids)


@pytest.mark.holds("case-015")
def test_a_gateway_that_numbers_every_call_0_still_gives_two_calls() -> None:
    reply = WIRE.assembled(
        fragment({"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}),
        fragment({"index": 0, "id": "b", "function": {"name": "y", "arguments": '{"k"'}}),
        fragment({"index": 0, "function": {"arguments": ":1}"}}),
        CALLS,
        DONE,
    )
    assert reply.blocks() == (made("a", "x", "{}"), made("b", "y", '{"k":1}'))


@pytest.mark.holds("case-017", "LM3")
@pytest.mark.parametrize("empty", ["", None])
def test_empty_ids_and_names_of_later_fragments_change_nothing(empty: str | None) -> None:
    def later(arguments: str | None) -> bytes:
        function: JsonValue = {"name": empty, "arguments": arguments}
        return fragment({"index": 0, "id": empty, "type": "function", "function": function})

    reply = WIRE.assembled(
        fragment({"index": 0, "id": "call_9", "function": {"name": "calc", "arguments": "{"}}),
        later('"expr": '),
        later('"6*7"}'),
        later(None),
        CALLS,
        DONE,
    )
    assert reply.blocks() == (made("call_9", "calc", '{"expr": "6*7"}'),)


@pytest.mark.holds("case-019", "LM3")
@pytest.mark.parametrize(
    "names",
    [("read_file", "read_file"), ("read_", "file"), (None, "read_file"), ("read", "read_file")],
)
def test_a_name_that_is_repeated_split_late_or_growing_is_one_name(
    names: tuple[str | None, str],
) -> None:
    first, second = names
    chunks = WIRE.decoded(
        fragment({"index": 0, "id": "c", "function": {"name": first, "arguments": '{"path":'}}),
        fragment({"index": 0, "id": "c", "function": {"name": second, "arguments": '"a"}'}}),
        CALLS,
        DONE,
    )
    assembler = Assembler()
    for chunk in chunks:
        assembler.push(chunk)
    assert assembler.blocks() == (made("c", "read_file", '{"path":"a"}'),)
    # A log of the deltas alone folds to the same call.
    deltas = Assembler()
    for chunk in chunks:
        if isinstance(chunk, ToolCallDeltaChunk):
            deltas.push(chunk)
    assert deltas.blocks() == assembler.blocks()


@pytest.mark.holds("case-020")
@pytest.mark.parametrize(
    ("function", "raw"),
    [
        ({"name": "git_status", "arguments": ""}, ""),
        ({"name": "git_status", "arguments": "null"}, "null"),
        ({"name": "git_status", "arguments": None}, ""),
        ({"name": "git_status", "arguments": " \n"}, " \n"),
        ({"name": "git_status"}, ""),
        ({"name": "git_status", "arguments": {"path": "."}}, '{"path":"."}'),
    ],
)
def test_arguments_are_kept_as_they_came_and_an_object_is_written_once(
    function: JsonValue, raw: str
) -> None:
    reply = WIRE.assembled(fragment({"index": 0, "id": "c1", "function": function}), CALLS, DONE)
    assert reply.blocks() == (made("c1", "git_status", raw),)


@pytest.mark.holds("case-022", "LM4")
def test_arguments_that_are_no_object_stay_raw() -> None:
    good = json.dumps({"path": "src/a.py", "content": 'x = "1"\n'})
    for raw in (json.dumps(good), good + good, good + "\n\nprose", "[1]", "42", "true"):
        call: JsonValue = {"index": 0, "id": "c", "function": {"name": "w", "arguments": raw}}
        assert WIRE.assembled(fragment(call), CALLS, DONE).blocks() == (made("c", "w", raw),)


@pytest.mark.holds("case-030", "LM3")
def test_a_second_call_with_the_same_id_gets_one_of_its_own_and_both_stay() -> None:
    def call(index: int, text: str) -> bytes:
        function: JsonValue = {"name": "append_line", "arguments": json.dumps({"t": text})}
        return fragment({"index": index, "id": "functions.eval:1", "function": function})

    for texts in (("a", "b"), ("a", "a")):
        reply = WIRE.assembled(call(0, texts[0]), call(1, texts[1]), CALLS, DONE)
        first, second = reply.blocks()
        assert isinstance(first, ToolCallBlock)
        assert isinstance(second, ToolCallBlock)
        assert first.id == "functions.eval:1"
        assert second.id.startswith("call_")
        assert json.loads(second.arguments) == {"t": texts[1]}


def test_a_legacy_function_call_is_a_call() -> None:
    reply = WIRE.assembled(
        delta(function_call={"name": "f", "arguments": "{"}),
        delta(function_call={"arguments": "}"}),
        delta("function_call"),
        DONE,
    )
    (block,) = reply.blocks()
    assert isinstance(block, ToolCallBlock)
    assert (block.name, block.arguments) == ("f", "{}")
    assert reply.finish == ToolCallsFinish()


@pytest.mark.holds("LM2")
def test_stop_with_calls_means_calls_and_a_nameless_call_is_malformed() -> None:
    named: JsonValue = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    assert WIRE.assembled(fragment(named), STOP, DONE).finish == ToolCallsFinish()
    nameless: JsonValue = {"index": 0, "id": "c", "function": {"arguments": "{}"}}
    assert WIRE.failed(fragment(nameless), CALLS, DONE).code == "MALFORMED_RESPONSE"
    assert WIRE.assembled(fragment(nameless), delta("length"), DONE).finish == MaxTokensFinish()
