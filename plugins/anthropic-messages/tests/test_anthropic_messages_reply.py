"""Replies of the messages wire, decoded: every shape, every break, byte for byte."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.catalog import records
from dsh.errors import LlmError
from dsh.llm import Assembler, ScriptedCall, ScriptEntry, grammar_fault
from dsh.llm.http import EventFramer
from dsh.testing import messages_event, messages_reply_of
from dsh_plugins.anthropic_messages.reply import ReplyDecoder

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

ENTRY = ScriptEntry(
    reasoning="\n\nLet me see. ",
    text="I read it: 模型",
    tools=(
        ScriptedCall(name="read", arguments='{"path": "a"}'),
        ScriptedCall(name="bash", arguments="{}"),
    ),
    usage=records.Usage(
        input_tokens=10, output_tokens=5, cache_read_tokens=100, cache_write_tokens=7
    ),
)


def wire(entry: ScriptEntry) -> bytes:
    return b"".join(step for step in messages_reply_of(entry).steps if isinstance(step, bytes))


def decoded(body: bytes, piece: int = 0) -> Assembler:
    out: deque[records.StreamChunk] = deque()
    decoder, framer = ReplyDecoder(out), EventFramer()
    size = piece or len(body) or 1
    for at in range(0, len(body), size):
        for event in framer.feed(body[at : at + size]):
            if not decoder.done:
                decoder.decode(event)
    if not decoder.done and not decoder.complete_at(framer.tail()):
        raise LlmError("ended early", code="STREAM_CLOSED")
    decoder.finish()
    chunks = list(out)
    assert grammar_fault(chunks) is None
    assembler = Assembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def failed(body: bytes) -> str:
    with pytest.raises(LlmError) as caught:
        decoded(body)
    return caught.value.code


def events(*values: dict[str, JsonValue]) -> bytes:
    return b"".join(map(messages_event, values))


def started(index: int, **block: JsonValue) -> dict[str, JsonValue]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grew(index: int, **delta: JsonValue) -> dict[str, JsonValue]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def ended(reason: str | None) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    return (
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )


TEXT = (started(0, type="text", text=""), grew(0, type="text_delta", text="hi"))


@pytest.mark.holds("LM12")
@pytest.mark.parametrize("piece", [0, 1, 7])
def test_a_whole_reply_is_the_same_in_any_pieces(piece: int) -> None:
    assembler = decoded(wire(ENTRY), piece)
    thought, text, *calls = assembler.blocks()
    assert thought == records.ReasoningBlock(text="\n\nLet me see. ")
    assert text == records.TextBlock(text="I read it: 模型")
    assert [(c.name, c.arguments) for c in calls if isinstance(c, records.ToolCallBlock)] == [
        ("read", '{"path": "a"}'),
        ("bash", "{}"),
    ]
    assert assembler.finish == records.ToolCallsFinish()
    assert assembler.usage == ENTRY.usage
    assert assembler.replay_state == records.ReplayEnvelope(
        response=None, blocks=({"signature": "signature-1"}, None, None, None)
    )


@pytest.mark.holds("LM13")
@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", records.StopFinish()),
        ("stop_sequence", records.StopFinish()),
        ("tool_use", records.StopFinish()),
        ("max_tokens", records.MaxTokensFinish()),
    ],
)
def test_each_stop_reason_has_one_meaning(reason: str, finish: records.FinishReason) -> None:
    assert decoded(events(*TEXT, *ended(reason))).finish == finish


@pytest.mark.holds("LM13")
@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("refusal", "CONTENT_FILTER"),
        ("model_context_window_exceeded", "CONTEXT_WINDOW_EXCEEDED"),
        ("pause_turn", "PAUSE_TURN"),
        ("?!", "UNKNOWN"),
    ],
)
def test_other_reasons_are_failures(reason: str, code: str) -> None:
    finish = decoded(events(*TEXT, *ended(reason))).finish
    assert isinstance(finish, records.ErrorFinish)
    assert finish.failure.code == code


@pytest.mark.holds("LM13")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "STREAM_CLOSED"),
        (events(*TEXT), "STREAM_CLOSED"),
        (events(*TEXT, ended("end_turn")[0]), "STREAM_CLOSED"),
        (events(*TEXT, {"type": "message_stop"}), "STREAM_CLOSED"),
        (events(*ended("end_turn")), "EMPTY_RESPONSE"),
        (b"data: <html>\n\n", "MALFORMED_RESPONSE"),
        (b"data: [1]\n\n", "MALFORMED_RESPONSE"),
        (events(started(0, type="server_tool_use", name="x")), "MALFORMED_RESPONSE"),
        (events(started(0, type="tool_use", id="a", input={})), "MALFORMED_RESPONSE"),
        (events(grew(0, type="input_json_delta", partial_json="{}")), "MALFORMED_RESPONSE"),
        (events(*TEXT, started(0, type="text", text="")), "MALFORMED_RESPONSE"),
        (
            events({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
            "SERVER",
        ),
        (
            events(
                {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
            ),
            "RATE_LIMIT",
        ),
        (
            events(
                {
                    "type": "error",
                    "error": {
                        "type": "invalid_request_error",
                        "message": "prompt is too long: 205000 tokens > 200000 maximum",
                    },
                }
            ),
            "CONTEXT_WINDOW_EXCEEDED",
        ),
    ],
)
def test_what_is_no_whole_reply_is_a_classified_failure(body: bytes, code: str) -> None:
    assert failed(body) == code


@pytest.mark.holds("LM13")
def test_odd_shapes_are_understood() -> None:
    body = events(
        {"type": "ping"},
        {"type": "something_new", "x": 1},
        grew(3, type="text_delta", text="no start"),
        started(5, type="tool_use", id="same", name="a", input={"given": 1}),
        started(6, type="tool_use", id="same", name="b", input={}),
        grew(6, type="input_json_delta", partial_json='{"x":'),
        {"type": "content_block_stop", "index": 5},
        grew(5, type="input_json_delta", partial_json="late"),
        {"type": "content_block_stop", "index": 5},
        {"type": "content_block_stop", "index": 99},
        grew(6, type="input_json_delta", partial_json="2}"),
        grew(6, type="citations_delta", citation={}),
        started(7, type="redacted_thinking", data="c2VjcmV0"),
        *ended("end_turn"),
        {"type": "error", "error": "after the end"},
    )
    assembler = decoded(body)
    text, first, second, hidden = assembler.blocks()
    assert text == records.TextBlock(text="no start")
    assert isinstance(first, records.ToolCallBlock)
    assert isinstance(second, records.ToolCallBlock)
    assert (first.id, first.arguments) == ("same", '{"given":1}')
    assert second.id != "same"
    assert second.arguments == '{"x":2}'
    assert hidden == records.ReasoningBlock(text="")
    assert assembler.finish == records.ToolCallsFinish()
    state = assembler.replay_state
    assert state is not None
    assert state.blocks[3] == {"redacted": "c2VjcmV0"}


@pytest.mark.holds("LM13")
def test_a_last_event_without_an_empty_line_ends_a_reply() -> None:
    assert decoded(wire(ScriptEntry(text="hi")).rstrip(b"\n")).finish == records.StopFinish()


@pytest.mark.holds("LM13")
def test_a_message_that_was_not_streamed_is_a_reply() -> None:
    out: deque[records.StreamChunk] = deque()
    decoder = ReplyDecoder(out)
    whole: JsonValue = {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 4, "output_tokens": 2},
    }
    assert decoder.take_whole(whole)
    decoder.finish()
    chunks = list(out)
    assert grammar_fault(chunks) is None
    assert not ReplyDecoder(deque()).take_whole({"hello": 1})
    with pytest.raises(LlmError):
        ReplyDecoder(deque()).take_whole({"type": "error", "error": {"message": "no"}})


@pytest.mark.holds("LM13")
@pytest.mark.parametrize(
    "usage", [{"input_tokens": -1}, {"input_tokens": "7"}, {"input_tokens": 2**60}, 7, None]
)
def test_counts_that_make_no_sense_are_left_out(usage: JsonValue) -> None:
    opened: dict[str, JsonValue] = {"type": "message_start", "message": {"usage": usage}}
    assert decoded(events(opened, *TEXT, *ended("end_turn"))).usage is None


@given(st.data())
def test_no_cut_splice_or_garbage_makes_it_crash(data: st.DataObject) -> None:
    body = wire(ENTRY)
    start = data.draw(st.integers(0, len(body)))
    stop = data.draw(st.integers(start, len(body)))
    garbage = data.draw(st.binary(max_size=20) | st.sampled_from([b"\n\n", b"data: {}\n\n"]))
    changed = body[:start] + garbage + body[stop:]
    assembler = None
    with contextlib.suppress(LlmError):
        assembler = decoded(changed)
    for block in () if assembler is None else assembler.blocks():
        if isinstance(block, records.ToolCallBlock) and not garbage.strip():
            # Nothing can have been added: what is called was called.
            assert block.name in {"read", "bash"}


def test_the_events_are_what_the_server_s_documents_show() -> None:
    first = wire(ScriptEntry(text="hi")).split(b"\n\n")[0]
    name, data = first.split(b"\n")
    assert name == b"event: message_start"
    assert orjson.loads(data.removeprefix(b"data: "))["type"] == "message_start"
