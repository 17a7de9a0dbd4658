"""A log as a trajectory: turns, tries, calls that overlap, waits, what hid what, what is broken."""

from __future__ import annotations

from itertools import pairwise

import pytest
from attrs import evolve

from dsh import catalog as ev
from dsh.catalog import records
from dsh.cli.sessions.story import trajectory_of
from dsh.testing import LogWriting
from dsh.testing.trajectories import Called, TimedLog
from dsh.testing.trajectory_samples import compacted_log, parallel_log, retried_log
from dsh.view import Row, Span, Trajectory, totals
from dsh.wire import StoredEvent, UnknownEvent


def rows(trajectory: Trajectory, kind: str) -> list[Row]:
    return [row for row in trajectory.tables.rows if row.kind == kind]


def crossing(spans: list[Span]) -> list[tuple[Span, Span]]:
    """Pairs of spans that share a lane and a time."""
    lanes: dict[tuple[str, int], list[Span]] = {}
    groups = {"backoff": "model", "compaction": "model", "approval": "wait", "mark": "wait"}
    for span in spans:
        lanes.setdefault((groups.get(span.kind, span.kind), span.lane), []).append(span)
    found: list[tuple[Span, Span]] = []
    for lane in lanes.values():
        ordered = sorted(lane, key=lambda span: span.begin)
        found += [
            (one, two)
            for one, two in pairwise(ordered)
            if two.begin < (one.end if one.end is not None else two.begin + 1)
        ]
    return found


@pytest.mark.holds("P4")
@pytest.mark.parametrize("log", [parallel_log(), retried_log(), compacted_log()])
def test_spans_of_one_lane_never_overlap(log: TimedLog) -> None:
    told = trajectory_of(log.session.events)
    assert len({(span.kind, span.lane) for span in told.tables.spans}) > 1
    assert crossing(told.tables.spans) == []


@pytest.mark.holds("P4")
def test_calls_that_run_together_have_lanes_of_their_own_up_to_twelve() -> None:
    log = TimedLog()
    log.begin("go")
    calls = [Called(arguments={"n": n}, ms=100 + n) for n in range(15)]
    log.work("all at once", *calls)
    log.end()
    tools = [span for span in trajectory_of(log.session.events).tables.spans if span.kind == "tool"]
    assert {span.lane for span in tools} == set(range(12))


def test_a_short_call_beside_a_long_one_ends_when_its_result_is_logged() -> None:
    told = trajectory_of(parallel_log().session.events)
    first = [row for row in rows(told, "tool") if row.step == 1 and row.turn == 1]
    assert [(row.name, (row.end or 0) - row.begin) for row in first] == [
        ("bash", 1900), ("read_file", 1900), ("grep", 1900), ("read_file", 2600),
    ]  # fmt: skip
    step = told.tables.steps[0]
    assert (step.tool_wall, step.tool_sum) == (2600, 1900 * 3 + 2600)


def test_waiting_for_an_approval_is_not_charged_to_the_tool() -> None:
    told = trajectory_of(parallel_log().session.events)
    (row,) = [row for row in rows(told, "tool") if row.text == "rm -rf build && make all"]
    (span,) = [one for one in told.tables.spans if one.row == told.tables.rows.index(row)]
    assert row.waited == 6200
    assert (span.end or 0) - span.begin == 9400
    (asked,) = rows(told, "decision")
    assert (asked.note, asked.state, (asked.end or 0) - asked.begin) == ("allowed-once", "ok", 6200)


def test_failed_tries_keep_what_they_said_and_the_last_one_is_the_reply() -> None:
    told = trajectory_of(retried_log().session.events)
    first, second = rows(told, "try")
    assert [first.name, first.note, first.delay, first.by, first.state] == [
        "RATE_LIMIT (429)", "Too many requests; the limit is 60 a minute", 4000, "llm-retry",
        "retried",
    ]  # fmt: skip
    assert [told.partials[told.tables.rows.index(row)] for row in (first, second)] == [
        "I will read the ", "I wi",
    ]  # fmt: skip
    reply = rows(told, "reply")[0]
    assert (reply.attempt, reply.state, reply.step) == (3, "ok", 1)
    waits = [span for span in told.tables.spans if span.kind == "backoff"]
    assert [(span.end or 0) - span.begin for span in waits] == [4000, 12000]
    assert totals(told.tables, told.length).retries == 2


def test_a_turn_that_fails_says_why_and_its_last_try_is_an_error() -> None:
    told = trajectory_of(retried_log().session.events)
    (turn,) = told.tables.turns
    assert (turn.state, told.tables.rows[turn.row].text) == (
        "failed", "PAYMENT_REQUIRED: Insufficient balance",
    )  # fmt: skip
    last = rows(told, "reply")[-1]
    assert (last.state, last.partial) == ("failed", True)


def test_a_step_that_recovers_without_a_wait_is_no_error() -> None:
    log = TimedLog()
    log.begin("go")
    log.stream("half")
    failure = records.LlmFailure(message="too long", code="CONTEXT_WINDOW_EXCEEDED")
    log.chunk(records.FinishChunk(reason=records.ErrorFinish(failure=failure)))
    log.work("whole")
    log.end()
    told = trajectory_of(log.session.events)
    assert [(row.kind, row.state) for row in told.tables.rows if row.request is not None] == [
        ("try", "retried"), ("reply", "ok"),
    ]  # fmt: skip


def test_how_a_reply_streamed_is_known_without_its_chunks() -> None:
    log = TimedLog()
    log.begin("go")
    seqs = log.stream("abcd", first=600, ms=400, pieces=4)
    log.wait(3000)
    seqs += log.stream("ef", first=0, ms=2, pieces=2)
    log.reply("abcdef", sources=seqs, usage=(10, 90, 5))
    log.end()
    (row,) = rows(trajectory_of(log.session.events), "reply")
    assert (row.first, row.chunks) == (row.begin + 600, 6)
    assert [length for _, length in row.gaps] == [3100]
    assert row.spent is not None
    assert (row.spent.input, row.spent.cached, row.spent.output) == (100, 90, 5)


def test_a_compaction_is_one_row_with_what_it_hid() -> None:
    told = trajectory_of(compacted_log().session.events)
    (row,) = rows(told, "compaction")
    assert (row.before, row.after, len(row.hidden), row.state) == (101_000, 9_200, 34, "ok")
    assert row.text.startswith("Twelve templates were read")
    assert (row.end or 0) - row.begin == 4000
    hiding = [op for op in told.tables.ops if op.start is not None]
    assert [op.seq for op in hiding] == [row.node]


def test_neighbouring_prunes_are_one_row() -> None:
    log = LogWriting()
    log.whole_turn("first", calls=("c1", "c2"))
    for call in ("c1", "c2"):
        node = next(
            event.seq
            for event in log.session.events
            if isinstance(event.data, ev.tool.Result) and event.data.message.tool_call_id == call
        )
        short = records.ToolResultMessage(
            id=f"r-{call}",
            content=(records.TextBlock(text="[cut]"),),
            source=records.ToolSource(call_id=call),
            tool_call_id=call,
        )
        with log.session.batch():
            log.session.append(
                ev.compaction.Prune(
                    shadowed_range=records.SeqRange(start=node, end=node),
                    shadowed_seqs=(node,),
                    shadowed_token_count=100,
                )
            )
            log.session.append(
                ev.tool.Result(turn=1, step=1, message=short),
                surface=records.Replace(start_seq=node, end_seq=node),
                sources=(node,),
            )
    (row,) = rows(trajectory_of(log.session.events), "prune")
    assert (row.before, len(row.hidden)) == (200, 2)
    # Later a plugin puts something in place of a message by itself: that is no prune.
    log.whole_turn("second")
    seq, asked = next(
        (event.seq, event.data)
        for event in log.session.events
        if isinstance(event.data, ev.user.Message)
    )
    log.session.append(asked, surface=records.Replace(start_seq=seq, end_seq=seq), sources=(seq,))
    told = trajectory_of(log.session.events)
    assert [len(row.hidden) for row in rows(told, "prune")] == [2]
    assert [row.hidden for row in rows(told, "replace")] == [[seq]]


@pytest.mark.holds("P10")
def test_a_clock_that_steps_back_is_drawn_forward_and_marked() -> None:
    log = TimedLog()
    log.begin("go")
    log.wait(5000)
    log.say("later")
    log.wait(-4000)
    log.say("earlier")
    told = trajectory_of(log.session.events)
    assert [(row.begin, row.backwards) for row in rows(told, "user")] == [
        (0, False), (5000, False), (5000, True),
    ]  # fmt: skip


@pytest.mark.holds("P10")
def test_a_log_that_ends_in_the_middle_has_open_spans_and_no_invented_length() -> None:
    log = TimedLog()
    log.begin("go")
    call = Called(arguments={"command": "make"})
    (block,) = log.reply("making", (call,), sources=log.stream("making"))
    log.session.append(
        ev.tool.Call(turn=1, step=1, call_id=block.id, name="bash", arguments=block.arguments)
    )
    told = trajectory_of(log.session.events)
    (tool,) = rows(told, "tool")
    assert (tool.state, tool.end) == ("open", None)
    assert told.tables.spans[-1].end is None
    assert told.tables.turns[0].state == "open"


@pytest.mark.holds("P10")
def test_a_reply_cut_by_a_crash_says_so() -> None:
    log = TimedLog()
    log.begin("go")
    log.stream("half a reply")
    log.end(records.InterruptedTurnEnd())
    told = trajectory_of(log.session.events)
    assert [told.partials[index] for index in told.partials] == ["half a reply"]
    assert told.tables.turns[0].state == "crashed"


@pytest.mark.holds("P10")
def test_an_unknown_event_is_a_row_with_its_owner() -> None:
    log = TimedLog()
    log.begin("go")
    data = UnknownEvent(raw=b'{"type":"acme.deploy/finished"}', problem="unknown type")
    strange = StoredEvent(
        "acme.deploy/finished", log.session.next_seq, log.now, data, owner="acme-deploy@2.0"
    )
    told = trajectory_of([*log.session.events, strange])
    (row,) = rows(told, "unknown")
    assert (row.name, row.by, told.unknown) == ("acme.deploy/finished", "acme-deploy@2.0", 1)


@pytest.mark.parametrize("log", [parallel_log(), retried_log(), compacted_log()])
def test_no_event_of_a_damaged_log_stops_the_telling(log: TimedLog) -> None:
    events = list(log.session.events)
    for lost in range(len(events)):
        told = trajectory_of(events[:lost] + events[lost + 1 :])
        assert told.events == len(events) - 1
    assert trajectory_of(list(reversed(events))).events == len(events)
    assert trajectory_of([evolve(event, time=0) for event in events]).length == 0


def test_a_session_is_called_what_it_was_named_else_what_was_asked_first() -> None:
    log = TimedLog()
    assert trajectory_of(log.session.events).title == ""
    log.begin("find the leak")
    assert trajectory_of(log.session.events).title == "find the leak"
    log.session.append(ev.session.Title(title="the leak"))
    told = trajectory_of(log.session.events)
    assert (told.title, rows(told, "event")[0].text) == ("the leak", "the leak")
    log.session.append(ev.session.Title(title=""))
    assert trajectory_of(log.session.events).title == "find the leak"
