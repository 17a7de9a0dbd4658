"""The meter that every measured process carries: CPU seconds at its marks, and its peak memory.

What comes in: `ready`, `first`, `step` and `chunk` from the loop under measurement. What goes out:
one line of JSON on stdout. It never measures wall time: machines are noisy.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Meter"]


def peak_kib() -> int:
    """The largest resident size of this program, in KiB.

    `ru_maxrss` would not do where there is a choice: it begins with the size of whoever started it.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


class Meter:
    """CPU seconds since the start of the process, at each mark.

    `count` is asked at each step for whatever else is to be kept beside its mark.
    """

    def __init__(self, count: Callable[[], dict[str, int]] | None = None) -> None:
        self._count = count
        self.imported = time.process_time()
        self.opened = 0.0
        self.answered = 0.0
        self.marks: list[float] = []
        self.counts: list[dict[str, int]] = []
        self.chunks = 0

    def ready(self) -> None:
        """The client or the harness is open; the first request has not been made."""
        self.opened = time.process_time()

    def step(self) -> None:
        """One step is done."""
        self.marks.append(time.process_time())
        if self._count is not None:
            self.counts.append(self._count())

    def chunk(self) -> None:
        """One streamed piece arrived. The first of them dates the first request on the wire."""
        if not self.chunks:
            self.answered = time.process_time()
        self.chunks += 1

    def tell(self, **more: int) -> None:
        """Print what was measured; `more` are further figures of the process."""
        told = {
            "imported": self.imported,
            "opened": self.opened,
            "answered": self.answered,
            "marks": self.marks,
            "cpu": time.process_time(),
            "chunks": self.chunks,
            "peakKib": peak_kib(),
            "counts": self.counts,
            "more": more,
        }
        sys.stdout.write(json.dumps(told) + "\n")
