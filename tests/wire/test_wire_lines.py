"""One event, one line: order of keys, strictness, headers, events nobody knows."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import orjson
import pytest
from attrs import asdict, evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import records
from dsh.errors import SessionUnreadable
from dsh.hooks import AnyDurable, InvalidJson, frozen_json
from dsh.testing import LogWriting
from dsh.wire import (
    FORMAT_VERSION,
    NotJson,
    StoredEvent,
    UnknownEvent,
    Unwritable,
    WireFault,
    decode_header,
    decode_line,
    encode_header,
    encode_line,
    encode_payload,
    refuse_unreadable,
    runs_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = records.SessionHeader(version=FORMAT_VERSION, id="s", created_at=1, cwd="/w")


def every_kind() -> Iterator[StoredEvent]:
    """A log with plain, surface, cited and replaced events."""
    log = LogWriting()
    log.whole_turn("hi", "a", "b", calls=("c1",))
    result = log.session.events[-3]
    assert isinstance(result.data, ev.tool.Result)
    changed = evolve(result.data.message, content=(records.TextBlock(text="short"),))
    log.session.append(
        evolve(result.data, message=changed),
        surface=records.Replace(start_seq=result.seq, end_seq=result.seq),
        sources=(result.seq,),
    )
    yield from log.session.events


def same(one: StoredEvent, other: StoredEvent) -> bool:
    return asdict(one, recurse=False) == asdict(other, recurse=False)


def test_a_line_has_its_keys_in_the_documented_order() -> None:
    event = StoredEvent(
        "tool/result",
        7,
        8,
        ev.turn.Start(turn=1),
        v=2,
        owner="acme@1",
        ignorable=True,
        surface_op=records.Replace(start_seq=1, end_seq=2),
        source_event_seqs=(1, 2, 5),
    )
    line = encode_line(event)
    keys = [
        "type",
        "v",
        "seq",
        "time",
        "owner",
        "ignorable",
        "surfaceOp",
        "sourceEventSeqs",
        "data",
    ]
    assert list(orjson.loads(line)) == keys
    assert b'"sourceEventSeqs":[[1,2],[5,5]]' in line
    assert b'"surfaceOp":{"op":"replace","startSeq":1,"endSeq":2}' in line


def test_absent_fields_are_left_out() -> None:
    line = encode_line(StoredEvent("turn/start", 0, 5, ev.turn.Start(turn=1)))
    assert line == b'{"type":"turn/start","seq":0,"time":5,"data":{"turn":1}}'


@pytest.mark.holds("SS03", "SS04", "SS06")
def test_every_event_of_a_turn_survives_the_round_trip() -> None:
    events = list(every_kind())
    assert any(event.surface_op == records.Append() for event in events)
    for event in events:
        again = decode_line(encode_line(event))
        assert same(event, again)
        assert encode_line(again) == encode_line(event)


@pytest.mark.holds("SS03", "SS04")
@pytest.mark.parametrize(
    "reason",
    [
        records.CompletedTurnEnd(),
        records.MaxTokensTurnEnd(),
        records.InterruptedTurnEnd(),
        records.AbortedTurnEnd(reason=records.HookCause(reason="no")),
        records.BlockedTurnEnd(reason="budget", plugin="token-budget"),
        records.ErrorTurnEnd(error=records.LlmFailure(message="m", code="SERVER", status=500)),
    ],
)
def test_turn_end_reasons_survive(reason: records.TurnEndReason) -> None:
    event = StoredEvent("turn/end", 0, 1, ev.turn.End(turn=1, reason=reason))
    assert decode_line(encode_line(event)).data == event.data


@pytest.mark.parametrize(
    "seqs", [(), (3,), (1, 2, 3), (1, 3, 4, 9), tuple(range(100)), (0, 2, 4, 6)]
)
def test_source_seqs_are_runs(seqs: tuple[int, ...]) -> None:
    runs = runs_of(seqs)
    assert tuple(seq for first, last in runs for seq in range(first, last + 1)) == seqs
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(runs))


@pytest.mark.holds("case-058")
def test_a_million_sources_are_one_run_and_come_back() -> None:
    sources = tuple(range(1_000_000))
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.reply()
    message = log.session.events[-1]
    event = evolve(message, seq=1_000_000, source_event_seqs=sources)
    line = encode_line(event)
    assert len(line) < 400
    assert decode_line(line).source_event_seqs == sources


@pytest.mark.holds("SS28", "SS46", "case-050")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"type":"turn/start","seq":1.0,"time":1,"data":{"turn":1}}', "`seq` is 1.0"),
        (b'{"type":"turn/start","seq":"1","time":1,"data":{"turn":1}}', '`seq` is "1"'),
        (b'{"type":"turn/start","seq":true,"time":1,"data":{"turn":1}}', "`seq` is true"),
        (b'{"type":"turn/start","seq":-1,"time":1,"data":{"turn":1}}', "`seq` is -1"),
        (b'{"type":"turn/start","seq":1' + b"0" * 30 + b',"time":1,"data":{}}', "`seq` is 1e"),
        (b'{"type":"turn/start","time":1,"data":{"turn":1}}', "`seq` is nothing"),
        (b'{"type":"turn/start","seq":1,"time":null,"data":{"turn":1}}', "`time` is null"),
        (b'{"type":"turn/start","seq":1,"time":1}', "`data` is missing"),
        (b'{"seq":1,"time":1,"data":{}}', "`type` is missing"),
        (b'{"type":7,"seq":1,"time":1,"data":{}}', "`type` is missing or not text"),
        (b'{"type":"turn/start","seq":1,"time":1,"data":{"turn":1},"x":1}', "unknown"),
        (b'{"type":"turn/start","v":0,"seq":1,"time":1,"data":{"turn":1}}', "counts from 1"),
        (
            b'{"type":"turn/start","seq":1,"time":1,"ignorable":false,"data":{"turn":1}}',
            "ignorable",
        ),
        (b'{"type":"turn/start","seq":1,"time":1,"owner":1,"data":{"turn":1}}', "`owner`"),
        (b'{"type":"turn/start","seq":1,"time":1,"owner":null,"data":{"turn":1}}', "owner"),
        (b'{"type":"turn/start","seq":1,"time":1,"surfaceOp":"add","data":{}}', "surfaceOp"),
        (b'{"type":"turn/start","seq":1,"time":1,"data":{"turn":"1"}}', "turn"),
        (b'{"type":"turn/start","seq":1,"time":1,"data":[]}', "turn/start"),
        (b"[]", "list"),
        (b"7", "int"),
        (b'{"type":"session","version":1}', "second header"),
    ],
)
def test_a_bad_envelope_is_refused_with_the_field(line: bytes, told: str) -> None:
    with pytest.raises(WireFault, match=re.escape(told)):
        decode_line(line)


@pytest.mark.holds("SS38", "SU04")
@pytest.mark.parametrize(
    "runs", ["[1,2]", "[[2,1]]", "[[0,1],[1,2]]", "[[0,9]]", "[[0,1.0]]", "[[-1,0]]", "{}", "[[0]]"]
)
def test_bad_runs_of_sources_are_refused(runs: str) -> None:
    head = '{"type":"turn/start","seq":9,"time":1,"sourceEventSeqs":'
    with pytest.raises(WireFault, match="sourceEventSeqs"):
        decode_line(f'{head}{runs},"data":{{"turn":1}}}}'.encode())


@pytest.mark.parametrize("line", [b"", b"{", b'{"type":', b"\x00\x00", b"\xff", b'{"a":NaN}'])
def test_what_is_no_json_is_told_apart(line: bytes) -> None:
    with pytest.raises(NotJson):
        decode_line(line)


class TestUnknownEvents:
    """DESIGN: ignorable ones are kept byte for byte, required ones stop resume and fork."""

    raw = b'{"type":"acme.deploy/done", "seq":3,"time":4,"owner":"acme@2","data":{"b":1,"a":[ 1]}}'

    def test_an_unknown_type_is_kept_byte_for_byte(self) -> None:
        event = decode_line(self.raw)
        assert isinstance(event.data, UnknownEvent)
        assert (event.type, event.seq, event.owner) == ("acme.deploy/done", 3, "acme@2")
        assert encode_line(event) == self.raw

    def test_a_newer_version_of_a_known_type_is_unknown(self) -> None:
        event = decode_line(b'{"type":"turn/start","v":9,"seq":0,"time":1,"data":{"new":1}}')
        assert isinstance(event.data, UnknownEvent)
        assert event.data.problem == "newer version"

    def test_a_required_one_stops_resume_and_names_everything(self) -> None:
        with pytest.raises(SessionUnreadable) as refused:
            refuse_unreadable([decode_line(self.raw)], session="s-1")
        for word in ("s-1", "acme.deploy/done", "seq 3", "acme@2", "install"):
            assert word in refused.value.message

    def test_an_ignorable_one_does_not(self) -> None:
        raw = self.raw.replace(b'"owner"', b'"ignorable":true,"owner"')
        event = decode_line(raw)
        refuse_unreadable([event], session="s-1")
        assert encode_line(event) == raw


class TestHeaders:
    def test_a_header_comes_back(self) -> None:
        full = records.SessionHeader(
            version=FORMAT_VERSION,
            id="é",
            created_at=5,
            cwd="/w",
            parent_session="p",
            seed_length=3,
            origin="subagent",
            delegation_depth=2,
            agent_preset="x",
        )
        for header in (HEADER, full):
            line = encode_header(header)
            assert line.startswith(b'{"type":"session","version":')
            assert decode_header(line) == header

    @pytest.mark.holds("case-052")
    def test_a_newer_format_is_told_before_anything_else(self) -> None:
        with pytest.raises(SessionUnreadable, match="newer format"):
            decode_header(b'{"type":"session","version":99,"shape":"new"}')
        with pytest.raises(SessionUnreadable, match="older"):
            decode_header(b'{"type":"session","version":0,"id":"s","createdAt":1}')

    @pytest.mark.holds("case-052", "SS44", "SS45")
    @pytest.mark.parametrize(
        ("line", "told"),
        [
            (b"\xef\xbb\xbf" + encode_header(HEADER), "byte order mark"),
            (encode_header(HEADER) + b"\r", "CR LF"),
            (b"", "not JSON"),
            (encode_header(HEADER).decode().encode("utf-16"), "not JSON"),
            (b'{"seq":0,"time":1,"type":"turn/start","data":{"turn":1}}', "not a header"),
            (b"[1]", "not a header object"),
            (b'{"type":"session","version":true,"id":"s","createdAt":1}', "version"),
            (b'{"type":"session","id":"s","createdAt":1}', "version"),
            (b'{"type":"session","version":1,"createdAt":1}', "id"),
            (b'{"type":"session","version":1,"id":"s","createdAt":"x"}', "createdAt"),
            (b'{"type":"session","version":1,"id":"s","createdAt":1,"more":1}', "more"),
        ],
    )
    def test_a_bad_header_says_what_is_wrong(self, line: bytes, told: str) -> None:
        with pytest.raises(WireFault, match=told):
            decode_header(line)


def deep() -> object:
    value: list[object] = []
    for _ in range(20_000):
        value = [value]
    return value


def cyclic() -> object:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.holds("SJ01", "SJ06", "SJ09", "SS17", "SS31", "case-057")
@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        b"\xff",
        Decimal("1.10"),
        {1, 2},
        cyclic(),
        {1: "a", "1": "b"},
        2**70,
        -0.0,
        deep(),
        {"a": float("-inf")},
        object(),
        "\ud800",
    ],
)
def test_what_json_would_lose_is_refused_where_it_enters(value: object) -> None:
    with pytest.raises(InvalidJson):
        frozen_json(value)
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.reply(calls=("c1",))
    with pytest.raises(InvalidJson):
        ev.tool.Result(turn=1, step=1, message=result(), meta=value)  # pyright: ignore[reportArgumentType]
    assert log.session.next_seq == 3
    log.result("c1")


def result() -> records.ToolResultMessage:
    return records.ToolResultMessage(
        id="r",
        content=(records.TextBlock(text="x"),),
        source=records.ToolSource(call_id="c1"),
        tool_call_id="c1",
    )


@pytest.mark.holds("SJ02", "SJ10", "SS12", "SS19", "SS32")
def test_json_is_copied_and_frozen_where_it_enters() -> None:
    given: dict[str, object] = {"a": [1, {"b": None}], "c": True, "d": 1.5, "e": "é"}
    payload = ev.tool.Result(turn=1, step=1, message=result(), meta=frozen_json(given))
    before = encode_payload(payload)
    given["a"] = []
    assert encode_payload(payload) == before
    assert orjson.loads(before)["meta"] == {"a": [1, {"b": None}], "c": True, "d": 1.5, "e": "é"}
    with pytest.raises(TypeError):
        payload.meta["a"] = 1  # type: ignore[index]  # pyright: ignore[reportOptionalSubscript, reportIndexIssue, reportCallIssue, reportArgumentType]


@pytest.mark.parametrize(
    "payload",
    [
        ev.turn.Start(turn="1"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ev.turn.Start(turn=True),
        ev.turn.Start(turn=2**53),
        ev.turn.End(turn=1, reason="done"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ev.tool.Call(turn=1, step=1, call_id="c", name="x", arguments="\udc80"),
        ev.user.Message(message="hi"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ev.user.Message(message=None),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
@pytest.mark.holds("SS10", "SS13")
def test_a_payload_of_the_wrong_shape_cannot_be_written(payload: AnyDurable) -> None:
    with pytest.raises(Unwritable, match=payload.TOKEN.name):
        encode_payload(payload)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
LINES = [encode_line(event) for event in every_kind()]


def spoilt(value: object, data: st.DataObject) -> object:
    """The value with one part of it, somewhere inside, replaced by anything."""
    match value:
        case dict() if value:
            fields = cast("dict[str, object]", value)
            key = data.draw(st.sampled_from(sorted(fields)))
            return {**fields, key: spoilt(fields[key], data)}
        case list() if value:
            items = list(cast("list[object]", value))
            place = data.draw(st.integers(0, len(items) - 1))
            items[place] = spoilt(items[place], data)
            return items
        case _:
            return data.draw(JUNK)


@given(st.sampled_from(LINES), st.data())
@settings(max_examples=300, deadline=None)
def test_a_line_with_any_value_replaced_is_read_or_refused_and_nothing_else(
    line: bytes, data: st.DataObject
) -> None:
    bad = json.dumps(spoilt(orjson.loads(line), data)).encode()
    try:
        event = decode_line(bad)
    except WireFault:
        return
    assert isinstance(event.seq, int)
    assert orjson.loads(encode_line(event)).keys() <= orjson.loads(bad).keys()
