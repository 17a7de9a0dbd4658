"""The scripted model: reading scripts and playing them."""

from __future__ import annotations

import pytest
import trio.testing

from dsh.catalog.records import (
    ErrorFinish,
    FinishChunk,
    LlmFailure,
    MaxTokensFinish,
    ReasoningBlock,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDeltaChunk,
    ToolCallBlock,
    ToolCallDeltaChunk,
    ToolCallsFinish,
    Usage,
)
from dsh.errors import ConfigError, UsageError
from dsh.llm import (
    Assembler,
    Script,
    ScriptedCall,
    ScriptedModel,
    ScriptEntry,
    grammar_fault,
    parse_script,
)
from dsh.testing.model_seam import ask, collect, open_seam, user

SCRIPT = """\
- reasoning: Let me think.
  text: I will look  around.
  tools:
    - {name: read_file, arguments: {path: "a b.txt"}}
    - {name: bash, arguments: 'not json', id: my-id}
  usage: {inputTokens: 12, outputTokens: 3, cacheReadTokens: 4}
- text: cut
  finish: max-tokens
  expect: {lastMessageContains: world}
- error: {code: RATE_LIMIT, message: slow down, status: 429, retryAfterMs: 250}
- delay: 2.5
  text: late
"""


def assembled(chunks: list[StreamChunk]) -> Assembler:
    assert grammar_fault(chunks) is None
    assembler = Assembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


async def test_a_script_plays_word_by_word_and_calls_in_two_deltas(
    autojump_clock: trio.testing.MockClock,
) -> None:
    model = ScriptedModel(parse_script(SCRIPT, "play.yml"))
    async with open_seam() as seam:
        seam.llm.register(seam.ctx, model, ("p",))
        first = await seam.run(ask(user("hello world")))
        words = [chunk.text for chunk in first if isinstance(chunk, TextDeltaChunk)]
        assert words == ["I", " will", " look", "  around."]
        deltas = [chunk for chunk in first if isinstance(chunk, ToolCallDeltaChunk)]
        assert [(delta.index, delta.name) for delta in deltas] == [
            (2, "read_file"),
            (2, None),
            (3, "bash"),
            (3, None),
        ]
        reply = assembled(first)
        assert reply.finish == ToolCallsFinish()
        assert reply.usage == Usage(input_tokens=12, output_tokens=3, cache_read_tokens=4)
        thought, text, read, bash = reply.blocks()
        assert thought == ReasoningBlock(text="Let me think.")
        assert text == TextBlock(text="I will look  around.")
        assert isinstance(read, ToolCallBlock)
        assert read.id.startswith("call_")
        assert read.arguments == '{"path":"a b.txt"}'
        assert bash == ToolCallBlock(id="my-id", name="bash", arguments="not json")
        second = assembled(await seam.run(ask(user("hello world"))))
        assert second.finish == MaxTokensFinish()
        third = assembled(await seam.run(ask()))
        assert third.finish == ErrorFinish(
            failure=LlmFailure(
                code="RATE_LIMIT", message="slow down", status=429, provider_retry_after_ms=250.0
            )
        )
        before = trio.current_time()
        fourth = assembled(await seam.run(ask()))
        assert trio.current_time() - before == pytest.approx(2.5)
        assert fourth.finish == StopFinish()
        assert [len(request.messages) for request in model.requests] == [1, 1, 0, 0]


async def test_requests_past_the_end_and_mismatches_are_failed_attempts_that_say_where() -> None:
    model = ScriptedModel(Script(entries=(ScriptEntry(last_message_contains="abc"),), name="s.yml"))
    mismatch = assembled(await _run(model))
    exhausted = assembled(await _run(model))
    assert isinstance(mismatch.finish, ErrorFinish)
    assert mismatch.finish.failure.code == "SCRIPT_MISMATCH"
    assert "s.yml, entry 1" in mismatch.finish.failure.message
    assert "'abc'" in mismatch.finish.failure.message
    assert isinstance(exhausted.finish, ErrorFinish)
    assert exhausted.finish.failure.code == "SCRIPT_EXHAUSTED"
    assert "s.yml has 1 entries" in exhausted.finish.failure.message


async def _run(model: ScriptedModel) -> list[StreamChunk]:
    async with open_seam() as seam:
        seam.llm.register(seam.ctx, model, ("p",))
        return await seam.run(ask(user("xyz")))


async def test_a_stop_although_there_are_tools_and_a_plain_error_finish() -> None:
    stop = ScriptedModel([ScriptEntry(tools=(ScriptedCall(name="ls"),), finish="stop")])
    error = ScriptedModel([ScriptEntry(text="half", finish="error")])
    assert (await collect(stop.stream(ask())))[-1] == FinishChunk(reason=StopFinish())
    last = (await collect(error.stream(ask())))[-1]
    assert isinstance(last, FinishChunk)
    assert isinstance(last.reason, ErrorFinish)


def test_every_mistake_of_a_script_is_told_with_its_entry() -> None:
    bad = """\
- {text: no, tols: []}
- just words
- tools: [{arguments: {a: 1}}]
  finish: done
- error: {code: X}
  finish: stop
  usage: {inputTokens: -1}
  delay: soon
"""
    with pytest.raises(ConfigError) as caught:
        parse_script(bad, "bad.yml")
    assert caught.value.issues == (
        "bad.yml, entry 1: unknown key 'tols' in an entry; did you mean 'tools'?",
        "bad.yml, entry 1: text is the truth value false; write it in quotes",
        (
            "bad.yml, entry 2: an entry is text; expected a mapping with text, reasoning, tools, "
            "finish, error, usage, delay, expect"
        ),
        "bad.yml, entry 3: finish is 'done'; expected stop, max-tokens or error",
        "bad.yml, entry 3: a tool has no name",
        "bad.yml, entry 4: finish is 'stop' beside an error; take one of them out",
        "bad.yml, entry 4: usage.inputTokens is -1; expected a whole number of tokens",
        "bad.yml, entry 4: delay is 'soon'; expected seconds, 0 to 3600",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a: [", "s.yml is not YAML"), ("just: one", "a mapping; expected a list"), ("", "is empty")],
)
def test_what_is_no_list_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.")):
        parse_script(text, "s.yml")


def test_a_model_without_a_script_says_so_before_a_session_exists() -> None:
    with pytest.raises(UsageError, match="no script to play"):
        ScriptedModel(()).verify("scripted")
    ScriptedModel((ScriptEntry(text="x"),)).verify("scripted")
