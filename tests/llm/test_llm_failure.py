"""The one classifier: thrown errors, in-band errors, hostile errors, and providers' wordings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from dsh.errors import HarnessError, LlmError, MissingCredential
from dsh.llm import classify, describe, error_facts, failure_of, raised

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

OVERFLOW: tuple[tuple[int, str | None, str], ...] = (
    (
        400,
        "context_length_exceeded",
        (
            "You passed 99073 input tokens and requested 32000 output tokens. However, the model's "
            "context length is only 131072 tokens, resulting in a maximum input length of 99072 "
            "tokens."
        ),
    ),
    (
        400,
        None,
        (
            "This model's maximum context length is 262144 tokens. However, you requested 0 output "
            "tokens and your prompt contains at least 262145 input tokens."
        ),
    ),
    (
        400,
        None,
        (
            "input length and `max_tokens` exceed context limit: 196758 + 8192 > 200000, decrease "
            "input length or `max_tokens` and try again"
        ),
    ),
    (400, None, "prompt is too long: 205000 tokens > 200000 maximum"),
    (
        400,
        "exceed_context_size_error",
        "the request exceeds the available context size, try increasing it",
    ),
    (
        400,
        None,
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    (413, None, "Request Entity Too Large"),
    (
        400,
        None,
        "Requested token count exceeds the model's maximum context length of 65536 tokens.",
    ),
    (400, None, "Input is too long for requested model."),
    (
        200,
        "context_length_exceeded",
        (
            "Your input exceeds the context window of this model. Please adjust your input and try "
            "again."
        ),
    ),
    (400, "1261", "Prompt exceeds max length"),
    (400, None, "prompt token count of 130001 exceeds the limit of 128000"),
)

NOT_OVERFLOW: tuple[tuple[int, str | None, str, str], ...] = (
    (
        400,
        None,
        "max_tokens is too large: 300000. This model supports at most 8192 completion tokens.",
        "INVALID_REQUEST",
    ),
    (
        429,
        "rate_limit_exceeded",
        "Request too large for model on tokens per min (TPM): Limit 30000, Requested 41200.",
        "RATE_LIMIT",
    ),
    (
        400,
        "string_above_max_length",
        (
            "Invalid 'tools[0].function.description': string too long. Expected a string with "
            "maximum length 1024."
        ),
        "INVALID_REQUEST",
    ),
    (
        400,
        None,
        "Invalid 'messages[3].tool_calls[0].id': string too long. Expected maximum length 40.",
        "INVALID_REQUEST",
    ),
    (400, None, "reasoning_content: unsupported in context of this model", "INVALID_REQUEST"),
    (400, None, "Too many tools: maximum 128", "INVALID_REQUEST"),
)


@pytest.mark.holds("LS01", "case-044", "LM11")
@pytest.mark.parametrize(("status", "code", "words"), OVERFLOW)
@pytest.mark.parametrize("shape", ["plain", "bare string", "wrapped", "in-band"])
def test_every_known_overflow_wording_is_recognised_in_every_shape(
    status: int, code: str | None, words: str, shape: str
) -> None:
    body: JsonValue = {"error": {"message": words, "code": code}}
    if shape == "bare string":
        body = {"error": words}
    elif shape == "wrapped":
        body = {"error": {"message": "upstream said: " + json.dumps(body), "type": "error"}}
    facts = error_facts(body)
    # Inside a stream there is no status but the 200 of the stream.
    if shape == "in-band" and status != 413:
        assert facts.kind() == "CONTEXT_WINDOW_EXCEEDED"
    assert facts.kind(status) == "CONTEXT_WINDOW_EXCEEDED"


@pytest.mark.holds("LS02", "case-044")
@pytest.mark.parametrize(("status", "code", "words", "expected"), NOT_OVERFLOW)
def test_look_alikes_do_not_start_a_compaction(
    status: int, code: str | None, words: str, expected: str
) -> None:
    assert classify(status, code, words) == expected
    assert classify(None, code, words) != "CONTEXT_WINDOW_EXCEEDED"


@pytest.mark.holds("LS03", "LM11")
@pytest.mark.parametrize(
    ("status", "code", "words", "expected"),
    [
        (429, None, "slow down", "RATE_LIMIT"),
        (429, "insufficient_quota", "You exceeded your current quota", "QUOTA"),
        (429, None, "Quota exceeded for quota metric 'Requests' per minute", "RATE_LIMIT"),
        (402, None, "Insufficient Balance", "QUOTA"),
        (400, None, "Your credit balance is too low", "QUOTA"),
        (413, None, "Request too large on tokens per minute (TPM): Limit 6000", "RATE_LIMIT"),
        (401, None, "Authentication Fails", "AUTH"),
        (403, None, "forbidden", "AUTH"),
        (404, None, "model not found", "HTTP_404"),
        (418, None, "teapot", "HTTP_418"),
        (422, None, "bad field", "INVALID_REQUEST"),
        (500, None, "oops", "SERVER"),
        (529, None, "overloaded", "SERVER"),
        (None, "rate_limit_exceeded", "wait", "RATE_LIMIT"),
        (None, "server_error", "The server had an error", "SERVER"),
        (None, None, "Overloaded", "SERVER"),
        (None, "invalid_api_key", "no", "AUTH"),
        (None, "content_filter", "blocked", "CONTENT_FILTER"),
        (None, None, "something odd", "UNKNOWN"),
    ],
)
def test_paying_waiting_and_the_rest_are_told_apart(
    status: int | None, code: str | None, words: str, expected: str
) -> None:
    assert classify(status, code, words) == expected


@pytest.mark.parametrize(
    ("body", "code", "message", "status"),
    [
        ({"error": {"message": "m", "code": 429}}, None, "m", 429),
        ({"error": {"message": "m", "type": "t", "code": None}}, "t", "m", None),
        ({"object": "error", "message": "m", "code": 400}, None, "m", 400),
        ({"detail": [{"loc": ["body"]}]}, None, '[{"loc":["body"]}]', None),
        ({"message": "m", "code": "c"}, "c", "m", None),
        ("plain words", None, "plain words", None),
        (None, None, "", None),
        (7, None, "7", None),
    ],
)
def test_error_objects_are_read_in_the_shapes_servers_use(
    body: JsonValue, code: str | None, message: str, status: int | None
) -> None:
    facts = error_facts(body)
    assert (facts.code, facts.message, facts.status) == (code, message, status)


json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 700), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "detail", "x"]), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@given(json_values)
def test_no_error_object_breaks_the_reader(body: JsonValue) -> None:
    assert error_facts(body).kind(400)
    assert error_facts(body).kind()


@pytest.mark.holds("LS04", "LS08")
def test_the_message_shows_the_whole_chain_of_causes_once_each() -> None:
    caught = LlmError("cannot connect", code="TRANSPORT")
    caught.__cause__ = RuntimeError("dial failed")
    caught.__cause__.__context__ = OSError("no route to host")
    chain = "cannot connect: RuntimeError: dial failed: OSError: no route to host"
    assert describe(caught) == chain
    twice = LlmError("same words", code="SERVER")
    twice.__cause__ = LlmError("same words")
    assert describe(twice) == "same words"
    looped = ValueError("round")
    looped.__cause__ = looped
    assert describe(looped) == "ValueError: round"


@pytest.mark.holds("LS05", "LS07")
def test_members_of_a_group_are_rendered_and_a_sole_member_stands_for_its_group() -> None:
    group = ExceptionGroup("both failed", [ValueError("one"), KeyError("two")])
    assert failure_of(group).message == "both failed: ValueError: one: KeyError: 'two'"
    sole = ExceptionGroup("wrapped", [LlmError("inner", code="RATE_LIMIT", status=429)])
    assert failure_of(sole).code == "RATE_LIMIT"
    assert failure_of(sole).status == 429
    assert failure_of(ValueError()).message == "ValueError"


class HostileTextError(Exception):
    @override
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class HostileFactsError(LlmError):
    @override
    def __getattribute__(self, name: str) -> object:
        if name in {"code", "status", "request_id", "retry_after_ms"}:
            raise RuntimeError("no facts for you")
        return super().__getattribute__(name)


@pytest.mark.holds("LF01", "LF03", "LS06")
def test_hostile_errors_are_contained() -> None:
    assert failure_of(HostileTextError()).message == "HostileTextError (its text could not be read)"
    failure = failure_of(HostileFactsError("words", code="RATE_LIMIT"))
    assert (failure.message, failure.code, failure.status) == ("words", "UNKNOWN", None)
    assert failure_of(ValueError("half \udc80 surrogate")).message == "ValueError: half ? surrogate"


@pytest.mark.holds("LF02", "LF04", "LS16", "LS50")
def test_facts_are_kept_when_sound_and_refused_when_not() -> None:
    sound = failure_of(
        LlmError("m", code="RATE_LIMIT", status=429, retry_after_ms=1500, request_id="r-1")
    )
    assert (sound.code, sound.status, sound.provider_retry_after_ms, sound.request_id) == (
        "RATE_LIMIT",
        429,
        1500.0,
        "r-1",
    )
    odd = LlmError("", code="not a code", status=1000, retry_after_ms=float("nan"), request_id="")
    failure = failure_of(odd)
    assert (failure.code, failure.status) == ("UNKNOWN", None)
    assert (failure.provider_retry_after_ms, failure.request_id) == (None, None)
    assert failure.message == "LlmError"
    lying = LlmError("m")
    lying.status = cast("int", True)
    assert failure_of(lying).status is None
    assert len(failure_of(LlmError("x" * 100_000)).message) < 2100


@pytest.mark.holds("LS49", "LS51", "LS52")
def test_a_failure_becomes_an_error_with_the_same_facts_and_back() -> None:
    error = LlmError("m", code="SERVER", status=503, retry_after_ms=10, request_id="r")
    again = raised(failure_of(error))
    assert isinstance(again, HarnessError)
    assert failure_of(again) == failure_of(error)
    assert again.code == "SERVER"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (trio.TooSlowError(), "TIMEOUT"),
        (TimeoutError("t"), "TIMEOUT"),
        (ConnectionResetError("r"), "TRANSPORT"),
        (trio.BrokenResourceError(), "TRANSPORT"),
        (trio.ClosedResourceError(), "TRANSPORT"),
        (MissingCredential("K is not set"), "MISSING_CREDENTIAL"),
        (KeyError("x"), "UNKNOWN"),
    ],
)
def test_thrown_errors_have_a_code(error: Exception, code: str) -> None:
    assert failure_of(error).code == code
