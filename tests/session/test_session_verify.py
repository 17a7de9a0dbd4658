"""The proof of a log: a lawful one has no problems, each unlawful one is told with its seq."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from dsh import catalog as ev
from dsh.catalog import records
from dsh.session import verify
from dsh.testing import LogWriting
from dsh.wire import StoredEvent, StoredLog, UnknownEvent

if TYPE_CHECKING:
    from collections.abc import Callable


def told(log: LogWriting) -> str:
    found = verify(StoredLog(header=log.session.header, events=tuple(log.session.events)))
    return "; ".join(f"{problem.seq}: {problem.text}" for problem in found)


def renumber(log: LogWriting, *, turn: int | None = None, step: int | None = None) -> LogWriting:
    """Let the next events name another turn or step."""
    log.turn = log.turn if turn is None else turn
    log.step = log.step if step is None else step
    return log


@pytest.mark.holds("SV02", "SV16")
def test_lawful_logs_have_no_problems() -> None:
    log = LogWriting()
    log.session.append(ev.session.EndSeed())
    log.whole_turn("hi", "a", "b", calls=("c1", "c2"))
    log.whole_turn("more")
    log.turn_start()
    log.session.append(ev.session.EndSeed())
    assert told(log) == ""


TURNS: list[tuple[Callable[[LogWriting], object], str]] = [
    (lambda log: renumber(log, turn=4).turn_start(), "6: turn 5 follows turn 1"),
    (lambda log: log.turn_end(), "6: turn 1 ends and is not open"),
    (lambda log: (log.turn_start(), log.turn_start()), "7: turn 3 starts inside turn 2"),
    (lambda log: log.user(), "6: user/message outside a turn"),
    (
        lambda log: log.session.append(ev.request.RouteContext(provider="p", model="m")),
        "6: request/context outside a turn",
    ),
]


@pytest.mark.holds("SV06")
@pytest.mark.parametrize(("break_it", "expected"), TURNS)
def test_turns_are_numbered_and_enclose(
    break_it: Callable[[LogWriting], object], expected: str
) -> None:
    log = LogWriting()
    log.whole_turn()
    break_it(log)
    assert expected in told(log)


STEPS: list[tuple[Callable[[LogWriting], object], str]] = [
    (lambda log: log.step_start(), "step 2 of turn 1 starts where it cannot"),
    (lambda log: renumber(log, step=7).chunks("a"), "names step 7 of turn 1"),
    (lambda log: renumber(log, step=7).call("c1"), "names step 7 of turn 1"),
    (lambda log: log.turn_end(), "ends inside its step 1"),
    (lambda log: log.step_end(), "ends with calls unanswered: ['c1']"),
    (lambda log: log.call("c9"), "the call c9 was not asked for in this step"),
    (lambda log: log.result("c9"), "a result for c9, not asked for in this step"),
    (lambda log: (log.result("c1"), log.result("c1")), "a second result for c1"),
    (lambda log: log.reply(calls=("c1",)), "the call c1 is asked for twice"),
    (
        lambda log: (log.result("c1"), log.step_end(), log.step_start(), log.result("c1")),
        "a result for c1, not asked for in this step",
    ),
    (
        lambda log: (log.result("c1"), log.step_end(), log.result("c1")),
        "tool/result names step 1 of turn 1, not open here",
    ),
    (
        lambda log: (log.result("c1"), log.step_end(), renumber(log, step=4).step_start()),
        "step 5 follows step 1",
    ),
]


@pytest.mark.holds("SV07", "SV08", "SV09", "SV13")
@pytest.mark.parametrize(("break_it", "expected"), STEPS)
def test_steps_are_numbered_and_pair_calls_with_results(
    break_it: Callable[[LogWriting], object], expected: str
) -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.reply(calls=("c1",))
    break_it(log)
    assert expected in told(log)


@pytest.mark.holds("SV10")
def test_a_rewritten_result_needs_no_open_step() -> None:
    log = LogWriting()
    log.whole_turn("hi", calls=("c1",))
    result = log.session.events[-3]
    assert isinstance(result.data, ev.tool.Result)
    log.turn_start()
    log.session.append(
        evolve(result.data, message=evolve(result.data.message, content=())),
        surface=records.Replace(start_seq=result.seq, end_seq=result.seq),
        sources=(result.seq,),
    )
    assert told(log) == ""


@pytest.mark.holds("SV05")
def test_envelopes_and_the_surface_are_replayed() -> None:
    log = LogWriting()
    log.whole_turn("hi")
    good = list(log.session.events)

    def of(events: list[StoredEvent]) -> str:
        header = evolve(log.session.header, version=7)
        found = verify(StoredLog(header=header, events=tuple(events), torn="half a line"))
        return "; ".join(f"{problem.seq}: {problem.text}" for problem in found)

    assert "None: the header has format 7" in of(good)
    assert "None: unfinished at its end: half a line" in of(good)
    user = good[2]
    assert "stands at place 1" in of([good[0], *good[2:]])
    assert "2: user/message is model-visible and has no surfaceOp" in of(
        [*good[:2], evolve(user, surface_op=None), *good[3:]]
    )
    assert "1: step/start is log-only" in of(
        [good[0], evolve(good[1], surface_op=records.Append()), *good[2:]]
    )
    assert "2: user/message at seq 2 cites 2" in of(
        [*good[:2], evolve(user, source_event_seqs=(2,)), *good[3:]]
    )
    op = records.Replace(start_seq=0, end_seq=0)
    assert "2: startSeq 0 is not a node" in of([*good[:2], evolve(user, surface_op=op), *good[3:]])
    assert "0: says step/end and holds turn/start" in of([evolve(good[0], type="step/end")])
    unknown = evolve(good[0], data=UnknownEvent(b"{}", "unknown type"))
    assert "0: turn/start: unknown type; resume will refuse it" in of([unknown])
    assert "0:" not in of([evolve(unknown, ignorable=True)])
