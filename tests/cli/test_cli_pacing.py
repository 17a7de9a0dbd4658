"""How often a transcript that only grows says what a running tool shows."""

from __future__ import annotations

import pytest

from dsh.cli.screen.pacing import Pacing


def printed(times: list[tuple[float, str]]) -> list[float]:
    pacing = Pacing()
    return [now for now, line in times if pacing.is_due("c1", line, now)]


@pytest.mark.holds("CL37")
def test_a_long_build_is_said_less_and_less_often() -> None:
    tenths = [(tenth / 10, f"line {tenth}") for tenth in range(1800)]
    assert printed(tenths) == [0, 1, 3, 7, 15, 31, 61, 91, 121, 151]


@pytest.mark.holds("CL37")
def test_the_same_line_is_not_said_again_and_a_new_one_need_not_wait_for_it() -> None:
    assert printed([(0, "compiling"), (5, "compiling"), (5.1, "linking"), (6, "done")]) == [0, 5.1]


@pytest.mark.holds("CL37")
def test_calls_are_paced_apart_and_an_ended_one_is_forgotten() -> None:
    pacing = Pacing()
    assert pacing.is_due("c1", "one", 0)
    assert pacing.is_due("c2", "two", 0)
    assert not pacing.is_due("c1", "three", 0.5)
    pacing.forget("c1")
    assert pacing.is_due("c1", "three", 0.5)
