"""Something happens at the n-th step of the scheduler: the way to be at every checkpoint once.

What comes in: a number and an act. What goes out: the act, done just before a task runs on for the
n-th time since the counter was armed; and, without a number, how many such moments there are. The
acts are synchronous, as `agent.cancel` is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AtStep"]


@final
class AtStep(trio.abc.Instrument):
    """Counts task steps while armed. Use it with `trio.lowlevel.add_instrument`."""

    def __init__(self, step: int | None = None, act: Callable[[], None] | None = None) -> None:
        self.count = 0
        self.acted = False
        self._armed = False
        self._step = step
        self._act = act

    def arm(self) -> None:
        """Begin to count."""
        self._armed = True

    def disarm(self) -> None:
        """Count no more."""
        self._armed = False

    @override
    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self._armed:
            return
        self.count += 1
        if self.count == self._step and self._act is not None:
            self.acted = True
            self._act()
