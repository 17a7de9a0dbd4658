"""A lock that costs a turn of the event loop only when it must wait.

What comes in: tasks that want to be alone. What goes out: one at a time, in the order of asking.
`trio.Lock` lets every other task run once even when nobody holds it; on the path of a model
request, which takes several locks that nearly always are free, that is dear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Exclusive"]


@final
class Exclusive:
    """`async with` it. A cancelled task is refused before it gets in, as by `trio.Lock`.

    Only waiting is a checkpoint: whoever loops over it must have another. Not re-entrant.
    """

    __slots__ = ("_held", "_waiting")

    def __init__(self) -> None:
        self._held = False
        self._waiting: Final = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._held:
            # Whoever leaves hands the lock over: it stays held, and this task has it.
            await self._waiting.park()
        else:
            self._held = True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._waiting:
            self._waiting.unpark()
        else:
            self._held = False
