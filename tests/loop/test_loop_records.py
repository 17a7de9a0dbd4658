"""Records that cross the loop: immutable, canonical, and no two facts of one that disagree."""

from __future__ import annotations

import attrs
import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import codec, records
from dsh.errors import LlmError
from dsh.hooks import InvalidJson
from dsh.llm import ResolvedModel
from dsh.loop.request import same_config
from dsh.testing import ScriptedReplies, call, calls, echo_tool, open_test_house, says

CONFIG = records.LlmCallConfig(
    provider="p", model="m", reasoning_effort="low", temperature=0.5, max_tokens=10, stop=("a", "b")
)


OTHERS = (
    evolve(CONFIG, provider="other"),
    evolve(CONFIG, model="other"),
    evolve(CONFIG, reasoning_effort="other"),
    evolve(CONFIG, temperature=1.0),
    evolve(CONFIG, max_tokens=11),
    evolve(CONFIG, stop=()),
    evolve(CONFIG, stop=("a",)),
    evolve(CONFIG, stop=("b", "a")),
)


@pytest.mark.holds("LC01", "D9")
def test_every_field_of_a_configuration_counts_and_every_stop() -> None:
    assert same_config(CONFIG, evolve(CONFIG))
    assert [other for other in OTHERS if same_config(CONFIG, other)] == []
    differing = {
        field.name
        for field in attrs.fields(records.LlmCallConfig)
        for other in OTHERS
        if getattr(other, field.name) != getattr(CONFIG, field.name)
    }
    assert differing == {field.name for field in attrs.fields(records.LlmCallConfig)}


@pytest.mark.holds("LC02", "LM01")
def test_what_a_request_is_made_of_cannot_be_changed_inside_either() -> None:
    message = user_message("hi")
    with pytest.raises(FrozenInstanceError):
        message.id = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        message.content[0].text = "bye"  # type: ignore[misc, union-attr]
    schema = records.ToolSchema(name="t", description="", parameters={"type": {"a": [1]}})
    inner = schema.parameters["type"]
    assert isinstance(inner, dict)
    with pytest.raises(TypeError, match="frozen"):
        inner["a"] = 2
    assert isinstance(CONFIG.stop, tuple)


@pytest.mark.holds("LM01", "LM02")
def test_a_message_has_an_identity_of_its_own_or_the_given_one() -> None:
    assert user_message("hi").id != user_message("hi").id
    assert user_message("hi", id="mine").id == "mine"
    text = ["shared"]
    content = (records.TextBlock(text=text[0]),)
    given = records.UserMessage(id="m", content=content, source=records.UserSource())
    text[0] = "changed"
    assert given.content == (records.TextBlock(text="shared"),)


@pytest.mark.holds("LM03", "LM04")
async def test_role_source_and_ids_of_what_the_loop_logs_belong_together() -> None:
    reply = calls(call("echo", '{"text": "x"}', call_id="c"))
    async with open_test_house(replies=[reply, says("so")], tools=[echo_tool()]) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        events = house.session(handle).events
        said = [e.data.message for e in events if isinstance(e.data, ev.assistant.Message)]
        for message in said:
            assert message.role == "assistant"
            assert message.source == records.ModelSource(provider="test", model="model-1")
        [(result, sources)] = [
            (e.data.message, e.source_event_seqs)
            for e in events
            if isinstance(e.data, ev.tool.Result)
        ]
        [called] = [e for e in events if isinstance(e.data, ev.tool.Call)]
        assert result.role == "tool"
        assert result.source == records.ToolSource(call_id="c")
        assert (result.tool_call_id, sources) == ("c", (called.seq,))


@pytest.mark.holds("LR02", "LR03")
def test_a_policy_is_what_was_configured_with_defaults_for_the_rest() -> None:
    always, normal = records.AlwaysRetryPolicy(), records.NormalRetryPolicy()
    waits = [(p.initial_delay_ms, p.max_delay_ms, p.jitter_ratio) for p in (always, normal)]
    assert waits == [(500, 10_000, 0.1)] * 2
    given = records.NormalRetryPolicy(retryable_codes=("SERVER",), max_retries=2)
    assert (given.max_retries, given.retryable_codes) == (2, ("SERVER",))
    with pytest.raises(FrozenInstanceError):
        given.max_retries = 3  # type: ignore[misc]


@pytest.mark.holds("LR05", "E11")
@pytest.mark.parametrize(
    "policy",
    [
        {"initial_delay_ms": 2000.0, "max_delay_ms": 1000.0},
        {"retryable_codes": ("",)},
        {"retryable_codes": ("SERVER", "SERVER")},
    ],
    ids=str,
)
async def test_a_policy_that_could_not_be_followed_is_refused_at_registration(
    policy: dict[str, object],
) -> None:
    given = records.NormalRetryPolicy(**policy)  # type: ignore[arg-type]
    adapter = ScriptedReplies([], policy=given)
    async with open_test_house() as house:
        with pytest.raises(LlmError, match="retry policy of provider 'other'") as refused:
            house.llm.register(house.ctx, adapter, ("other",))
        assert refused.value.code == "INVALID_RETRY_POLICY"


@pytest.mark.holds("LR05")
@pytest.mark.parametrize(
    "policy",
    [
        {"initial_delay_ms": 0},
        {"initial_delay_ms": float("nan")},
        {"max_delay_ms": float("inf")},
        {"jitter_ratio": -0.1},
        {"jitter_ratio": 1.1},
        {"max_retries": -1},
    ],
    ids=str,
)
def test_a_policy_out_of_its_bounds_cannot_be_made(policy: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(policy))):
        records.NormalRetryPolicy(**policy)  # type: ignore[arg-type]


@pytest.mark.holds("LC04", "CAT20")
@pytest.mark.parametrize("kind", ["deep", "cyclic"])
def test_nesting_beyond_all_measure_is_refused_by_its_path_and_ends(kind: str) -> None:
    value: dict[str, object] = {}
    if kind == "cyclic":
        value["a"] = value
    else:
        for _ in range(100_000):
            value = {"a": value}
    with pytest.raises(InvalidJson, match="nested deeper than 200, or cyclic"):
        records.ToolSchema(name="t", description="", parameters=value)


@pytest.mark.holds("LC04", "CAT20")
def test_scalars_stay_what_they_are() -> None:
    given = {"a": None, "b": True, "c": 1, "d": 1.5, "e": "x"}
    schema = records.ToolSchema(name="t", description="", parameters=given)
    assert schema.parameters == given
    assert [type(value) for value in schema.parameters.values()] == [
        type(value) for value in given.values()
    ]
    assert ResolvedModel().context_window is None


@pytest.mark.holds("SJ07")
def test_a_key_that_means_something_elsewhere_is_data() -> None:
    given = {"__proto__": {"a": 1}, "__class__": "x", "constructor": None}
    call = ev.tool.Rewritten(call_id="c", plugin="p", arguments=given)
    again = codec.decode(ev.tool.REWRITTEN.name, codec.encode(call))
    assert isinstance(again, ev.tool.Rewritten)
    assert again.arguments == given
    assert list(again.arguments) == list(given)
