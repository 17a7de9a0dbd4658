"""A screen that is never ahead of the log: what is shown of an event waits until the store has it.

What comes in: acts that show something, each with the seq of its event, and news of the session's
writer. What goes out: the same acts, in order, each once its event survives the death of this
process; so a person who saw text finds it in the log, also when the processor, the disk or a plugin
held everything up right after it was shown. It shows nothing itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.session import LogWriter

__all__ = ["BehindLog"]


@final
class BehindLog:
    """The acts that wait for one session's log. Before `follow`, and without a store, none does.

    While the store refuses rows nothing is held back: the next barrier says so and the turn fails,
    and until then a person had better see what there is.
    """

    def __init__(self) -> None:
        self._writer: LogWriter | None = None
        self._waiting: Final[deque[tuple[int, Callable[[], None]]]] = deque()
        self._shown: Final = trio.lowlevel.ParkingLot()

    def follow(self, writer: LogWriter) -> None:
        """From now on seqs are those of this writer's session. What still waits is done first."""
        self.release()
        self._writer = writer
        writer.on_news(self._look)

    def act(self, seq: int, act: Callable[[], None]) -> None:
        """Do it when the store has the event `seq` and everything asked for before was done."""
        if self._waiting or not self._is_safe(seq):
            self._waiting.append((seq, act))
        else:
            act()

    def after(self, act: Callable[[], None]) -> None:
        """Do it when everything asked for before was done."""
        if self._waiting:
            self._waiting.append((-1, act))
        else:
            act()

    async def shown(self) -> None:
        """Return when nothing waits: before a person is asked about what they see. Cancellable."""
        while self._waiting:
            await self._shown.park()

    def release(self) -> None:
        """Do everything that waits. For when the log is closed, or this process leaves."""
        while self._waiting:
            self._do_next()

    def _look(self) -> None:
        while self._waiting and self._is_safe(self._waiting[0][0]):
            self._do_next()

    def _do_next(self) -> None:
        _, act = self._waiting.popleft()
        if not self._waiting:
            self._shown.unpark_all()
        act()

    def _is_safe(self, seq: int) -> bool:
        return self._writer is None or self._writer.refused or self._writer.has_written(seq)
