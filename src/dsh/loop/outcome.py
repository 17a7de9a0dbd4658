"""How a turn ended: the judgement over whatever its code raised.

What comes in: an exception, and the turn's signal. What goes out: the reason for `turn/end`, the
error to report, and what must be raised on. A cancelled turn is aborted whatever was raised; a
turn that nobody cancelled failed. `completed` cannot come from here: only the straight path says
that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import trio

from dsh.catalog import records
from dsh.errors import HarnessError
from dsh.hooks import frozen
from dsh.llm import failure_of

if TYPE_CHECKING:
    from dsh.hooks import live

__all__ = ["DISPOSED", "Outcome", "alone", "judged", "onward"]

_ONWARD = (trio.Cancelled, KeyboardInterrupt, GeneratorExit)

#: Where every turn's outcome starts; only the straight path replaces it by something good.
DISPOSED = records.AbortedTurnEnd(reason=records.DisposedCause())


@frozen
class Outcome:
    """`normal`: closed by the loop itself, so waiting input may follow. `error`: to be reported."""

    reason: records.TurnEndReason = DISPOSED
    normal: bool = False
    error: Exception | None = None


def alone(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one; any other error as it is."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return alone(group.exceptions[0]) if len(group.exceptions) == 1 else group


def judged(raised: BaseException, signal: live.TurnSignal) -> Outcome:
    """The outcome of a turn that ended by `raised`.

    Cancellation that did not come from the signal (trio's own, from outside) and Ctrl-C leave the
    outcome where it started; the caller raises `onward` of them on.
    """
    cause = signal.cause
    if cause is not None:
        return Outcome(records.AbortedTurnEnd(reason=cause))
    error = _own_error(raised)
    if error is None:
        return Outcome()
    failure = failure_of(error)
    if not isinstance(error, HarnessError):
        failure = records.LlmFailure(message=failure.message, code="UNKNOWN")
    return Outcome(records.ErrorTurnEnd(error=failure), error=error)


def onward(raised: BaseException) -> BaseException | None:
    """The part of `raised` that no turn may keep: cancellation from outside, Ctrl-C."""
    if isinstance(raised, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", raised)
        return group.split(_ONWARD)[0]
    return raised if isinstance(raised, _ONWARD) else None


def _own_error(raised: BaseException) -> Exception | None:
    """The error in `raised`; one that is no Exception (a plugin's `sys.exit`) is wrapped."""
    rest: BaseException | None = raised
    if isinstance(raised, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", raised)
        rest = group.split(_ONWARD)[1]
    if rest is None or isinstance(rest, _ONWARD):
        return None
    rest = alone(rest)
    if isinstance(rest, Exception):
        return rest
    wrapped = RuntimeError(f"{type(rest).__name__} was raised inside a turn")
    wrapped.__cause__ = rest
    return wrapped
