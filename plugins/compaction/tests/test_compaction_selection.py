"""Which nodes are summarised, and how results are cut: pure, so every cut is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.catalog import records
from dsh.errors import ConfigError
from dsh_plugins.compaction.catalog import CompactionConfig, ModelPolicy
from dsh_plugins.compaction.policy import check_config, limits_for
from dsh_plugins.compaction.pruning import Cut, cut_blocks
from dsh_plugins.compaction.selection import Node, Span, balanced, select

if TYPE_CHECKING:
    from collections.abc import Sequence


def says(tokens: int = 100) -> Node:
    return Node(seq=0, tokens=tokens)


def asks(*calls: str) -> Node:
    return Node(seq=0, tokens=10, calls=calls)


def answer(call: str, tokens: int = 125) -> Node:
    return Node(seq=0, tokens=tokens, answers=call)


PROMPT = Node(seq=0, tokens=50, system=True)
OLD = Node(seq=0, tokens=300, checkpoint=True)

#: The history of case 045, with the system prompt in front.
HISTORY = (
    PROMPT,
    says(),
    asks("a", "b", "c"),
    answer("a"),
    answer("b"),
    answer("c"),
    asks("d"),
    answer("d"),
    says(),
    asks("e", "f"),
    answer("e"),
    answer("f"),
    says(),
    says(),
    asks("a"),
    answer("a"),
)


def whole(nodes: Sequence[Node]) -> bool:
    """Whether calls and results of these nodes pair up exactly, results after their calls."""
    return balanced(nodes)[-1] and all(
        any(node.answers in earlier.calls for earlier in nodes[:at])
        for at, node in enumerate(nodes)
        if node.answers is not None
    )


@pytest.mark.holds("CO4", "case-045")
@pytest.mark.parametrize("kept", range(len(HISTORY) + 1))
def test_wherever_the_tail_should_begin_no_call_is_parted_from_its_result(kept: int) -> None:
    tail = sum(node.tokens for node in HISTORY[kept:])
    span = select(HISTORY, retain=tail, limit=None)
    if span is None:
        # Only before the first complete exchange there is nothing to stand in for.
        assert kept <= 1
        return
    inside, rest = HISTORY[span.start : span.end], HISTORY[span.end :]
    assert span.start == 1
    assert whole(inside)
    assert whole(rest)
    assert sum(node.tokens for node in rest) >= tail or kept == len(HISTORY)
    assert rest


@pytest.mark.holds("CO4", "case-045")
@pytest.mark.parametrize("kept", range(3, len(HISTORY)))
@pytest.mark.parametrize("again", range(1, len(HISTORY)))
def test_a_second_compaction_over_an_older_one_is_whole_again(kept: int, again: int) -> None:
    first = select(HISTORY, retain=sum(n.tokens for n in HISTORY[kept:]), limit=None)
    assert first is not None
    nodes = (*HISTORY[: first.start], OLD, *HISTORY[first.end :])
    retain = sum(node.tokens for node in nodes[min(again, len(nodes)) :])
    second = select(nodes, retain=retain, limit=None)
    if second is None:
        assert again <= 2 or not whole(nodes[1:again]) or len(nodes) <= 4
        return
    inside = nodes[second.start : second.end]
    assert OLD in inside
    assert len(inside) > 1
    assert whole(inside)
    assert whole(nodes[second.end :])


@given(st.data())
def test_no_history_and_no_limit_makes_an_unlawful_range(data: st.DataObject) -> None:
    nodes: list[Node] = []
    for _ in range(data.draw(st.integers(0, 8))):
        kind = data.draw(st.sampled_from(["says", "batch", "prompt", "old"]))
        if kind == "batch":
            ids = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
            nodes.append(asks(*ids))
            nodes.extend(answer(one, data.draw(st.integers(1, 500))) for one in ids)
        else:
            nodes.append({"says": says(), "prompt": PROMPT, "old": OLD}[kind])
    retain = data.draw(st.integers(0, 1500))
    limit = data.draw(st.none() | st.integers(0, 1500))
    span = select(nodes, retain=retain, limit=limit)
    if span is None:
        return
    inside = nodes[span.start : span.end]
    assert inside
    assert not any(node.system for node in inside)
    assert not all(node.checkpoint for node in inside)
    assert whole(inside)
    assert whole(nodes[span.end :])
    assert span.end < len(nodes)
    if limit is not None:
        assert sum(node.tokens for node in nodes[: span.end]) <= limit


@pytest.mark.holds("CO4")
def test_a_system_prompt_in_the_middle_is_never_inside() -> None:
    nodes = (PROMPT, says(), says(), PROMPT, says(900), says(), says())
    assert select(nodes, retain=0, limit=None) == Span(4, 6)
    assert select(nodes, retain=1000, limit=None) == Span(1, 3)


@pytest.mark.holds("CO4")
def test_nothing_is_selected_that_is_not_worth_a_request() -> None:
    assert select((), retain=0, limit=None) is None
    assert select((says(),), retain=0, limit=None) is None
    assert select((OLD, says()), retain=0, limit=None) is None
    assert select((says(40), says()), retain=0, limit=None, least=40) is None
    assert select((says(41), says()), retain=0, limit=None, least=40) == Span(0, 1)


@pytest.mark.holds("CO5")
def test_the_range_ends_where_its_own_request_would_not_fit() -> None:
    assert select(HISTORY, retain=0, limit=400) == Span(1, 2)
    assert select(HISTORY, retain=0, limit=560) == Span(1, 6)
    assert select(HISTORY, retain=0, limit=60) is None


TEXT = "".join(chr(97 + at % 26) for at in range(1000))
CUT = Cut(threshold=500, head=200, tail=100)


def text(value: str) -> records.TextBlock:
    return records.TextBlock(text=value)


@pytest.mark.holds("CO3")
def test_a_long_result_keeps_its_ends_and_says_what_is_gone() -> None:
    made = cut_blocks([text(TEXT)], CUT)
    assert made is not None
    (block,) = made
    assert isinstance(block, records.TextBlock)
    assert block.text.startswith(TEXT[:200])
    assert block.text.endswith(TEXT[-100:])
    assert "700 characters were taken out" in block.text
    assert len(block.text) <= CUT.threshold
    assert cut_blocks(made, CUT) is None


@pytest.mark.holds("CO3")
@given(st.lists(st.text(alphabet="ab", max_size=400), max_size=6), st.integers(0, 5))
def test_cutting_keeps_both_ends_and_other_blocks_in_their_places(
    texts: list[str], place: int
) -> None:
    file = records.FileBlock(
        attachment=records.FileAttachmentRef(attachment_id="f", name="f", bytes=1)
    )
    blocks: list[records.ContentBlock] = [text(one) for one in texts]
    blocks.insert(min(place, len(blocks)), file)
    joined = "".join(texts)
    made = cut_blocks(blocks, CUT)
    if len(joined) <= CUT.threshold:
        assert made is None
        return
    assert made is not None
    after = "".join(block.text for block in made if isinstance(block, records.TextBlock))
    assert after.startswith(joined[:200])
    assert after.endswith(joined[-100:])
    assert after.count("were taken out here") == 1
    assert made.count(file) == 1
    assert cut_blocks(made, CUT) is None


@pytest.mark.holds("CO1")
def test_the_limits_follow_the_context_and_the_reply_s_own_room() -> None:
    limits = limits_for(CompactionConfig(), "p", "m", 100_000, None)
    assert (limits.threshold, limits.retain, limits.summary) == (80_000, 16_000, 8192)
    assert limits_for(CompactionConfig(), "p", "m", 100_000, 32_000).threshold == 68_000
    assert limits_for(CompactionConfig(), "p", "m", 8000, None).summary == 1000
    assert limits_for(CompactionConfig(), "p", "m", None, None).threshold is None
    own = CompactionConfig(
        model_policies=(ModelPolicy(provider="p", model="m", threshold_ratio=0.5, retain_tokens=9),)
    )
    assert limits_for(own, "p", "m", 1000, None).threshold == 500
    assert limits_for(own, "p", "m", 1000, None).retain == 9
    assert limits_for(own, "p", "other", 1000, None).threshold == 800


@pytest.mark.holds("CO1")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        (CompactionConfig(summarization_model="m"), "go together"),
        (CompactionConfig(retain_ratio=0.1, retain_tokens=5), "exclude each other"),
        (CompactionConfig(retain_ratio=0.9), "must be smaller than thresholdRatio"),
        (CompactionConfig(threshold_ratio=0.1), "must be smaller than thresholdRatio"),
        (CompactionConfig(prune_head=8000), "leave no room"),
        (
            CompactionConfig(
                model_policies=(ModelPolicy(provider="p", model="m", retain_ratio=0.95),)
            ),
            "for p/m: retainRatio",
        ),
    ],
)
def test_values_that_exclude_each_other_are_refused(config: CompactionConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_config(config)
