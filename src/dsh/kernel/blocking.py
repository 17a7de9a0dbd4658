"""Block watch: who kept the thread for itself, so that nothing else could run.

What comes in: the moments at which trio's loop begins and ends its rounds. What goes out: a report
after each round that took too long, with the plugin and line that a second thread saw meanwhile.
It costs two assignments a round, nothing per listener, and never interrupts anybody.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, final

import trio
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from dsh.kernel.blame import Blame, Culprit

__all__ = ["TICK", "BlockWatch", "watched"]

#: Seconds between two looks; what lasts three of them is reported.
TICK: Final = 0.2
TICKS: Final = 3


@final
class BlockWatch(trio.abc.Instrument):
    """Watches the rounds of one trio run, with a thread of its own."""

    def __init__(
        self, blame: Blame, report: Callable[[Culprit | None, float], None], tick: float
    ) -> None:
        self._blame: Final = blame
        self._report: Final = report
        self._tick: Final = tick
        self._token: Final = trio.lowlevel.current_trio_token()
        self._watched: Final = threading.get_ident()
        self._over: Final = threading.Event()
        #: Counts rounds; negative while the loop waits.
        self._round = 1

    @override
    def before_io_wait(self, timeout: float) -> None:
        self._round = -abs(self._round)

    @override
    def after_io_wait(self, timeout: float) -> None:
        self._round = abs(self._round) + 1

    def stop(self) -> None:
        """End the thread; it is not waited for."""
        self._over.set()

    def look(self) -> None:
        """The body of the thread."""
        last, ticks = 0, 0
        seen: Culprit | None = None
        # Ticks are counted, not measured: a machine that stops the whole process stops them, too.
        while not self._over.wait(self._tick):
            now = self._round
            if now == last and now > 0:
                ticks += 1
                # The documented way to another thread's stack, whatever its name looks like.
                frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
                found = self._blame.running(frames.get(self._watched))
                if found is not None and self._round == now:
                    seen = found
                continue
            if ticks >= TICKS:
                self._tell(seen, ticks * self._tick)
            last, ticks, seen = now, 0, None
        if ticks >= TICKS:
            self._tell(seen, ticks * self._tick)

    def _tell(self, culprit: Culprit | None, seconds: float) -> None:
        # Reported by the loop's own thread: what shows it on a screen is no business of ours.
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._report, culprit, seconds)


@contextmanager
def watched(blame: Blame, report: Callable[[Culprit | None, float], None]) -> Generator[None]:
    """Watch this trio run for the length of the block."""
    watch = BlockWatch(blame, report, TICK)
    threading.Thread(target=watch.look, name="dsh block watch", daemon=True).start()
    trio.lowlevel.add_instrument(watch)
    try:
        yield
    finally:
        watch.stop()
        with suppress(KeyError):  # trio has removed it already if it ever raised
            trio.lowlevel.remove_instrument(watch)
