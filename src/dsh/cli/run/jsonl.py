"""`--json`: one session event a line on standard output, as it stands in the log.

What comes in: the session, and a nudge whenever it grew. What goes out: the events' lines, each
complete, in order, and never before the store has the event: what a reader saw survives kill -9.
The header line is not printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from dsh.wire import encode_line

if TYPE_CHECKING:
    from dsh.cli.screen.outlet import Outlet
    from dsh.session import Session

__all__ = ["EventLines"]


@final
class EventLines:
    """Prints the events of one session from `first` (a seq) on."""

    def __init__(self, out: Outlet, session: Session, first: int) -> None:
        self._out: Final = out
        self._session: Final = session
        self._next = first
        self._grew = trio.Event()
        session.writer.on_news(self.nudge)

    def nudge(self) -> None:
        """The session grew, or its store did. Never blocks, never raises."""
        self._grew.set()

    async def run(self) -> None:
        """Print as the store takes events; until cancelled. Raises OutletClosed."""
        while True:
            await self._grew.wait()
            self._grew = trio.Event()
            self.print_stored()

    def print_stored(self) -> None:
        """Print what the store has and was not printed yet. Raises OutletClosed."""
        stored = self._session.next_seq - self._session.writer.pending
        while self._next < stored:
            event = self._session.events[self._next]
            self._next += 1
            self._out.data(encode_line(event) + b"\n")
