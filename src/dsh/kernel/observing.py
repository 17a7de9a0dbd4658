"""Observers: async work on a synchronous notice, in order, behind a bounded queue.

What comes in: payloads, put without waiting. What goes out: one call after the other in a task of
the plugin's. When the queue is full the newest payload is dropped and the plugin's log says so:
the emitter must never wait. At unload what is queued is still delivered, within the time limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

import trio

from dsh.kernel.faults import in_a_line
from dsh.kernel.places import contained
from dsh.kernel.stack import Held, pop, push

if TYPE_CHECKING:
    import logging

    from dsh.kernel.effects import Effect
    from dsh.kernel.places import AsyncCall

__all__ = ["Observer"]


@final
class Observer:
    """One observer: `put` is its listener, `consume` the body of its task."""

    __slots__ = ("_dropped", "_effect", "_fn", "_limit", "_log", "_receive", "_send", "_what")

    def __init__(
        self,
        fn: AsyncCall,
        *,
        queue: int,
        effect: Effect,
        log: logging.Logger,
        what: str,
    ) -> None:
        self._fn: Final = fn
        self._effect: Final = effect
        self._log: Final = log
        self._what: Final = what
        self._limit: Final = queue
        self._dropped = 0
        self._send, self._receive = trio.open_memory_channel[object](math.inf)

    def put(self, payload: object) -> None:
        """Queue one payload; never waits."""
        if self._send.statistics().current_buffer_used >= self._limit:
            if not self._dropped:
                self._log.warning(
                    "%s is more than %d events behind; dropping new ones until it catches up",
                    self._what, self._limit,
                )  # fmt: skip
            self._dropped += 1
            return
        self._send.send_nowait(payload)

    async def consume(self) -> None:
        """Call the plugin's function for each payload, until closed and drained."""
        # Its own unload waits for this task, so it must not wait for its own unload.
        frame = Held(self._effect)
        push(frame)
        try:
            async for payload in self._receive:
                await self._deliver(payload)
        finally:
            pop(frame)

    async def _deliver(self, payload: object) -> None:
        with contained(self._failed):
            await self._fn(payload)
        if self._dropped and not self._receive.statistics().current_buffer_used:
            self._log.warning("%s missed %d events", self._what, self._dropped)
            self._dropped = 0

    def _failed(self, error: Exception) -> None:
        self._log.warning("%s failed: %s", self._what, in_a_line(error), exc_info=error)

    def close(self) -> None:
        """Nothing more comes; `consume` ends when the queue is empty."""
        self._send.close()
