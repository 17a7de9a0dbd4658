"""The assembler: chunks in, one message out."""

from __future__ import annotations

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.catalog.records import (
    BlockEndChunk,
    BlockStartChunk,
    ErrorFinish,
    FinishChunk,
    FinishReason,
    MaxTokensFinish,
    ReasoningBlock,
    ReasoningDeltaChunk,
    ReplayEnvelope,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDeltaChunk,
    ToolCallBlock,
    ToolCallDeltaChunk,
    ToolCallsFinish,
    Usage,
    UsageChunk,
)
from dsh.errors import InvariantError
from dsh.llm import Assembler


def folded(*chunks: StreamChunk) -> Assembler:
    assembler = Assembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def text(index: int, words: str) -> StreamChunk:
    return TextDeltaChunk(index=index, text=words)


def call(index: int, call_id: str, arguments: str, name: str | None = None) -> StreamChunk:
    return ToolCallDeltaChunk(index=index, id=call_id, name=name, arguments_delta=arguments)


def finish(reason: FinishReason, replay: ReplayEnvelope | None = None) -> StreamChunk:
    return FinishChunk(reason=reason, replay_state=replay)


@pytest.mark.holds("E4", "LA01", "LA05", "LA08")
def test_interleaved_deltas_keep_first_seen_order_and_a_second_start_is_ignored() -> None:
    assembler = folded(
        BlockStartChunk(index=3, block_type="text"),
        text(3, "one "),
        BlockStartChunk(index=1, block_type="tool-call"),
        call(1, "c1", '{"a"', "ls"),
        BlockStartChunk(index=3, block_type="reasoning"),
        text(3, "two"),
        call(1, "c1", ":1}"),
    )
    assert assembler.blocks() == (
        TextBlock(text="one two"),
        ToolCallBlock(id="c1", name="ls", arguments='{"a":1}'),
    )


@pytest.mark.holds("E4", "LA02", "LA19")
def test_the_first_block_end_is_authoritative_and_what_follows_it_is_ignored() -> None:
    assembler = folded(
        text(0, "dr"),
        BlockEndChunk(index=0, block=TextBlock(text="final")),
        text(0, "aft"),
        BlockEndChunk(index=0, block=TextBlock(text="other")),
        BlockEndChunk(index=1, block=ToolCallBlock(id="c", name="ls", arguments="{}")),
        call(1, "c", "junk", "rm"),
    )
    assert assembler.blocks() == (
        TextBlock(text="final"),
        ToolCallBlock(id="c", name="ls", arguments="{}"),
    )


@pytest.mark.holds("LA03")
def test_deltas_without_block_markers_open_their_blocks() -> None:
    assembler = folded(ReasoningDeltaChunk(index=0, text="hm"), text(1, "ok"))
    assert assembler.blocks() == (ReasoningBlock(text="hm"), TextBlock(text="ok"))


@pytest.mark.holds("LA04", "LA11")
def test_the_newest_usage_is_exposed_and_none_when_none_came() -> None:
    assert folded(text(0, "x")).usage is None
    first, last = (Usage(input_tokens=1, output_tokens=n) for n in (1, 2))
    assert folded(UsageChunk(usage=first), UsageChunk(usage=last)).usage == last


@pytest.mark.holds("LA06", "LA07", "LA22")
def test_an_open_block_of_an_unknown_type_cannot_be_built_but_is_dropped_when_interrupted() -> None:
    assembler = folded(
        BlockStartChunk(index=0, block_type="video"), text(1, "kept"), text(2, " \n")
    )
    with pytest.raises(InvariantError, match="block 0 of type 'video'"):
        assembler.blocks()
    assert assembler.interrupted_blocks() == (TextBlock(text="kept"),)


@pytest.mark.holds("LA10", "E4", "case-030")
def test_calls_without_an_id_or_with_a_used_id_get_one_of_their_own() -> None:
    assembler = folded(
        call(0, "", "{}", "a"), call(1, "same", "{}", "b"), call(2, "same", "{}", "c")
    )
    ids = [block.id for block in assembler.blocks() if isinstance(block, ToolCallBlock)]
    assert ids == ["call-0", "same", "same-2"]


@pytest.mark.holds("E4", "LQ04")
def test_the_finish_is_the_last_one_seen_and_a_missing_finish_is_a_closed_stream() -> None:
    assert folded(finish(StopFinish()), finish(ToolCallsFinish())).finish == ToolCallsFinish()
    cut = folded(text(0, "half"))
    assert not cut.finished
    assert isinstance(cut.finish, ErrorFinish)
    assert cut.finish.failure.code == "STREAM_CLOSED"


@pytest.mark.holds("E5", "LA14", "LA15", "LA16")
def test_max_tokens_drops_calls_and_their_replay_entries_and_nothing_else() -> None:
    replay = ReplayEnvelope(response="r", blocks=("t", "c"))
    cut = folded(text(0, "t"), call(1, "c", '{"a', "ls"), finish(MaxTokensFinish(), replay))
    assert cut.blocks() == (TextBlock(text="t"),)
    assert cut.replay_state == ReplayEnvelope(response="r", blocks=("t",))
    whole = folded(text(0, "t"), finish(MaxTokensFinish(), ReplayEnvelope(response="r")))
    assert whole.blocks() == (TextBlock(text="t"),)
    assert whole.replay_state == ReplayEnvelope(response="r")
    kept = folded(text(0, "t"), call(1, "c", "{}", "ls"), finish(ToolCallsFinish(), replay))
    assert kept.replay_state is replay


@pytest.mark.holds("LA13")
def test_replay_entries_that_do_not_match_the_blocks_are_left_out() -> None:
    replay = ReplayEnvelope(response="r", blocks=("t", "c", "x"))
    assembler = folded(text(0, "t"), call(1, "c", "", "ls"), finish(ToolCallsFinish(), replay))
    assert assembler.replay_state == ReplayEnvelope(response="r")


@pytest.mark.holds("LA17", "LA18")
def test_something_that_is_no_chunk_is_refused_by_name() -> None:
    with pytest.raises(InvariantError, match="dict is not a stream chunk"):
        folded(cast("StreamChunk", {"type": "text-delta"}))


@pytest.mark.holds("E6", "LA20", "LA21")
def test_an_interrupted_reply_keeps_text_and_reasoning_open_or_closed_and_no_call() -> None:
    assembler = folded(
        ReasoningDeltaChunk(index=0, text="think"),
        BlockEndChunk(index=0, block=ReasoningBlock(text="think")),
        call(1, "c1", "{}", "ls"),
        BlockEndChunk(index=1, block=ToolCallBlock(id="c1", name="ls", arguments="{}")),
        text(2, "half a sen"),
        call(3, "c2", '{"x', "rm"),
        ReasoningDeltaChunk(index=4, text="   "),
    )
    assert assembler.interrupted_blocks() == (
        ReasoningBlock(text="think"),
        TextBlock(text="half a sen"),
    )


chunks = st.one_of(
    st.builds(TextDeltaChunk, index=st.integers(0, 3), text=st.text(max_size=4)),
    st.builds(ReasoningDeltaChunk, index=st.integers(0, 3), text=st.text(max_size=4)),
    st.builds(
        ToolCallDeltaChunk,
        index=st.integers(0, 3),
        id=st.sampled_from(["", "a", "b"]),
        name=st.sampled_from([None, "ls"]),
        arguments_delta=st.text(max_size=4),
    ),
    st.builds(
        BlockStartChunk,
        index=st.integers(0, 3),
        block_type=st.sampled_from(["text", "reasoning", "tool-call"]),
    ),
    st.builds(
        BlockEndChunk, index=st.integers(0, 3), block=st.builds(TextBlock, text=st.text(max_size=4))
    ),
    st.builds(FinishChunk, reason=st.sampled_from([StopFinish(), MaxTokensFinish()])),
)


@pytest.mark.holds("LQ01", "LQ03")
@given(st.lists(chunks, max_size=30))
def test_any_chunks_of_known_types_fold_to_at_most_one_block_an_index(
    given_chunks: list[StreamChunk],
) -> None:
    assembler = folded(*given_chunks)
    blocks = assembler.blocks()
    assert len(blocks) <= 4
    ids = [block.id for block in blocks if isinstance(block, ToolCallBlock)]
    assert len(ids) == len(set(ids))
    assert all(ids)
    assert len(assembler.interrupted_blocks()) <= 4
    again = folded(*given_chunks)
    assert again.blocks() == blocks


def test_arguments_stay_raw_text() -> None:
    raw = json.dumps({"q": "ä"}) + " trailing"
    assembler = folded(call(0, "c", raw[:7], "ls"), call(0, "c", raw[7:]))
    (block,) = assembler.blocks()
    assert isinstance(block, ToolCallBlock)
    assert block.arguments == raw
