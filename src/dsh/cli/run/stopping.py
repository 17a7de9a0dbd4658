"""Ctrl-C and its kin: once stops the turn, twice leaves.

What comes in: SIGINT, SIGTERM and SIGHUP, through trio. What goes out: a cancelled agent, a
cancelled start, or the end of the process after at most two seconds for the log. Children are
stopped by the cancellation of the calls that own them; nothing here kills a process.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final, final

import trio

from dsh.catalog import records

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import live
    from dsh.session import Session

__all__ = ["Stopping"]

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FLUSH_SECONDS: Final = 2.0


@final
class Stopping:
    """The person's way out of a run."""

    def __init__(self, say: Callable[[str], None], last_words: Callable[[], None]) -> None:
        self._say: Final = say
        self._last_words: Final = last_words
        self._agent: live.Agent | None = None
        self._session: Session | None = None
        self.code: int | None = None
        self.start: Final = trio.CancelScope()

    def attend(self, agent: live.Agent, session: Session) -> None:
        """From now on there is a turn to stop. Stops it at once if it was asked for meanwhile."""
        self._agent = agent
        self._session = session
        if self.code is not None:
            agent.cancel(records.UserCause())

    async def watch(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Receive signals until cancelled. Those the caller had us ignore (nohup) stay ignored."""
        heard = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        if not heard:
            task_status.started()
            return
        with trio.open_signal_receiver(*heard) as signals:
            task_status.started()
            async for number in signals:
                if self.code is None:
                    self._first(number)
                else:
                    await self._leave()

    def _first(self, number: int) -> None:
        self.code = 128 + number
        if self._agent is None:
            self.start.cancel()
            return
        self._say("stopping; Ctrl-C again leaves at once\n")
        self._agent.cancel(records.UserCause())

    async def _leave(self) -> None:
        """Give the log two seconds, then end the process: tasks that hang cannot hold it."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + FLUSH_SECONDS):
            if self._session is not None:
                try:
                    await self._session.writer.barrier()
                except Exception as error:  # noqa: BLE001 - it is said, and nothing else is left
                    self._say(f"dsh: the log may miss its end: {error}\n")
        self._last_words()
        os._exit(self.code if self.code is not None else 130)
