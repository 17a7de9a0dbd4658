"""The machine's table: every row works, everything else is refused, and the diagram shows it."""

from __future__ import annotations

from itertools import product

import pytest

from dsh.loop.machine import (
    IDLE,
    TABLE,
    Move,
    NoSuchTransition,
    Phase,
    Position,
    advance,
    after_close,
    diagram,
    moves_from,
    status_of,
)

LEGAL = {(row.phase, row.move): row for row in TABLE}


@pytest.mark.holds("C1")
def test_the_table_has_one_row_for_each_pair_and_uses_every_phase_and_move() -> None:
    assert len(LEGAL) == len(TABLE)
    assert {row.phase for row in TABLE} == set(Phase)
    assert {row.to for row in TABLE} == set(Phase)
    assert {row.move for row in TABLE} == set(Move)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.phase.value}-{row.move.name}")
def test_every_row_moves_as_it_says(row: object) -> None:
    assert row in TABLE
    found = next(each for each in TABLE if each is row)
    before = Position(found.phase, turn=3, step=2)
    after = advance(before, found.move)
    assert after.phase is found.to
    assert after.turn == (4 if found.turn == "next" else 3)
    assert after.step == {"keep": 2, "next": 3, "zero": 0}[found.step]


@pytest.mark.holds("CE17")
def test_every_other_pair_is_refused_with_the_position_unchanged() -> None:
    missing = [pair for pair in product(Phase, Move) if pair not in LEGAL]
    assert len(missing) == len(Phase) * len(Move) - len(TABLE)
    for phase, move in missing:
        before = Position(phase, turn=1, step=1)
        with pytest.raises(NoSuchTransition, match=f"cannot {move.name}"):
            advance(before, move)
        assert before == Position(phase, turn=1, step=1)


def test_every_phase_is_reached_from_idle_and_leads_back_to_it() -> None:
    def reach(start: Phase) -> set[Phase]:
        seen, todo = {start}, [start]
        while todo:
            phase = todo.pop()
            for row in TABLE:
                if row.phase is phase and row.to not in seen:
                    seen.add(row.to)
                    todo.append(row.to)
        return seen

    assert reach(Phase.IDLE) == set(Phase)
    assert all(Phase.IDLE in reach(phase) for phase in Phase)


@pytest.mark.holds("C28")
def test_turns_count_on_and_steps_begin_again_in_each_turn() -> None:
    position = IDLE
    for turn in (1, 2):
        position = advance(position, Move.WAKE if turn == 1 else Move.CONTINUE)
        position = advance(position, Move.OPEN_TURN)
        assert (position.turn, position.step) == (turn, 0)
        position = advance(position, Move.OPEN_STEP)
        assert (position.turn, position.step) == (turn, 1)
        for move in (Move.CLOSE_STEP, Move.FINISH, Move.CONCLUDE, Move.CLOSE_TURN):
            position = advance(position, move)


@pytest.mark.holds("C1")
def test_only_idle_and_maintenance_are_publicly_idle() -> None:
    idle = {phase for phase in Phase if status_of(phase) == "idle"}
    assert idle == {Phase.IDLE, Phase.MAINTENANCE}


@pytest.mark.holds("C22")
def test_the_driver_goes_on_only_after_a_normal_uncancelled_turn_with_input_waiting() -> None:
    going = [
        (normal, pending, cancelled)
        for normal, pending, cancelled in product((False, True), repeat=3)
        if after_close(normal=normal, pending=pending, cancelled=cancelled) is Move.CONTINUE
    ]
    assert going == [(True, True, False)]


def test_the_diagram_is_drawn_from_the_table() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert len(lines) == 2 + len(TABLE)
    for row in TABLE:
        assert f"    {row.phase.value} --> {row.to.value}: {row.move.value}" in lines


def test_a_refusal_names_the_legal_moves() -> None:
    with pytest.raises(NoSuchTransition, match=r"legal here: WAKE, MAINTAIN"):
        advance(IDLE, Move.CLOSE_TURN)
    assert moves_from(Phase.CLOSING) == (Move.CLOSE_TURN,)
