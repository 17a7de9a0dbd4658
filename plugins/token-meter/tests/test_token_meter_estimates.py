"""Estimates without a tokenizer: pure, by kind of character, and never wildly low."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.catalog import records
from dsh_plugins.token_meter.estimate import VERSION, message_tokens, text_tokens, tools_tokens


@pytest.mark.holds("TM3")
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("naïve café", 3),
        ("你好、世界", 4),
        ("模型会话日志" * 100, 480),
        ("こんにちは", 4),
        ("안녕하세요", 5),
        ("привет", 3),
        ("🙂🙂", 4),
        ("𠀋", 1),
        ("read 文件 now", 4),
        ("┌──┐", 4),
    ],
)
def test_each_kind_of_character_has_its_weight(text: str, tokens: int) -> None:
    assert text_tokens(text) == tokens
    assert VERSION == 1


@pytest.mark.holds("TM3")
@given(st.text())
def test_an_estimate_is_between_a_quarter_and_two_tokens_a_character(text: str) -> None:
    tokens = text_tokens(text)
    assert len(text) / 4 <= tokens <= 2 * len(text)
    assert tokens == text_tokens(text)


@pytest.mark.holds("TM3")
@given(st.text(), st.text())
def test_a_longer_text_never_costs_less(one: str, other: str) -> None:
    joined = text_tokens(one + other)
    assert max(text_tokens(one), text_tokens(other)) <= joined
    assert joined <= text_tokens(one) + text_tokens(other)


@pytest.mark.holds("TM3")
def test_messages_and_tools_cost_their_texts_and_their_frames() -> None:
    source = records.ModelSource(provider="p", model="m")
    reply = records.AssistantMessage(
        id="m1",
        content=(
            records.ReasoningBlock(text="abcd"),
            records.TextBlock(text="abcdefgh"),
            records.ToolCallBlock(id="c", name="bash", arguments='{"a":1} '),
        ),
        source=source,
    )
    assert message_tokens(reply) == (1 + 4) + (2 + 4) + (1 + 2 + 4) + 4
    image = records.ImageAttachmentRef(
        attachment_id="a", media_type="image/png", bytes=1, width=750, height=100
    )
    file = records.FileAttachmentRef(attachment_id="b", name="b.txt", bytes=400)
    shown = records.UserMessage(
        id="u",
        content=(records.ImageBlock(attachment=image), records.FileBlock(attachment=file)),
        source=records.UserSource(),
    )
    assert message_tokens(shown) == (100 + 4) + (100 + 4) + 4
    schema = records.ToolSchema(name="bash", description="Runs it", parameters={"type": "object"})
    assert tools_tokens([schema]) == 1 + 2 + 5 + 4
    assert tools_tokens([]) == 0
