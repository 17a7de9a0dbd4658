"""Request bodies of the messages wire: lawful for a strict server, encoded once, cacheable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import orjson
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from dsh.catalog import records
from dsh.errors import LlmError
from dsh.hooks import Line
from dsh.hooks.live import LlmRequest
from dsh.testing import messages_refusal_of
from dsh.testing.effort import calls_of
from dsh_plugins.anthropic_messages.body import BodyEncoder
from dsh_plugins.anthropic_messages.catalog import MessagesProfile
from dsh_plugins.anthropic_messages.servers import server_of

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

SIGNED = {"sig": "I think."}
TOOL = records.ToolSchema(name="read", description="Reads", parameters={"type": "object"})


def encoder(profile: MessagesProfile | None = None) -> BodyEncoder:
    return BodyEncoder(server_of("p", profile or MessagesProfile()))


def said(text: str) -> records.UserMessage:
    block = records.TextBlock(text=text)
    return records.UserMessage(id=text, content=(block,), source=records.UserSource())


def prompt(text: str) -> records.SystemMessage:
    block = records.TextBlock(text=text)
    return records.SystemMessage(id="s", content=(block,), source=records.SystemPromptSource())


def reply(*blocks: records.ContentBlock, replay: JsonValue = None) -> records.AssistantMessage:
    source = records.ModelSource(provider="p", model="m", replay_state=replay)
    return records.AssistantMessage(id="a", content=blocks, source=source)


def calling(call_id: str, arguments: str = "{}") -> records.ToolCallBlock:
    return records.ToolCallBlock(id=call_id, name="read", arguments=arguments)


def result(call_id: str, text: str, *, is_error: bool = False) -> records.ToolResultMessage:
    return records.ToolResultMessage(
        id=f"r-{call_id}",
        content=(records.TextBlock(text=text),),
        source=records.ToolSource(call_id=call_id),
        tool_call_id=call_id,
        is_error=is_error,
    )


def request(*messages: records.Message, **more: object) -> LlmRequest:
    return LlmRequest(provider="p", model="m", messages=messages, **more)  # type: ignore[arg-type]


def sent(*messages: records.Message, **more: object) -> dict[str, JsonValue]:
    body: dict[str, JsonValue] = orjson.loads(encoder().body(request(*messages, **more)))
    assert messages_refusal_of(body, SIGNED) is None
    return body


def dig(value: JsonValue, *path: str | int) -> JsonValue:
    """The part of a JSON value at `path`."""
    for key in path:
        if isinstance(key, int):
            assert isinstance(value, list)
            value = value[key]
        else:
            assert isinstance(value, dict)
            value = value[key]
    return value


def parts(value: JsonValue, *path: str | int) -> list[JsonValue]:
    """The list at `path`."""
    found = dig(value, *path)
    assert isinstance(found, list)
    return found


def turns(body: dict[str, JsonValue]) -> list[tuple[JsonValue, list[JsonValue]]]:
    return [
        (dig(one, "role"), [dig(block, "type") for block in parts(one, "content")])
        for one in parts(body, "messages")
    ]


THOUGHT = reply(
    records.ReasoningBlock(text="I think."),
    records.TextBlock(text="So."),
    calling("c1"),
    calling("c2", "not json"),
    replay={"response": None, "blocks": ({"signature": "sig"}, None, None, None)},
)


@pytest.mark.holds("LM14")
def test_a_turn_with_thinking_and_calls_is_lawful() -> None:
    body = sent(
        prompt("Be brief."),
        said("go"),
        THOUGHT,
        result("c1", ""),
        result("c2", "bad", is_error=True),
        said("and now?"),
        tools=(TOOL,),
        reasoning_effort="high",
        max_tokens=32_000,
    )
    assert turns(body) == [
        ("user", ["text"]),
        ("assistant", ["thinking", "text", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result", "text"]),
    ]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 24_576}
    messages = body["messages"]
    assert dig(messages, 1, "content", 3, "input") == {"raw_arguments": "not json"}
    assert dig(messages, 2, "content", 0, "content", 0, "text") == "(no output)"
    assert dig(messages, 2, "content", 1, "is_error") is True
    assert dig(body, "system", 0, "text") == "Be brief."


@pytest.mark.holds("LM14")
def test_what_another_provider_said_is_lawful_too() -> None:
    foreign = reply(records.ReasoningBlock(text="secret thoughts"), calling("functions.read:1"))
    body = sent(
        said("go"),
        foreign,
        result("functions.read:1", "text"),
        tools=(TOOL,),
        reasoning_effort="low",
    )
    # Thinking without a signature stays behind, and this turn goes on without any.
    assert turns(body)[1] == ("assistant", ["tool_use"])
    assert "thinking" not in body
    call, answer = dig(body, "messages", 1, "content", 0), dig(body, "messages", 2, "content", 0)
    assert dig(call, "id") == dig(answer, "tool_use_id") != "functions.read:1"
    # The next turn thinks again.
    done = reply(records.TextBlock(text="done"))
    history = (said("go"), foreign, result("functions.read:1", "x"), done, said("more"))
    again = sent(*history, reasoning_effort="low")
    assert again["thinking"] == {"type": "enabled", "budget_tokens": 2048}


@pytest.mark.holds("LM14")
@pytest.mark.parametrize(
    "messages",
    [
        (reply(records.TextBlock(text="I begin")), said("go")),
        (said("a"), reply(records.TextBlock(text=" \n")), said("b")),
        (said("a"), reply(records.ReasoningBlock(text="only thought")), said("b")),
        (said("a"), said("b"), reply(records.TextBlock(text="c")), said(" "), said("d")),
        (said("a"), reply(calling("a")), result("a", "1"), reply(calling("a")), result("a", "2")),
        (),
    ],
)
def test_odd_histories_become_lawful(messages: tuple[records.Message, ...]) -> None:
    sent(*messages)


@pytest.mark.holds("LM14")
def test_redacted_thinking_goes_back_as_it_came() -> None:
    hidden = reply(
        records.ReasoningBlock(text=""),
        records.TextBlock(text="x"),
        replay={"response": None, "blocks": ({"redacted": "abc"}, None)},
    )
    body = sent(said("a"), hidden, said("b"))
    assert dig(body, "messages", 1, "content", 0) == {"type": "redacted_thinking", "data": "abc"}


@pytest.mark.holds("LM15")
def test_marks_are_on_tools_prompt_and_the_two_newest_of_the_user() -> None:
    body = sent(
        prompt("p"),
        said("1"),
        reply(records.TextBlock(text="2")),
        said("3"),
        reply(calling("c")),
        result("c", "4"),
        tools=(TOOL,),
    )
    marked = {"type": "ephemeral"}
    assert dig(body, "tools", -1, "cache_control") == marked
    assert dig(body, "system", -1, "cache_control") == marked
    where = [
        at
        for at, message in enumerate(parts(body, "messages"))
        if "cache_control" in str(dig(message, "content", -1))
    ]
    assert where == [2, 4]
    plain = BodyEncoder(server_of("p", MessagesProfile(cache="off")))
    assert b"cache_control" not in plain.body(request(prompt("p"), said("1"), tools=(TOOL,)))


@pytest.mark.holds("LM15")
def test_each_message_is_encoded_once_and_a_body_begins_like_the_one_before() -> None:
    kept = encoder(MessagesProfile(cache="off"))
    line: Line[records.Message] = Line([prompt("p"), said("go")])
    before = b""
    for at in range(30):
        history = line.so_far()
        body = kept.body(evolve(request(tools=(TOOL,)), messages=history))
        assert body == encoder(MessagesProfile(cache="off")).body(request(*history, tools=(TOOL,)))
        # Everything but the brackets at the end.
        assert body.startswith(before[:-4] if before else b"")
        before = body
        first = kept.encoded(history[-1])
        assert kept.encoded(history[-1]) is first
        line.add(reply(calling(f"c{at}")))
        line.add(result(f"c{at}", f"text {at}"))


MESSAGES = st.one_of(
    st.sampled_from(("", "Be brief.")).map(prompt),
    st.sampled_from((" ", "go")).map(said),
    st.sampled_from(("", "out")).map(lambda text: result("c1", text)),
    st.just(THOUGHT),
    st.sampled_from(
        (
            reply(),
            reply(records.TextBlock(text="So.")),
            reply(records.ReasoningBlock(text="only thought")),
            reply(calling("c1")),
        )
    ),
)


@pytest.mark.holds("LM14", "LM15")
@given(st.lists(MESSAGES, max_size=14), st.sampled_from(("marks", "off")))
def test_a_body_of_a_growing_history_equals_one_that_is_made_at_once(
    messages: list[records.Message], cache: Literal["marks", "off"]
) -> None:
    profile = MessagesProfile(cache=cache)
    kept = encoder(profile)
    line: Line[records.Message] = Line()
    for message in messages:
        line.add(message)
        asked = request(reasoning_effort="low", system="s")
        body = kept.body(evolve(asked, messages=line.so_far()))
        assert body == encoder(profile).body(evolve(asked, messages=[*line.so_far()]))


@pytest.mark.holds("LM15")
def test_a_body_costs_what_it_adds() -> None:
    def cost(steps: int) -> int:
        kept = encoder()
        line: Line[records.Message] = Line([prompt("p"), said("go")])
        for at in range(steps):
            line.add(reply(calling(f"c{at}")))
            line.add(result(f"c{at}", "text"))
        kept.body(evolve(request(), messages=line.so_far()))
        line.add(reply(calling("c")))
        line.add(result("c", "text"))
        longer = evolve(request(reasoning_effort="low"), messages=line.so_far())
        return calls_of(lambda: kept.body(longer))

    assert cost(10) == cost(1_500)


@pytest.mark.holds("LM14")
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"reasoning_effort": "huge"}, "UNSUPPORTED_REASONING_EFFORT"),
        ({"reasoning_effort": "low", "max_tokens": 1500}, "UNSUPPORTED_REASONING_EFFORT"),
        ({"reasoning_effort": "low", "temperature": 0.5}, "UNSUPPORTED"),
    ],
)
def test_what_the_wire_cannot_honour_is_refused(more: dict[str, object], code: str) -> None:
    with pytest.raises(LlmError) as caught:
        encoder().body(request(said("a"), **more))
    assert caught.value.code == code


@pytest.mark.holds("LM14")
def test_a_budget_leaves_room_below_the_cap() -> None:
    body = sent(said("a"), reasoning_effort="high", max_tokens=8000)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4000}


@pytest.mark.holds("LM14")
def test_images_are_refused_by_name() -> None:
    image = records.ImageAttachmentRef(
        attachment_id="i", media_type="image/png", bytes=1, width=1, height=1, name="cat.png"
    )
    shown = records.UserMessage(
        id="u", content=(records.ImageBlock(attachment=image),), source=records.UserSource()
    )
    with pytest.raises(LlmError, match=r"cat\.png") as caught:
        encoder().body(request(shown))
    assert caught.value.code == "UNSUPPORTED_CONTENT"
