"""What a process did, counted exactly: calls, turns of the event loop, thread hops, syncs.

What comes in: a running trio program. What goes out: the counts so far, whenever asked. Counting
slows everything down, so no time is ever taken beside it. Only the main thread's calls count.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, final

import trio
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from _typeshed import HasFileno
    from outcome import Outcome

__all__ = ["Counting"]

T = TypeVar("T")


@final
class Counting(trio.abc.Instrument):
    """Counts while it is installed and given to `trio.run` as an instrument."""

    def __init__(self) -> None:
        self._calls = 0
        self._native = 0
        self._polls = 0
        self._hops = 0
        self._syncs = 0

    def counts(self) -> dict[str, int]:
        """Everything counted so far."""
        return {
            "calls": self._calls,
            "native": self._native,
            "polls": self._polls,
            "hops": self._hops,
            "syncs": self._syncs,
        }

    @override
    def before_io_wait(self, timeout: float) -> None:
        """The event loop asks the system once."""
        del timeout
        self._polls += 1

    @contextmanager
    def installed(self) -> Generator[None, None, None]:
        """Count inside this block."""
        fsync, start = os.fsync, trio.lowlevel.start_thread_soon

        def counted_fsync(fd: int | HasFileno) -> None:
            self._syncs += 1
            fsync(fd)

        def counted_start(
            fn: Callable[[], T], deliver: Callable[[Outcome[T]], object], name: str | None = None
        ) -> None:
            self._hops += 1
            start(fn, deliver, name)

        def seen(_frame: FrameType, event: str, _argument: object) -> None:
            if event == "call":
                self._calls += 1
            elif event == "c_call":
                self._native += 1

        os.fsync = counted_fsync
        trio.lowlevel.start_thread_soon = counted_start
        sys.setprofile(seen)
        try:
            yield
        finally:
            sys.setprofile(None)
            os.fsync, trio.lowlevel.start_thread_soon = fsync, start
