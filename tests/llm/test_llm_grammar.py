"""The grammar of chunk streams."""

from __future__ import annotations

import pytest

from dsh.catalog.records import (
    BlockEndChunk,
    BlockStartChunk,
    ErrorFinish,
    FinishChunk,
    LlmFailure,
    ReasoningDeltaChunk,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDeltaChunk,
    ToolCallBlock,
    ToolCallDeltaChunk,
    Usage,
    UsageChunk,
)
from dsh.llm import grammar_fault

START = BlockStartChunk(index=0, block_type="text")
DELTA = TextDeltaChunk(index=0, text="x")
END = BlockEndChunk(index=0, block=TextBlock(text="x"))
USAGE = UsageChunk(usage=Usage(input_tokens=1, output_tokens=1))
STOP = FinishChunk(reason=StopFinish())
FAIL = FinishChunk(reason=ErrorFinish(failure=LlmFailure(code="SERVER", message="m")))
CALL_START = BlockStartChunk(index=1, block_type="tool-call")
CALL = ToolCallDeltaChunk(index=1, id="c", name="ls", arguments_delta="{}")
CALL_END = BlockEndChunk(index=1, block=ToolCallBlock(id="c", name="ls", arguments="{}"))


@pytest.mark.holds("LI01")
def test_a_complete_interleaved_stream_is_lawful() -> None:
    stream: list[StreamChunk] = [START, DELTA, CALL_START, DELTA, CALL, END, CALL_END, USAGE, STOP]
    assert grammar_fault(stream) is None
    assert grammar_fault([STOP]) is None
    assert grammar_fault([START, DELTA, FAIL]) is None


@pytest.mark.holds("LI02")
@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        ([], "no finish"),
        ([STOP, USAGE], "chunk 1: usage after the finish"),
        ([STOP, STOP], "chunk 1: finish after the finish"),
        ([USAGE, USAGE, STOP], "chunk 1: a second usage"),
        ([START, START], "chunk 1: block 0 started twice"),
        ([CALL_START], "chunk 0: block 1 started where 0 is next"),
        ([DELTA], "chunk 0: text delta for block 0, which has not started"),
        ([START, END, DELTA], "chunk 2: text delta for block 0, which has ended"),
        (
            [START, ReasoningDeltaChunk(index=0, text="x")],
            "chunk 1: reasoning delta for block 0, which is text",
        ),
        ([END], "chunk 0: end of block 0, which has not started"),
        ([START, END, END], "chunk 2: block 0 ended twice"),
        (
            [BlockStartChunk(index=0, block_type="reasoning"), END],
            "chunk 1: block 0 ended as text, started as reasoning",
        ),
        ([START, DELTA, STOP], "block 0 never ended"),
    ],
)
def test_each_broken_rule_is_named_with_its_place(stream: list[StreamChunk], fault: str) -> None:
    assert grammar_fault(stream) == fault
