"""Clock: the only way to ask what time it is.

What comes in: the system's wall clock and trio's monotonic one. What goes out: integers in epoch
milliseconds and floats in seconds. A test passes its own clock to `open_kernel`; nothing here
sleeps or schedules.
"""

from __future__ import annotations

import time
from typing import Protocol, final

import trio

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Two clocks: one for what is written down, one for measuring and waiting."""

    def now_ms(self) -> int:
        """Wall time in epoch milliseconds. May go backwards when the system's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds of trio's clock: never backwards, mocked together with trio's timeouts."""
        ...


@final
class SystemClock:
    """The clock of a running harness."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of trio's clock; needs a running trio loop."""
        return trio.current_time()
