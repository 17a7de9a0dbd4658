"""Worker threads for the disk: a bounded number of them, and nothing around the call itself.

What comes in: one system call after the other, from many sessions. What goes out: their results.
A step of the loop makes two such calls, so what `trio.to_thread.run_sync` does besides (a turn of
the event loop for its limiter, a context, a name for the thread) costs as much as the call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Outcome
    from typing_extensions import TypeVarTuple

    Ts = TypeVarTuple("Ts")

__all__ = ["in_thread"]

T = TypeVar("T")

#: How many calls may run at once, of all sessions together.
THREADS: Final = 40


@final
class _Threads:
    """How many threads are free in this run of trio, and who waits for one."""

    __slots__ = ("free", "waiting")

    def __init__(self) -> None:
        self.free = THREADS
        self.waiting: Final = trio.lowlevel.ParkingLot()


_THREADS: Final = trio.lowlevel.RunVar[_Threads]("session-jsonl threads")


async def in_thread(fn: Callable[[*Ts], T], *args: *Ts) -> T:
    """`fn(*args)` in a worker thread; raises what it raises.

    Cancellable until it begins, and not from then on. `fn` may not use trio.
    """
    try:
        threads = _THREADS.get()
    except LookupError:
        threads = _Threads()
        _THREADS.set(threads)
    await trio.lowlevel.checkpoint_if_cancelled()
    if threads.free:
        threads.free -= 1
    else:
        # Whoever is done hands its place over.
        await threads.waiting.park()
    try:
        return await _in_some_thread(partial(fn, *args))
    finally:
        if threads.waiting:
            threads.waiting.unpark()
        else:
            threads.free += 1


async def _in_some_thread(call: Callable[[], T]) -> T:
    task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()

    def deliver(result: Outcome[T]) -> None:
        token.run_sync_soon(trio.lowlevel.reschedule, task, result)

    trio.lowlevel.start_thread_soon(call, deliver)
    return cast("T", await trio.lowlevel.wait_task_rescheduled(_finish_first))


def _finish_first(_raise_cancel: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
