"""Closers for a log that ends inside a turn: exactly what is missing, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import records
from dsh.session import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    ProjectionSet,
    derive,
    interrupted_closers,
    verify,
)
from dsh.session.seeds import seeded
from dsh.testing import LogWriting
from dsh.wire import StoredEvent, StoredLog, decode_line, encode_line

if TYPE_CHECKING:
    from collections.abc import Callable


def short(events: tuple[StoredEvent, ...]) -> list[str]:
    """The closers by name, results with their code and call."""
    found: list[str] = []
    for event in events:
        match event.data:
            case ev.tool.Result(message=message, error=records.ToolErrorInfo(code=code)):
                found.append(f"{code} {message.tool_call_id} {event.source_event_seqs}")
            case _:
                found.append(event.type)
    return found


@pytest.mark.holds("SR01", "SR02", "I1")
def test_a_balanced_or_empty_log_needs_nothing() -> None:
    log = LogWriting()
    assert interrupted_closers(log.session.events) == ()
    log.whole_turn("hi", "a", calls=("c1",))
    assert interrupted_closers(log.session.events) == ()


@pytest.mark.holds("SR03", "I2", "I3")
def test_an_open_turn_gets_its_end() -> None:
    log = LogWriting()
    log.whole_turn()
    log.turn_start()
    (end,) = interrupted_closers(log.session.events)
    assert end.data == ev.turn.End(turn=2, reason=records.InterruptedTurnEnd())
    assert (end.seq, end.time) == (log.session.next_seq, log.session.events[-1].time)


@pytest.mark.holds("SR04", "I3")
def test_an_open_step_too_and_partial_text_is_not_finalised() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.user()
    log.chunks("half a", " reply")
    closers = interrupted_closers(log.session.events)
    assert short(closers) == ["step/end", "turn/end"]
    assert len(derive([*log.session.events, *closers])) == 1


@pytest.mark.holds("SR05", "SR09", "SR10", "I2", "I3")
def test_unanswered_calls_get_results_in_the_order_they_were_asked() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.reply(calls=("c1", "c2", "c3"))
    log.call("c1")
    log.result("c1")
    started = log.call("c2")
    closers = interrupted_closers(log.session.events)
    assert short(closers) == [
        f"{TOOL_OUTCOME_UNKNOWN} c2 {(started,)}",
        f"{TOOL_NOT_STARTED} c3 None",
        "step/end",
        "turn/end",
    ]
    assert [event.seq for event in closers] == list(
        range(log.session.next_seq, log.session.next_seq + 4)
    )


@pytest.mark.holds("I4", "SR05", "SR10")
def test_the_texts_say_whether_a_retry_is_safe() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.reply(calls=("c1", "c2"))
    log.call("c1")
    texts: list[str] = []
    for event in interrupted_closers(log.session.events)[:2]:
        assert isinstance(event.data, ev.tool.Result)
        message = event.data.message
        assert message.is_error
        block = message.content[0]
        assert isinstance(block, records.TextBlock)
        texts.append(block.text)
    assert "unknown" in texts[0]
    assert "check first" in texts[0]
    assert "safe to make the call again" in texts[1]


@pytest.mark.holds("SR06", "I3")
def test_answered_calls_get_nothing() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.reply(calls=("c1",))
    log.call("c1")
    log.result("c1")
    assert short(interrupted_closers(log.session.events)) == ["step/end", "turn/end"]


@pytest.mark.holds("I3")
def test_a_closed_step_gets_no_results() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.reply(calls=("c1",))
    log.step_end()
    assert short(interrupted_closers(log.session.events)) == ["turn/end"]


@pytest.mark.holds("I3")
def test_a_call_that_no_reply_asked_for_is_ignored() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.call("stray")
    assert short(interrupted_closers(log.session.events)) == ["step/end", "turn/end"]


def test_a_rewritten_result_counts_as_answered() -> None:
    log = LogWriting()
    log.whole_turn("hi", calls=("c1",))
    log.turn_start()
    log.step_start()
    log.reply(calls=("c1",))
    assert short(interrupted_closers(log.session.events))[0].startswith(TOOL_NOT_STARTED)


def crash_points() -> list[Callable[[LogWriting], object]]:
    return [
        lambda log: log.turn_start(),
        lambda log: log.step_start(),
        lambda log: log.system("be brief"),
        lambda log: log.user(),
        lambda log: log.chunks("a", "b", "c", "d"),
        lambda log: log.reply(calls=("c1", "c2")),
        lambda log: log.call("c1"),
        lambda log: log.call("c2"),
        lambda log: log.result("c1"),
        lambda log: log.result("c2"),
        lambda log: log.step_end(),
        lambda log: log.step_start(),
        lambda log: log.reply("done"),
        lambda log: log.step_end(),
        lambda log: log.turn_end(),
    ]


@pytest.mark.holds("I3", "I4", "A21", "A23", "I7")
@given(st.integers(0, 15), st.booleans())
@settings(max_examples=40, deadline=None)
def test_after_any_crash_the_log_is_lawful_repair_is_idempotent_and_resume_goes_on(
    cut: int,
    before: bool,  # noqa: FBT001  drawn by hypothesis
) -> None:
    log = LogWriting()
    if before:
        log.whole_turn()
    for step in crash_points()[:cut]:
        step(log)
    events = tuple(log.session.events)
    closers = interrupted_closers(events)
    assert [encode_line(event) for event in interrupted_closers(events)] == [
        encode_line(event) for event in closers
    ]
    repaired = (*events, *(decode_line(encode_line(event)) for event in closers))
    assert interrupted_closers(repaired) == ()
    assert verify(StoredLog(header=log.session.header, events=repaired)) == ()
    assert repaired[: len(events)] == events
    session = seeded(
        log.session.header,
        seed=repaired,
        stored=len(repaired),
        now_ms=lambda: 9,
        units=ProjectionSet(),
    )
    assert session.events[-1].type == ev.session.END_SEED.name
    assert session.writer.pending == 1
    assert session.derive_messages() == derive(repaired)
