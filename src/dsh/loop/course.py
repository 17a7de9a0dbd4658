"""The course of one agent: its position, moved only together with the events that say so.

What comes in: moves of the machine. What goes out: the position, and appended boundary events; a
refused append leaves the position where it was. It never decides which move comes next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from dsh.loop import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import CoreLogOnly
    from dsh.loop.machine import Move, Phase, Position
    from dsh.session import Session

__all__ = ["Course"]


class Course:
    """Where one agent stands."""

    __slots__ = ("_position", "_session")

    def __init__(self, session: Session, last_turn: int) -> None:
        self._session = session
        self._position = evolve(machine.IDLE, turn=last_turn)

    @property
    def position(self) -> Position:
        """Phase, newest turn, step."""
        return self._position

    @property
    def phase(self) -> Phase:
        """The phase alone."""
        return self._position.phase

    @property
    def turn(self) -> int:
        """The newest turn; 0 before the first."""
        return self._position.turn

    @property
    def step(self) -> int:
        """The newest step of that turn; 0 before its first."""
        return self._position.step

    def move(self, move: Move) -> None:
        """Make a move that no event stands for. Raises NoSuchTransition, nothing changed."""
        self._position = machine.advance(self._position, move)

    def log(self, move: Move, payload: Callable[[Position], CoreLogOnly]) -> None:
        """Append the boundary event of a move, made from the position after it, then move.

        Raises what append raises; the position is unchanged then. The position is the new one
        before any listener of the event runs.
        """
        before = self._position
        after = machine.advance(before, move)
        event = payload(after)
        seq = self._session.next_seq
        self._position = after
        try:
            self._session.append(event)
        except BaseException:
            if self._session.next_seq == seq:
                self._position = before
            raise
