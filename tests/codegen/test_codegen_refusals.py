"""What the codec says when it refuses, and what the catalog imports and when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from codegen.generate import load
from dsh import catalog as ev
from dsh.catalog import codec, registry
from dsh.catalog.refusal import CodecError
from dsh.hooks import EMPTY_OBJECT, FrozenDict

ROOT = Path(__file__).parents[2]


def reply(**message: object) -> dict[str, object]:
    """A stored `assistant/message`, its message changed."""
    good: dict[str, object] = {
        "role": "assistant",
        "id": "m1",
        "content": [{"type": "text", "text": "hi"}],
        "source": {"kind": "model", "provider": "p", "model": "m"},
    }
    return {"turn": 1, "step": 1, "message": {**good, **message}}


@pytest.mark.holds("CAT06")
@pytest.mark.parametrize(
    ("event", "data", "problem"),
    [
        ("turn/start", {"turn": True}, "turn: expected an integer, got boolean True"),
        ("turn/start", {"turn": "1"}, "turn: expected an integer, got text '1'"),
        ("turn/start", {"turn": 1.0}, "turn: expected an integer, got number 1.0"),
        ("turn/start", {"turn": 2**53}, "turn: integer 9007199254740992 is beyond ±(2**53 - 1)"),
        ("turn/start", {}, "turn: required field is missing"),
        (
            "turn/start",
            {"trun": 1},
            "turn: required field is missing; there is 'trun', which is not declared",
        ),
        ("turn/start", {"turn": 1, "turns": 1}, "turns: unknown field; did you mean 'turn'?"),
        ("turn/start", [], "expected an object, got list []"),
        ("turn/end", {"turn": 1, "reason": {}}, "reason.kind: required tag is missing; one of "),
        (
            "turn/end",
            {"turn": 1, "reason": {"kind": "complete"}},
            "reason.kind: unknown tag text 'complete'; one of completed, aborted, blocked, ",
        ),
        (
            "assistant/message",
            reply(content=[{"type": "text", "text": "a"}, {"type": "text", "text": 5}]),
            "message.content[1].text: expected text, got integer 5",
        ),
        (
            "assistant/message",
            reply(content={}),
            "message.content: expected a list, got object {}",
        ),
        (
            "assistant/message",
            reply(id="\ud83d"),
            "message.id: text with a lone surrogate; decode it with errors='replace' first",
        ),
        (
            "assistant/message",
            {**reply(), "usage": None},
            "usage: expected an object, got null",
        ),
        (
            "assistant/message",
            {**reply(), "interrupted": False},
            "interrupted: expected true, or no such field, got boolean False",
        ),
        (
            "assistant/message",
            reply(source={"kind": "model", "provider": "p", "model": "m", "replayState": None}),
            "message.source.replayState: null; leave the field out instead",
        ),
        (
            "assistant/message",
            reply(
                source={
                    "kind": "model",
                    "provider": "p",
                    "model": "m",
                    "replayState": {"a": [1, float("nan")]},
                }
            ),
            "message.source.replayState.a[1]: nan is not a JSON number; use null or a string",
        ),
        (
            "agent/inbox/spliced",
            {"target": "next-trun", "start": 0, "inserted": []},
            "target: expected one of next-turn, next-step, got text 'next-trun'",
        ),
    ],
)
def test_a_refusal_names_the_path_and_the_value(event: str, data: object, problem: str) -> None:
    with pytest.raises(CodecError) as caught:
        codec.decode(event, data)
    assert str(caught.value).startswith(problem)


@pytest.mark.holds("CAT06")
def test_what_could_not_be_read_back_is_not_written() -> None:
    unchecked = cast("int", "1")
    with pytest.raises(CodecError, match=r"^turn: expected an integer, got text '1'$"):
        codec.encode(ev.turn.Start(turn=unchecked))
    listed = cast("tuple[ev.records.UserMessage, ...]", [])
    spliced = ev.agent.InboxSpliced(target="next-turn", start=0, inserted=listed)
    with pytest.raises(CodecError, match=r"^inserted: expected a tuple, got list \[\]$"):
        codec.encode(spliced)
    alien = cast("ev.records.Usage", ev.records.SeqRange(start=0, end=1))
    chunk = ev.assistant.Chunk(turn=1, step=1, chunk=ev.records.UsageChunk(usage=alien))
    with pytest.raises(CodecError, match=r"^chunk\.usage: expected Usage, got SeqRange"):
        codec.encode(chunk)
    reason = cast("ev.records.TurnEndReason", "completed")
    with pytest.raises(CodecError, match=r"^reason: expected TurnEndReason .*, got text 'complet"):
        codec.encode(ev.turn.End(turn=1, reason=reason))


@pytest.mark.holds("CAT06")
def test_json_fields_are_frozen_when_the_payload_is_made() -> None:
    arguments: dict[str, object] = {"a": [1]}
    payload = ev.tool.Rewritten(call_id="c", plugin="p", arguments=arguments)
    arguments["a"] = 2
    assert payload.arguments == {"a": (1,)}
    assert type(payload.arguments) is FrozenDict
    with pytest.raises(ValueError, match="list where an object is due"):
        ev.tool.Rewritten(call_id="c", plugin="p", arguments=[])


@pytest.mark.holds("CAT07")
def test_records_are_written_on_their_own() -> None:
    header = ev.records.SessionHeader(version=1, id="s", created_at=5, cwd="/w")
    data = codec.encode_record(header)
    assert data == {"version": 1, "id": "s", "createdAt": 5, "cwd": "/w"}
    assert codec.decode_record(ev.records.SessionHeader, data) == header
    assert codec.encode_record(ev.records.Append()) == "append"
    assert codec.decode_surface_op("append") == ev.records.Append()
    replace = ev.records.Replace(start_seq=1, end_seq=2)
    assert codec.encode_surface_op(replace) == {"op": "replace", "startSeq": 1, "endSeq": 2}
    assert codec.decode_surface_op(codec.encode_surface_op(replace)) == replace
    message = ev.records.UserMessage(id="m", content=(), source=ev.records.UserSource())
    assert codec.decode_message(codec.encode_record(message)) == message
    with pytest.raises(KeyError):
        codec.encode_record(EMPTY_OBJECT)


@pytest.mark.holds("CAT07")
def test_the_total_of_tokens_is_derived() -> None:
    usage = ev.records.Usage(input_tokens=1, output_tokens=2, cache_read_tokens=4)
    assert usage.total_tokens == 7
    reported = ev.records.Usage(input_tokens=1, output_tokens=2, reported_total_tokens=9)
    assert reported.total_tokens == 9
    assert codec.encode_record(reported) == {
        "inputTokens": 1,
        "outputTokens": 2,
        "reportedTotalTokens": 9,
    }


@pytest.mark.holds("CAT08")
def test_the_registry_knows_every_token_by_its_name() -> None:
    assert set(registry.TOKENS) == {event.name for event in load(ROOT).core.events}
    assert all(token.name == name for name, token in registry.TOKENS.items())
    assert {name: registry.TOKENS[name] for name in registry.DURABLES} == dict(registry.DURABLES)
    assert "turn/start" in registry.DURABLES
    assert "agent/pre-step" not in registry.DURABLES
    assert registry.DURABLES["turn/start"] is ev.turn.START
    assert ev.turn.Start.TOKEN is ev.turn.START
    with pytest.raises(KeyError):
        registry.TOKENS["turn/begin"]


def imported(code: str) -> set[str]:
    """The catalog modules that a program has imported at its end."""
    tail = "; import sys; print(*[m for m in sys.modules if m.startswith('dsh.catalog.')])"
    command = [sys.executable, "-c", code + tail]
    run = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.holds("CAT08")
def test_a_program_pays_only_for_the_domains_it_names() -> None:
    assert imported("import dsh") == set()
    assert imported("from dsh import catalog as ev") == set()
    assert imported("from dsh import catalog as ev; ev.turn.START") == {
        "dsh.catalog.records",
        "dsh.catalog.turn",
    }
    codec_only = {"dsh.catalog.codec", "dsh.catalog.records", "dsh.catalog.refusal"}
    assert imported("import dsh.catalog.codec") == codec_only
    decode = "from dsh.catalog import codec; codec.decode('step/start', {'turn': 1, 'step': 1})"
    assert imported(decode) == {*codec_only, "dsh.catalog.step"}
    wire = {"dsh.catalog.history", "dsh.catalog.registry", "dsh.catalog.assistant", *codec_only}
    assert imported("import dsh.wire") == wire  # packing knows streamed deltas
    one = "from dsh.catalog import registry; registry.TOKENS['user/message']"
    assert imported(one) == {"dsh.catalog.registry", "dsh.catalog.records", "dsh.catalog.user"}


@pytest.mark.holds("CAT08")
def test_a_misspelt_domain_is_named_with_its_neighbour() -> None:
    with pytest.raises(AttributeError, match=r"no domain 'agents'; did you mean 'agent'\?"):
        getattr(ev, "agents")  # noqa: B009 - a type checker refuses the attribute
