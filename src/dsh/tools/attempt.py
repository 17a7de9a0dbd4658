"""One interruptible stage: run it under the turn's signal and say how it ended.

What comes in: the signal and an async step. What goes out: its value, its own failure, or the fact
that it was interrupted. A cancellation that is not the signal's is reported as an interruption too,
so that the call's result can be recorded first; whoever records it must pass it on afterwards.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

from dsh.hooks import frozen
from dsh.tools.failures import own_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.hooks.live import TurnSignal

__all__ = ["INTERRUPTED", "Broke", "Done", "Interrupted", "attempt", "stopped"]

T = TypeVar("T")


@frozen(slots=True)
class Done(Generic[T]):
    """The step returned."""

    value: T


@frozen(slots=True, eq=False)
class Broke:
    """The step failed by itself; cancellation is not part of `error`."""

    error: BaseException


@frozen(slots=True)
class Interrupted:
    """The step was cancelled and had no failure of its own."""


INTERRUPTED: Final = Interrupted()


def stopped(signal: TurnSignal) -> bool:
    """True if nothing new may start: the turn is cancelled, or the world around it is."""
    return signal.cancelled or trio.current_effective_deadline() == -inf


async def attempt(
    signal: TurnSignal, step: Callable[[], Awaitable[T]]
) -> Done[T] | Broke | Interrupted:
    """Await `step()` inside a scope of the signal.

    Decided by what was raised, never by its shape: a group that holds only `Cancelled` is an
    interruption, any other leaf is the step's own failure. Raises KeyboardInterrupt alone.
    """
    try:
        with signal.scope():
            return Done(await step())
    except BaseException as error:  # noqa: BLE001 - this is where every outcome is classified
        own = own_failure(error)
        if own is not None:
            return Broke(own)
    return INTERRUPTED
