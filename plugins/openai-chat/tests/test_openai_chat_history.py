"""Request bodies: what a history looks like on the wire."""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from typing import TYPE_CHECKING, cast

import orjson
import pytest
from attrs import evolve

from dsh.catalog.records import (
    AssistantMessage,
    ContentBlock,
    ImageAttachmentRef,
    ImageBlock,
    Message,
    ModelProfile,
    ModelSource,
    ReasoningBlock,
    SystemMessage,
    SystemPromptSource,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    ToolSchema,
    ToolSource,
    UserMessage,
)
from dsh.errors import LlmError
from dsh.hooks import Line, frozen_object
from dsh.testing import refusal_of
from dsh.testing.effort import calls_of
from dsh.testing.model_seam import ask, user
from dsh_plugins.openai_chat.catalog import ProviderProfile
from dsh_plugins.openai_chat.families import FAMILIES, server_of
from dsh_plugins.openai_chat.history import BodyEncoder, wire_arguments

if TYPE_CHECKING:
    from dsh.hooks import JsonObject, JsonValue
    from dsh.hooks.live import LlmRequest


def encoder(provider: str = "p", **fields: object) -> BodyEncoder:
    profile = ProviderProfile(base_url="http://127.0.0.1", **fields)  # type: ignore[arg-type]
    return BodyEncoder(server_of(provider, profile))


def wire(request: LlmRequest, with_encoder: BodyEncoder | None = None) -> dict[str, JsonValue]:
    body = (with_encoder or encoder()).body(request)
    return cast("dict[str, JsonValue]", orjson.loads(body))


def said(*blocks: ContentBlock, provider: str = "p", message_id: str = "a1") -> AssistantMessage:
    return AssistantMessage(
        id=message_id, content=blocks, source=ModelSource(provider=provider, model="m")
    )


def call(call_id: str, arguments: str = "{}") -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="ls", arguments=arguments)


def result(call_id: str, text: str = "ok") -> ToolResultMessage:
    return ToolResultMessage(
        id=f"r-{call_id}",
        content=(TextBlock(text=text),),
        source=ToolSource(call_id=call_id),
        tool_call_id=call_id,
    )


def system(text: str) -> SystemMessage:
    return SystemMessage(id="s", content=(TextBlock(text=text),), source=SystemPromptSource())


def sent(*messages: Message, with_encoder: BodyEncoder | None = None) -> list[JsonObject]:
    return cast("list[JsonObject]", wire(ask(*messages), with_encoder)["messages"])


@pytest.mark.holds("case-032")
def test_messages_go_in_order_and_each_result_follows_its_calls() -> None:
    history = (
        system("Be brief."),
        user("go"),
        said(TextBlock(text="I look."), call("a"), call("b"), call("c"), call("d")),
        result("a"),
        result("b"),
        result("c"),
        result("d", "Error: denied"),
        user("steer", "u2"),
    )
    messages = sent(*history)
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "tool", "tool", "tool", "tool", "user",
    ]  # fmt: skip
    assert [message.get("tool_call_id") for message in messages[3:7]] == ["a", "b", "c", "d"]
    assert refusal_of(wire(ask(*history))) is None
    assert messages[2] == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": name, "type": "function", "function": {"name": "ls", "arguments": "{}"}}
            for name in "abcd"
        ],
    }


@pytest.mark.holds("case-027")
def test_nothing_is_null_nothing_is_empty_and_every_result_has_content() -> None:
    messages = sent(
        user("hi"),
        said(call("c1")),
        result("c1", ""),
        said(message_id="a2"),
        said(ReasoningBlock(text="only thought"), message_id="a3"),
        said(TextBlock(text=""), message_id="a4"),
        user("again", "u2"),
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert messages[1]["content"] == ""
    assert messages[2]["content"] == "(no output)"
    assert refusal_of({"model": "m", "messages": messages}) is None


@pytest.mark.holds("case-025")
def test_reasoning_goes_back_byte_exact_where_it_is_wanted_and_nowhere_else() -> None:
    thought = "\n\nLet me look.  "
    mine = said(ReasoningBlock(text=thought), call("c1"))
    bare = said(TextBlock(text="done"), message_id="a2")
    foreign = said(ReasoningBlock(text="theirs"), TextBlock(text="x"), provider="q")
    history = (user("hi"), mine, result("c1"), bare, foreign, user("on", "u2"))

    def fields(family: str, provider: str = "p") -> list[JsonValue]:
        body = wire(ask(*history), encoder(provider, family=family))
        messages = cast("list[JsonObject]", body["messages"])
        return [
            message.get("reasoning_content", message.get("reasoning"))
            for message in messages
            if message["role"] == "assistant"
        ]

    assert fields("deepseek") == [thought, None, "theirs"]
    assert fields("generic") == [thought, None, None]
    assert fields("openai") == [None, None, None]
    assert fields("openrouter") == [thought, None, None]
    generic = sent(*history)
    assert "reasoning_content" not in generic[3]
    # A server that remembers what it thought accepts it, and refuses a history without it.
    memory = {"c1": thought}
    assert refusal_of({"model": "m", "messages": generic}, memory) is None
    without = wire(ask(*history), encoder(reasoning_passback="never"))
    refused = refusal_of(without, memory)
    assert refused is not None
    assert "reasoning_content" in refused


@pytest.mark.holds("case-025")
def test_reasoning_of_many_deltas_survives_a_round_trip_through_new_objects() -> None:
    """A resumed process has equal messages that are other objects: the bytes are the same."""
    thought = "\n\nLet me look.  "
    live_message = said(ReasoningBlock(text=thought), call("c1"))
    resumed = said(ReasoningBlock(text=f"{thought}"), call("c1"))
    assert live_message is not resumed
    request, after = ask(user("hi"), live_message), ask(user("hi"), resumed)
    assert encoder().body(request) == encoder().body(after)


@pytest.mark.holds("case-020", "case-022", "LM4")
@pytest.mark.parametrize(
    ("raw", "on_the_wire"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ("null", "{}"),
        ('{"path": "."}', '{"path": "."}'),
        ('{"a":1}{"a":1}', None),
        ('{"a":1} and prose', None),
        ('"{\\"a\\":1}"', None),
        ("[1]", None),
        ("42", None),
        ('{"a": NaN}', None),
        ("not json \u2028 ü", None),
    ],
)
def test_arguments_are_always_the_text_of_an_object_on_the_wire(
    raw: str, on_the_wire: str | None
) -> None:
    shown = wire_arguments(raw)
    if on_the_wire is None:
        assert json.loads(shown) == {"raw_arguments": raw}
    else:
        assert shown == on_the_wire
    history = (user("x"), said(call("c1", raw)), result("c1"))
    assert refusal_of(wire(ask(*history))) is None


@pytest.mark.holds("case-030")
def test_ids_on_the_wire_are_those_of_the_log() -> None:
    first, second = "functions.eval:1", "call_2"
    history = (user("x"), said(call(first), call(second)), result(first), result(second))
    messages = sent(*history)
    calls = cast("list[JsonObject]", messages[1]["tool_calls"])
    answers = [message["tool_call_id"] for message in messages[2:]]
    assert [each["id"] for each in calls] == answers


def grown() -> list[LlmRequest]:
    """The requests of one series: each extends the one before."""
    tools = (
        ToolSchema(
            name="ls",
            description="lists",
            parameters=frozen_object({"type": "object", "properties": {"ü": {"type": "string"}}}),
        ),
    )
    line: Line[Message] = Line([system("s"), user("hi")])
    requests: list[LlmRequest] = []
    for step in range(6):
        request = evolve(ask(), messages=line.so_far())
        requests.append(evolve(request, tools=tools, max_tokens=9, temperature=0.5, stop=("x",)))
        line.add(said(ReasoningBlock(text="r"), call(f"c{step}"), message_id=f"a{step}"))
        line.add(result(f"c{step}", f"line {step} — ok"))
    return requests


@pytest.mark.holds("LM5")
def test_a_body_made_with_the_cache_equals_a_fresh_one_byte_for_byte() -> None:
    warm = encoder()
    for request in grown():
        body = warm.body(request)
        assert body == encoder().body(request)
        assert body == orjson.dumps(orjson.loads(body))


@pytest.mark.holds("LM5")
def test_within_a_series_each_body_begins_with_the_one_before() -> None:
    bodies = [encoder().body(request) for request in grown()]
    for earlier, later in itertools.pairwise(bodies):
        assert later.startswith(earlier.removesuffix(b"]}"))


@pytest.mark.holds("LM5")
def test_a_body_costs_what_it_adds() -> None:
    def cost(count: int) -> int:
        warm = encoder()
        line: Line[Message] = Line(user("hi", f"u{number}") for number in range(count))
        warm.body(evolve(ask(), messages=line.so_far()))
        line.add(user("and", "u"))
        longer = evolve(ask(), messages=line.so_far())
        return calls_of(lambda: warm.body(longer))

    assert cost(10) == cost(3_000)


@pytest.mark.holds("LM5")
def test_a_message_is_encoded_once_and_the_cache_keeps_none_alive() -> None:
    warm = encoder()
    message = user("only once", "u9")
    encoded = warm.encoded(message)
    assert encoded in warm.body(ask(message))
    assert warm.encoded(message) is encoded
    alive = weakref.ref(message)
    del message
    gc.collect()
    assert alive() is None


def test_the_fields_of_a_call_are_sent_and_none_is_dropped_in_silence() -> None:
    request = evolve(
        ask(user("x")), temperature=0.25, max_tokens=77, stop=("END",), reasoning_effort="low",
        system="helper",
    )  # fmt: skip
    body = wire(request, encoder(extra_body=frozen_object({"seed": 3})))
    assert body["temperature"] == 0.25
    assert body["max_tokens"] == 77
    assert body["stop"] == ["END"]
    assert body["reasoning_effort"] == "low"
    assert body["seed"] == 3
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert cast("list[JsonObject]", body["messages"])[0] == {"role": "system", "content": "helper"}


def test_what_is_special_about_a_server_is_data() -> None:
    request = evolve(ask(user("x"), system("s")), max_tokens=5, reasoning_effort="high")
    openai = wire(request, encoder(family="openai", system_role="developer", stream_usage=False))
    assert openai["max_completion_tokens"] == 5
    assert "max_tokens" not in openai
    assert "stream_options" not in openai
    assert [m["role"] for m in cast("list[JsonObject]", openai["messages"])] == [
        "user",
        "developer",
    ]
    deepseek = wire(request, encoder(family="deepseek"))
    assert deepseek["thinking"] == {"type": "enabled"}
    assert deepseek["reasoning_effort"] == "high"
    off = wire(evolve(request, reasoning_effort="off"), encoder(family="deepseek"))
    assert off["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in off
    router = wire(request, encoder(family="openrouter"))
    assert router["reasoning"] == {"effort": "high"}
    own = frozen_object({"max": {"budget": 9}})
    assert wire(evolve(request, reasoning_effort="max"), encoder(efforts=own))["budget"] == 9
    with pytest.raises(LlmError, match="off, low, high, max; asked for 'tiny'") as caught:
        wire(evolve(request, reasoning_effort="tiny"), encoder(family="deepseek"))
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"


def test_what_cannot_be_sent_is_refused_by_name() -> None:
    picture = ImageBlock(
        attachment=ImageAttachmentRef(
            attachment_id="x", media_type="image/png", bytes=1, width=1, height=1, name="cat.png"
        )
    )
    message = UserMessage(id="u", content=(picture,), source=user("").source)
    with pytest.raises(LlmError, match=r"cannot send image 'cat\.png'") as caught:
        sent(message)
    assert caught.value.code == "UNSUPPORTED_CONTENT"
    with pytest.raises(LlmError, match="cannot be written as JSON") as caught:
        sent(user("\udc80"))
    assert caught.value.code == "INVALID_REQUEST"


def test_every_family_is_complete_and_a_profile_overrides_it() -> None:
    for name in FAMILIES:
        profile = ProviderProfile(family=name)  # type: ignore[arg-type]
        assert server_of("p", profile).habits == FAMILIES[name]
    assert server_of("deepseek", ProviderProfile()).habits == FAMILIES["deepseek"]
    assert server_of("other", ProviderProfile()).habits == FAMILIES["generic"]
    profile = ProviderProfile(
        base_url="http://x", done_required=False, models=(ModelProfile(id="m", max_tokens=3),)
    )
    server = server_of("deepseek", profile)
    assert server.habits.base_url == "http://x"
    assert server.habits.base_url_env is None
    assert server.habits.api_key_env == "DEEPSEEK_API_KEY"
    assert not server.habits.done_required
    assert server.route.model("m") == profile.models[0]
    assert server.route.model("n") is None
    named = server_of("deepseek", ProviderProfile(base_url_env="MY_URL"))
    assert named.habits.base_url is None
    assert named.habits.base_url_env == "MY_URL"
