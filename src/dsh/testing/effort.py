"""How much something does, counted exactly: for tests of what must not grow.

What comes in: a function to run once. What goes out: how many calls it made, or how many bytes it
held at most. Never a time. Only the calling thread is counted.
"""

from __future__ import annotations

import sys
import tracemalloc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["bytes_of", "calls_of"]


def calls_of(run: Callable[[], object]) -> int:
    """The calls of functions, ours and native ones, while `run` runs."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        if event in {"call", "c_call"}:
            count += 1

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def bytes_of(run: Callable[[], object]) -> int:
    """The most memory that `run` held beyond what was there before it."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        result = run()
        _, peak = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return peak - before
