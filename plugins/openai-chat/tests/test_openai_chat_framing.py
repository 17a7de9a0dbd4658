"""Framing: bytes in any pieces, events out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.errors import LlmError
from dsh.llm.http import EventFramer


def framed(*reads: bytes, limit: int | None = None) -> list[bytes]:
    framer = EventFramer() if limit is None else EventFramer(limit)
    return [event for read in reads for event in framer.feed(read)]


def one_by_one(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


@pytest.mark.holds("case-004")
def test_comments_other_fields_and_several_data_lines() -> None:
    reads = [
        b": OPENROUTER PROCESSING\n\n",
        b":\n\n: ping - 2026-01-01T00:00:00Z\n\n",
        (
            b'retry: 3000\nid: 7\nevent: message\ndata: {"choices":[{"index":0,\n'
            b'data: "delta":{"content":"ok"},"finish_reason":null}]}\n\n'
        ),
        b"data\n\n",
        b"x-heartbeat: 1\n\n",
        b'data: {"choices":[]}\n\ndata: [DONE]\n\n',
    ]
    expected = [
        b'{"choices":[{"index":0,\n"delta":{"content":"ok"},"finish_reason":null}]}',
        b'{"choices":[]}',
        b"[DONE]",
    ]
    assert framed(*reads) == expected
    assert framed(*one_by_one(b"".join(reads))) == expected


@pytest.mark.holds("case-001")
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_every_split_gives_the_same_events_for_each_line_ending(ending: bytes) -> None:
    text = json.dumps({"a": "你好🦀é\u2028\u0085"}, ensure_ascii=False)
    body = ending.join(["\ufeff: hi".encode(), f"data: {text}".encode(), b"", b"data:x", b"", b""])
    whole = framed(body)
    assert whole == [text.encode(), b"x"]
    assert framed(*one_by_one(body)) == whole
    for at in range(len(body)):
        assert framed(body[:at], body[at:]) == whole
        assert framed(body[:at], b"", body[at : at + 2], body[at + 2 :]) == whole


@pytest.mark.holds("LM1")
@given(
    st.lists(
        st.sampled_from(
            [b"data: a\n", b"data:b\r\n", b"\n", b"\r\n", b"\r", b": c\n", b"data\n", b"x"]
        ),
        max_size=30,
    ),
    st.lists(st.integers(1, 9), min_size=1, max_size=30),
)
def test_no_split_of_any_body_changes_its_events(lines: list[bytes], sizes: list[int]) -> None:
    body = b"".join(lines)
    pieces: list[bytes] = []
    at = 0
    while at < len(body):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(body[at : at + size])
        at += size
    assert framed(*pieces) == framed(body)


def test_an_event_is_complete_only_with_its_empty_line() -> None:
    framer = EventFramer()
    assert framer.feed(b"data: [DONE]\n") == []
    assert framer.tail() == b"[DONE]"
    framer = EventFramer()
    assert framer.feed(b"data: [DO") == []
    assert framer.feed(b"NE]") == []
    assert framer.tail() == b"[DONE]"


@pytest.mark.holds("LM1")
@pytest.mark.parametrize(
    "reads",
    [
        [b"data: " + b"x" * 100],
        [b"data: " + b"x" * 100 + b"\n\n"],
        [b"data: ", *[b"x"] * 100],
        [b"data: 12345678901234567890\n"] * 6,
        [b": " + b"c" * 100],
    ],
)
def test_lines_and_events_beyond_the_limit_are_refused(reads: list[bytes]) -> None:
    with pytest.raises(LlmError, match="more than 64 bytes") as caught:
        framed(*reads, limit=64)
    assert caught.value.code == "MALFORMED_RESPONSE"


def test_a_long_line_costs_no_more_than_its_length() -> None:
    piece = b"x" * 1024
    framer = EventFramer()
    for _ in range(4096):
        assert framer.feed(piece) == []
    (event,) = framer.feed(b"\n\ndata: y\n\n")
    assert event == b"y"
