"""Bounded waits for code of plugins: cancelled at the limit, left behind when that does not help.

What comes in: an async function of a plugin that runs while something is undone. What goes out:
how it ended. It runs in a task of its own, for a function that shields itself from cancellation
can only be left behind, and the caller's frame must go on. Nothing here decides what to report.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, final

import trio

from dsh.kernel.places import uncontained
from dsh.kernel.stack import Held, held, pop, push

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["MERCY", "Bounded", "End", "run_bounded"]

#: Seconds that a cancelled function has to end before it is left behind.
MERCY: Final = 0.5


class End(Enum):
    """How a bounded call ended."""

    DONE = "done"
    CANCELLED = "cancelled at the limit"
    LEFT = "left behind: it ignores cancellation"


@final
class Bounded:
    """One call in a task of its own."""

    __slots__ = ("_fn", "_held", "_scope", "done", "failure", "onward")

    def __init__(self, fn: Callable[[], Awaitable[object]], *holding: object) -> None:
        self._fn: Final = fn
        # What the caller stands on cannot end before this call does, though its task is another.
        self._held: Final = (*holding, *held())
        self._scope: Final = trio.CancelScope()
        self.done: Final = trio.Event()
        self.failure: Exception | None = None
        self.onward: BaseException | None = None

    async def run(self) -> None:
        """Call it; keep what it raises."""
        frame = Held(*self._held)
        push(frame)
        try:
            with self._scope:
                await self._fn()
        except BaseException as error:  # noqa: BLE001 - kept for the caller, who divides it
            self.failure, self.onward = uncontained(error)
            if isinstance(self.onward, trio.Cancelled):
                raise self.onward from None
        finally:
            pop(frame)
            self.done.set()

    async def wait(self, limit: float) -> End:
        """Wait at most `limit` seconds, then cancel it, then leave it behind. Shielded."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + limit):
            await self.done.wait()
        if self.done.is_set():
            return End.DONE
        self._scope.cancel()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + MERCY):
            await self.done.wait()
        return End.CANCELLED if self.done.is_set() else End.LEFT


async def run_bounded(
    nursery: trio.Nursery,
    fn: Callable[[], Awaitable[object]],
    limit: float,
    *,
    name: str,
    holding: tuple[object, ...] = (),
) -> tuple[End, Exception | None]:
    """Call `fn` for at most `limit` seconds. What it raises is returned, Ctrl-C is raised."""
    call = Bounded(fn, *holding)
    nursery.start_soon(call.run, name=name)
    end = await call.wait(limit)
    if call.onward is not None and not isinstance(call.onward, trio.Cancelled):
        raise call.onward
    return end, call.failure
