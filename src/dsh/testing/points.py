"""Every moment at which a scripted run can be interrupted: counted, and one of them acted on.

What comes in: a number and an act. What goes out: the act, done at that moment; how many moments
there are; and which events of the catalog were dispatched meanwhile. A moment is each step of each
task and each notice, so a cancel also comes from inside listeners. `everywhere` makes a plugin of
it that listens to whatever the registry of the catalog has, and adds a checkpoint before and after
each answer.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

import trio
from typing_extensions import override

from dsh.catalog.registry import TOKENS
from dsh.hooks import Durable, Emit, Hook, Parallel, Serial, Stream, Waterfall
from dsh.kernel import Context, Plugin, plugin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from dsh.hooks import Next, StreamNext

__all__ = ["Points", "everywhere"]


@final
class Points(trio.abc.Instrument):
    """Counts while armed; does `act` at the moment number `at`, counted from 1."""

    def __init__(self, at: int | None = None) -> None:
        self.count = 0
        self.armed = False
        self.acted = False
        self.act: Callable[[], None] = _nothing
        #: The names of the events that were dispatched while armed.
        self.met: set[str] = set()
        #: The newest of them.
        self.latest = ""
        #: What the act itself raised; it must not look like a failure of what it interrupts.
        self.failure: Exception | None = None
        self._at = at

    def moment(self) -> None:
        """One more."""
        if not self.armed:
            return
        self.count += 1
        if self.count == self._at:
            self.acted = True
            try:
                self.act()
            except Exception as error:  # noqa: BLE001 - told by whoever reads `failure`
                self.failure = error

    def meet(self, name: str) -> None:
        """An event was dispatched."""
        if self.armed:
            self.met.add(name)
            self.latest = name

    @override
    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.moment()


def _nothing() -> None:
    """Only count."""


def everywhere(points: Points) -> Plugin:
    """A plugin that listens to every event of the core catalog and changes nothing."""

    @plugin(name="everywhere")
    async def listening(ctx: Context) -> None:
        for token in TOKENS.values():
            ctx.on(token)(_listener(token, points))

    return listening


def _listener(token: Hook[object], points: Points) -> object:
    """What kind of listener it must be, the token says."""
    name = token.name

    async def around(_payload: object, call_next: Next[object]) -> object:
        points.meet(name)
        await trio.lowlevel.checkpoint()
        answer = await call_next()
        await trio.lowlevel.checkpoint()
        return answer

    @asynccontextmanager
    async def streaming(
        _payload: object, call_next: StreamNext[object]
    ) -> AsyncGenerator[AsyncIterator[object]]:
        points.meet(name)
        await trio.lowlevel.checkpoint()
        async with call_next() as chunks:
            yield chunks

    async def awaited(_payload: object) -> None:
        points.meet(name)
        await trio.lowlevel.checkpoint()

    def told(_notice: object) -> None:
        points.meet(name)
        points.moment()

    def logged(_event: object) -> None:
        points.meet(name)  # the moment is that of `session/event`

    kinds: dict[type, object] = {
        Waterfall: around,
        Stream: streaming,
        Serial: awaited,
        Parallel: awaited,
        Emit: told,
        Durable: logged,
    }
    if type(token) not in kinds:
        raise TypeError(f"{token!r} is of a kind that this module does not know; add it")
    return kinds[type(token)]
