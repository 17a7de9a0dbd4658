"""Decoding: odd deltas, odd endings, odd counts, in-band errors, rubbish."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.catalog.records import (
    ErrorFinish,
    FinishChunk,
    FinishReason,
    MaxTokensFinish,
    ReasoningBlock,
    StopFinish,
    StreamChunk,
    TextBlock,
    ToolCallBlock,
    ToolCallsFinish,
    Usage,
    UsageChunk,
)
from dsh.errors import LlmError
from dsh.llm import grammar_fault
from dsh.llm.http import EventFramer
from dsh.testing import delta, event
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


@pytest.mark.holds("case-001")
def test_characters_cut_by_the_network_stay_whole() -> None:
    arguments = '{"path": "文档/été-🦀.md"}'
    body = b"".join(
        [
            delta(role="assistant", content="你好🦀é"),
            fragment(
                {
                    "index": 0,
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "read_file", "arguments": arguments},
                }
            ),
            CALLS,
            DONE,
        ]
    )
    expected = (TextBlock(text="你好🦀é"), made("call_1", "read_file", arguments))
    for size in (1, 2, 3, 7, len(body)):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        assert WIRE.assembled(*pieces).blocks() == expected


@pytest.mark.holds("case-009")
def test_chunks_without_choices_and_usage_of_null() -> None:
    reply = WIRE.assembled(
        event({"choices": [], "prompt_filter_results": []}),
        event({"choices": [{"index": 0, "delta": {"content": "ok"}}], "usage": None}),
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}),
        event(
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 120,
                    "completion_tokens": 3,
                    "total_tokens": 123,
                    "prompt_cache_hit_tokens": 100,
                    "prompt_cache_miss_tokens": 20,
                    "completion_tokens_details": None,
                },
            }
        ),
        DONE,
    )
    assert reply.blocks() == (TextBlock(text="ok"),)
    assert reply.finish == StopFinish()
    assert reply.usage == Usage(
        input_tokens=20, output_tokens=3, cache_read_tokens=100, reported_total_tokens=123
    )


@pytest.mark.holds("case-010", "LM6")
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
        ({"total_tokens": 12}, None),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 50},
            },
            Usage(input_tokens=0, output_tokens=1, cache_read_tokens=10),
        ),
        ({"prompt_tokens": "10", "completion_tokens": "1"}, None),
        ({"prompt_tokens": -4, "completion_tokens": 1}, None),
        ({"prompt_tokens": 2**60, "completion_tokens": 1}, None),
        ({}, None),
        (
            {
                "prompt_tokens": 7,
                "completion_tokens": 5,
                "completion_tokens_details": {"reasoning_tokens": 9},
            },
            Usage(input_tokens=7, output_tokens=5, reasoning_tokens=5),
        ),
    ],
)
def test_counts_that_make_no_sense_are_left_out_or_cut_and_never_negative(
    usage: JsonValue, expected: Usage | None
) -> None:
    reply = WIRE.assembled(delta("stop", content="x"), event({"choices": [], "usage": usage}), DONE)
    assert reply.usage == expected
    assert reply.finish == StopFinish()


@pytest.mark.holds("case-009", "LM6")
def test_usage_comes_before_the_finish_although_it_came_after_on_the_wire() -> None:
    chunks = WIRE.decoded(
        delta("stop", content="x"),
        event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        DONE,
    )
    assert isinstance(chunks[-2], UsageChunk)
    assert isinstance(chunks[-1], FinishChunk)


@pytest.mark.holds("case-011")
def test_an_empty_reply_fails_reasoning_alone_counts_and_length_stays_length() -> None:
    empty = [delta(role="assistant", content=""), delta("stop", content=""), DONE]
    assert WIRE.failed(*empty).code == "EMPTY_RESPONSE"
    only_reasoning = WIRE.assembled(delta(reasoning_content="hm"), *empty[1:])
    assert only_reasoning.blocks() == (ReasoningBlock(text="hm"),)
    assert only_reasoning.finish == StopFinish()
    assert WIRE.assembled(delta("length", content=""), DONE).finish == MaxTokensFinish()


@pytest.mark.holds("case-013", "LM2")
@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("length", MaxTokensFinish()),
        ("max_tokens", MaxTokensFinish()),
        ("eos", StopFinish()),
        ("end_turn", StopFinish()),
        ("content_filter", "CONTENT_FILTER"),
        ("insufficient_system_resource", "INSUFFICIENT_SYSTEM_RESOURCE"),
        ("repetition_truncation", "REPETITION_TRUNCATION"),
        ("Änderung!", "UNKNOWN"),
    ],
)
def test_each_finish_reason_has_a_meaning_and_no_text_is_lost(
    word: str, finish: FinishReason | str
) -> None:
    reply = WIRE.assembled(delta(content="partial"), delta(word), DONE)
    assert reply.blocks() == (TextBlock(text="partial"),)
    if isinstance(finish, str):
        assert isinstance(reply.finish, ErrorFinish)
        assert reply.finish.failure.code == finish
        assert repr(word) in reply.finish.failure.message
    else:
        assert reply.finish == finish


@pytest.mark.holds("case-013", "LM2")
def test_an_empty_finish_reason_is_none_and_a_reply_without_one_is_cut_off() -> None:
    assert WIRE.failed(delta(content="partial"), delta(""), DONE).code == "STREAM_CLOSED"
    assert WIRE.assembled(delta("", content="x"), STOP, DONE).finish == StopFinish()


@pytest.mark.holds("case-014")
def test_other_choices_are_not_mixed_in_and_a_late_stop_takes_no_call_back() -> None:
    call: JsonValue = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "list_dir", "arguments": "{}"},
    }
    reply = WIRE.assembled(
        event(
            {
                "choices": [
                    {"index": 0, "delta": {"content": "A"}, "finish_reason": None},
                    {"index": 1, "delta": {"content": "Z"}, "finish_reason": None},
                ]
            }
        ),
        delta("tool_calls", tool_calls=[call]),
        delta("stop", content=""),
        delta(content=" tail"),
        DONE,
    )
    assert reply.blocks() == (TextBlock(text="A tail"), made("c1", "list_dir", "{}"))
    assert reply.finish == ToolCallsFinish()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning": "r"}, (ReasoningBlock(text="r"),)),
        ({"reasoning_content": "r", "reasoning": "r"}, (ReasoningBlock(text="r"),)),
        (
            {"reasoning_content": "r", "content": "t"},
            (ReasoningBlock(text="r"), TextBlock(text="t")),
        ),
        ({"content": [{"type": "text", "text": "t"}]}, (TextBlock(text="t"),)),
        (
            {"content": [{"type": "thinking", "thinking": [{"text": "r"}]}, {"text": "t"}]},
            (ReasoningBlock(text="r"), TextBlock(text="t")),
        ),
        ({"refusal": "I will not."}, (TextBlock(text="I will not."),)),
        ({"content": None, "reasoning_content": None, "tool_calls": None}, ()),
        ({"content": 7, "tool_calls": "x"}, ()),
    ],
)
def test_text_and_reasoning_are_found_where_servers_put_them(
    fields: dict[str, JsonValue], expected: tuple[object, ...]
) -> None:
    assert WIRE.assembled(delta(None, **fields), delta("length"), DONE).blocks() == expected


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, "RATE_LIMIT"),
        ({"error": {"message": "boom", "code": 502}}, "SERVER"),
        ({"error": "maximum context length is 5"}, "CONTEXT_WINDOW_EXCEEDED"),
        ({"object": "error", "message": "bad", "code": 400}, "INVALID_REQUEST"),
        ({"message": "The server is overloaded"}, "SERVER"),
        (
            {"choices": [{"index": 0, "delta": {}, "error": {"message": "x", "code": 429}}]},
            "RATE_LIMIT",
        ),
    ],
)
def test_an_error_inside_a_stream_is_classified_like_any_other(body: JsonValue, code: str) -> None:
    error = WIRE.failed(delta(content="half"), event(body))
    assert error.code == code


@pytest.mark.parametrize("data", ["{", "[1]", "7", '{"a": NaN}', "hello", '"text"', "null"])
def test_what_is_no_json_object_is_malformed_and_shown_cut(data: str) -> None:
    error = WIRE.failed(f"data: {data}{' ' * 500}x\n\n".encode())
    assert error.code == "MALFORMED_RESPONSE"
    assert len(str(error)) < 400


def test_events_that_are_not_separated_are_read_line_by_line() -> None:
    body = (delta(content="a") + delta("stop", content="b")).replace(b"\n\n", b"\n") + DONE
    assert WIRE.assembled(body).blocks() == (TextBlock(text="ab"),)


GOOD = b"".join(
    [
        b": hi\n\n",
        delta(role="assistant", reasoning_content="wonder"),
        delta(content="wörds 🦀 "),
        fragment({"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a":'}}),
        fragment({"index": 0, "function": {"arguments": '"bc"}'}}),
        CALLS,
        event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}),
        DONE,
    ]
)


@settings(max_examples=300)
@given(st.data())
def test_damage_gives_a_lawful_reply_or_a_classified_failure(data: st.DataObject) -> None:
    """Truncations, splices, duplications and garbage: never a crash, never a wrong call."""
    body = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        upto = data.draw(st.integers(at, min(len(body), at + 60)))
        how = data.draw(st.sampled_from(["cut", "drop", "double", "garbage"]))
        middle = {
            "cut": b"",
            "drop": b"",
            "double": body[at:upto] * 2,
            "garbage": data.draw(st.binary(max_size=12)),
        }[how]
        body = body[:at] + middle + (b"" if how == "cut" else body[upto:])
    out: deque[StreamChunk] = deque()
    code = decoded_or_code(body, out)
    if code is None:
        assert grammar_fault(out) is None
    else:
        assert code in {"MALFORMED_RESPONSE", "STREAM_CLOSED", "EMPTY_RESPONSE", "UNKNOWN"}


def decoded_or_code(body: bytes, out: deque[StreamChunk]) -> str | None:
    decoder, framer = ReplyDecoder(out), EventFramer()
    try:
        for data in framer.feed(body):
            if not decoder.done:
                decoder.decode(data)
        decoder.finish()
    except LlmError as error:
        return error.code
    return None
