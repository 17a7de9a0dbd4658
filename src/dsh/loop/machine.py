"""The machine of one agent: every phase, every move between phases, as one table.

What comes in: a position and a move. What goes out: the next position, or `NoSuchTransition` with
the position untouched. Nothing happens outside the table: the driver asks `advance` before it
believes anything, and its choice after a turn (`after_close`) is a pure function of this module. It
never appends, awaits, or knows of agents and sessions.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dsh.errors import HarnessError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "IDLE",
    "TABLE",
    "Move",
    "NoSuchTransition",
    "Phase",
    "Position",
    "Row",
    "StepResult",
    "advance",
    "after_close",
    "diagram",
    "moves_from",
    "status_of",
]


class Phase(Enum):
    """Where an agent stands. The first two are publicly `idle`, all others `running`."""

    IDLE = "idle"
    MAINTENANCE = "maintenance"
    RESERVED = "reserved"  # running is announced, nothing is logged yet
    PROPOSING = "proposing"  # claim, assemble, pre-step
    REQUESTING = "requesting"  # step open: agent/request, prepare, admission
    STREAMING = "streaming"
    RECOVERING = "recovering"  # agent/request-error
    ANSWERED = "answered"  # the reply is in the log
    CALLING = "calling"
    SETTLED = "settled"  # step closed, nothing decided
    STOPPING = "stopping"  # agent/turn-stopping
    CLOSING = "closing"  # the outcome stands, turn/end is due
    CLOSED = "closed"  # turn/end was written (or refused once)


class Move(Enum):
    """What can happen to an agent, each named for its cause."""

    WAKE = "wake"
    MAINTAIN = "maintain"
    SETTLE = "settle"
    WITHDRAW = "withdraw"
    OPEN_TURN = "turn opens"
    OPEN_STEP = "step opens"
    REFUSE = "reject or nothing to do"
    ADMIT = "admitted"
    FAIL_ATTEMPT = "attempt failed"
    RETRY = "retry"
    ANSWER = "reply committed"
    CALL = "calls"
    CLOSE_STEP = "step closes"
    PROPOSE = "owed or steered"
    FINISH = "nothing owed"
    CONCLUDE = "no vote"
    FAIL = "failed or cancelled"
    CLOSE_TURN = "turn closes"
    CONTINUE = "input waits"
    PARK = "park"


@frozen
class Row:
    """One legal transition. `turn` and `step` say what becomes of the two counters."""

    phase: Phase
    move: Move
    to: Phase
    turn: Literal["keep", "next"] = "keep"
    step: Literal["keep", "next", "zero"] = "keep"


_IN_STEP: Final = (
    Phase.REQUESTING,
    Phase.STREAMING,
    Phase.RECOVERING,
    Phase.ANSWERED,
    Phase.CALLING,
)

TABLE: Final[tuple[Row, ...]] = (
    Row(Phase.IDLE, Move.WAKE, Phase.RESERVED),
    Row(Phase.IDLE, Move.MAINTAIN, Phase.MAINTENANCE),
    Row(Phase.MAINTENANCE, Move.SETTLE, Phase.IDLE),
    Row(Phase.RESERVED, Move.OPEN_TURN, Phase.PROPOSING, turn="next", step="zero"),
    Row(Phase.RESERVED, Move.WITHDRAW, Phase.IDLE),
    Row(Phase.PROPOSING, Move.OPEN_STEP, Phase.REQUESTING, step="next"),
    Row(Phase.PROPOSING, Move.REFUSE, Phase.CLOSING),
    Row(Phase.REQUESTING, Move.ADMIT, Phase.STREAMING),
    Row(Phase.STREAMING, Move.ANSWER, Phase.ANSWERED),
    Row(Phase.STREAMING, Move.FAIL_ATTEMPT, Phase.RECOVERING),
    Row(Phase.RECOVERING, Move.RETRY, Phase.REQUESTING),
    Row(Phase.ANSWERED, Move.CALL, Phase.CALLING),
    *(Row(phase, Move.CLOSE_STEP, Phase.SETTLED) for phase in _IN_STEP),
    Row(Phase.SETTLED, Move.PROPOSE, Phase.PROPOSING),
    Row(Phase.SETTLED, Move.FINISH, Phase.STOPPING),
    Row(Phase.STOPPING, Move.PROPOSE, Phase.PROPOSING),
    Row(Phase.STOPPING, Move.CONCLUDE, Phase.CLOSING),
    *(
        Row(phase, Move.FAIL, Phase.CLOSING)
        for phase in (Phase.PROPOSING, Phase.SETTLED, Phase.STOPPING)
    ),
    Row(Phase.CLOSING, Move.CLOSE_TURN, Phase.CLOSED),
    Row(Phase.CLOSED, Move.CONTINUE, Phase.RESERVED),
    Row(Phase.CLOSED, Move.PARK, Phase.IDLE),
)

_ROWS: Final[Mapping[tuple[Phase, Move], Row]] = {(row.phase, row.move): row for row in TABLE}


@frozen
class Position:
    """A phase and the two counters: the newest turn (0 before the first), the step in it."""

    phase: Phase
    turn: int
    step: int


IDLE: Final = Position(Phase.IDLE, 0, 0)


class NoSuchTransition(HarnessError):
    """The loop tried a move that its table does not have. Remedy: report it with the log."""

    default_code = "INVARIANT"


def moves_from(phase: Phase) -> tuple[Move, ...]:
    """The legal moves of `phase`, in the order of the table."""
    return tuple(row.move for row in TABLE if row.phase is phase)


def advance(position: Position, move: Move) -> Position:
    """The position after `move`. Raises NoSuchTransition; the given position is never changed."""
    row = _ROWS.get((position.phase, move))
    if row is None:
        legal = ", ".join(item.name for item in moves_from(position.phase))
        raise NoSuchTransition(
            f"the loop cannot {move.name} while {position.phase.value} "
            f"(turn {position.turn}, step {position.step}); legal here: {legal}"
        )
    turn, step = position.turn, position.step
    if row.turn == "next":
        turn += 1
    if row.step == "next":
        step += 1
    elif row.step == "zero":
        step = 0
    return Position(row.to, turn, step)


def status_of(phase: Phase) -> Literal["idle", "running"]:
    """The public status: idle while nothing runs, and during maintenance."""
    return "idle" if phase in {Phase.IDLE, Phase.MAINTENANCE} else "running"


#: What a step came to: tools ran and the model is owed their results, it is done, or it was cut.
StepResult: TypeAlias = Literal["owes", "completed", "max-tokens"]


def after_close(*, normal: bool, pending: bool, cancelled: bool) -> Move:
    """C22: the same driver goes on only after a normal closure, with input waiting."""
    return Move.CONTINUE if normal and pending and not cancelled else Move.PARK


def diagram() -> str:
    """The table as a Mermaid state diagram, one line a row, ending with a newline."""
    lines = ["stateDiagram-v2", "    [*] --> idle"]
    lines += [f"    {row.phase.value} --> {row.to.value}: {row.move.value}" for row in TABLE]
    return "\n".join(lines) + "\n"
