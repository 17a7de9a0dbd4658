"""Effects: reversible registrations, undone exactly once, in the opposite order of their making.

What comes in: a setup that ran, and how to undo it. What goes out: a handle whose undoing is
awaited, shielded from cancellation, bounded in time, and joined by everyone who asks for it.
A disposer that raises or hangs is reported to the owner and never stops the others.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from dsh.errors import InactiveEffect
from dsh.kernel.bounded import End, run_bounded
from dsh.kernel.places import contained
from dsh.kernel.stack import Held, held, pop, push

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

__all__ = ["BUILDING", "Effect", "Owner", "build", "build_async"]


class Owner(Protocol):
    """What an effect needs of the activation that owns it."""

    @property
    def path(self) -> str:
        """Its id below its parents'."""
        ...

    @property
    def nursery(self) -> trio.Nursery:
        """Where host tasks run: the kernel's."""
        ...

    @property
    def teardown_timeout(self) -> float:
        """Seconds one undoing may last."""
        ...

    @property
    def limit(self) -> Callable[[float], float]:
        """How long something may be waited for: less when the kernel ends."""
        ...

    def note_teardown(self, label: str, problem: Exception | str) -> None:
        """A disposer raised or hung: log it, keep it, go on."""
        ...


class _Phase(Enum):
    SETUP = "setup"
    LIVE = "live"
    CLOSING = "closing"
    CLOSED = "closed"


#: The effect whose setup runs in this task; effects made meanwhile by its owner belong to it.
BUILDING: Final[ContextVar[Effect | None]] = ContextVar("dsh.kernel.building", default=None)


@final
class Effect:
    """One reversible registration; the `EffectHandle` that plugins hold."""

    __slots__ = (
        "_bounded",
        "_bounds_itself",
        "_done",
        "_homes",
        "_in_task",
        "_label",
        "_parts",
        "_phase",
        "_quiesce",
        "_undo",
        "_undo_now",
        "aborted",
        "owner",
        "setup_scope",
    )

    def __init__(
        self, owner: Owner, label: str, homes: list[dict[Effect, None]], *, bounded: bool
    ) -> None:
        self.owner: Final = owner
        self._label = label
        self._bounded = bounded
        self._homes = homes
        self._parts: dict[Effect, None] = {}
        self._phase = _Phase.SETUP
        self._done: trio.Event | None = None
        self._undo_now: Callable[[], None] | None = None
        self._undo: Callable[[], Awaitable[None]] | None = None
        self._quiesce: Callable[[], Awaitable[None]] | None = None
        self._in_task = False
        self._bounds_itself = False
        self.setup_scope: trio.CancelScope | None = None
        self.aborted = False
        for home in homes:
            home[self] = None

    @property
    def label(self) -> str:
        """What it registered, for diagnostics: `on('agent/pre-step')`."""
        return self._label

    @property
    def active(self) -> bool:
        """True from the end of its setup until its undoing begins."""
        return self._phase is _Phase.LIVE

    @property
    def in_setup(self) -> bool:
        """True while its setup runs."""
        return self._phase is _Phase.SETUP

    @property
    def parts(self) -> dict[Effect, None]:
        """The effects that its setup made; they are undone after it, last first."""
        return self._parts

    @property
    def synchronous(self) -> bool:
        """True when undoing it needs no await."""
        return self._undo is None and all(part.synchronous for part in self._parts)

    def ready(
        self,
        *,
        undo_now: Callable[[], None] | None = None,
        undo: Callable[[], Awaitable[None]] | None = None,
        quiesce: Callable[[], Awaitable[None]] | None = None,
        in_task: bool = False,
        bounds_itself: bool = False,
    ) -> None:
        """The setup is done. `quiesce` waits, after a synchronous undo, for calls still running.

        `in_task`: `undo` is a plugin's own function, and runs in a task of its own.
        `bounds_itself`: every wait inside `undo` has a limit already.
        """
        self._in_task = in_task
        self._bounds_itself = bounds_itself
        self._undo_now = undo_now
        self._undo = undo
        self._quiesce = quiesce
        self._phase = _Phase.LIVE

    def dispose(self) -> bool:
        """Undo now, if that needs no await. True if this call did it.

        A disposer that raises is reported, not raised here.
        """
        if self._phase is not _Phase.LIVE or not self.synchronous:
            return False
        self._phase = _Phase.CLOSING
        self._undo_now_contained()
        for part in reversed(tuple(self._parts)):
            part.dispose()
        self.finish()
        return True

    async def aclose(self) -> None:
        """Undo now and wait until it is done; joins an undoing that already runs.

        Cancellation does not interrupt the undoing, which lasts at most the teardown timeout.
        From inside what it holds open, or its own disposer, it only asks, and returns at once.
        """
        if any(thing is self for thing in held()):
            if self._phase is _Phase.LIVE:
                self.owner.nursery.start_soon(_close_later, self)
            return
        if self._phase is _Phase.CLOSED or self.dispose():
            if self._quiesce is not None:
                await self._guarded(self._quiesce)
            return
        if self._phase is not _Phase.LIVE:
            await self._join()
            return
        self._phase = _Phase.CLOSING
        frame = Held(self)
        push(frame)
        try:
            self._undo_now_contained()
            if self._undo is not None:
                await (self._foreign(self._undo) if self._in_task else self._guarded(self._undo))
            await self.unwind_parts()
        finally:
            pop(frame)
            self.finish()

    def finish(self) -> None:
        """It is undone (or died by itself): leave every list, wake whoever waits."""
        self._phase = _Phase.CLOSED
        for home in self._homes:
            home.pop(self, None)
        self._homes = []
        self._undo_now = self._undo = None
        if self._done is not None:
            self._done.set()

    async def unwind_parts(self) -> None:
        """Undo what the setup made, last first."""
        with trio.CancelScope(shield=True):
            while self._parts:
                part = next(reversed(self._parts))
                await part.aclose()
                self._parts.pop(part, None)

    def abandon(self) -> None:
        """The synchronous setup raised: undo its parts. What needs an await is undone by a task."""
        for part in reversed(tuple(self._parts)):
            if not part.dispose():
                self.owner.nursery.start_soon(_close_later, part)
        self.finish()

    def _undo_now_contained(self) -> None:
        if self._undo_now is not None:
            with contained(partial(self.owner.note_teardown, self._label)):
                self._undo_now()

    async def _join(self) -> None:
        if self._done is None:
            self._done = trio.Event()
        if self._phase is _Phase.SETUP:
            self.aborted = True
            if self.setup_scope is not None:
                self.setup_scope.cancel()
        await self._done.wait()

    async def _foreign(self, undo: Callable[[], Awaitable[None]]) -> None:
        """Undo with a plugin's own function: it may ignore cancellation, so it gets a task."""
        limit = self.owner.teardown_timeout
        end, failure = await run_bounded(
            self.owner.nursery,
            undo,
            limit,
            name=f"{self.owner.path}: undoing {self._label}",
            holding=(self,),
        )
        if failure is not None:
            self.owner.note_teardown(self._label, failure)
        elif end is not End.DONE:
            self.owner.note_teardown(
                self._label, f"not undone after {limit:g} s ({end.value}); the rest goes on"
            )

    async def _guarded(self, undo: Callable[[], Awaitable[None]]) -> None:
        limit = self.owner.teardown_timeout if self._bounded else self.owner.limit(math.inf)
        if self._bounds_itself:
            limit = math.inf
        scope = trio.CancelScope(deadline=trio.current_time() + limit, shield=True)
        with contained(partial(self.owner.note_teardown, self._label)), scope:
            await undo()
        if scope.cancelled_caught:
            self.owner.note_teardown(
                self._label, f"not undone after {limit:g} s; abandoned, the rest goes on"
            )


async def _close_later(effect: Effect) -> None:
    BUILDING.set(None)
    await effect.aclose()


@contextmanager
def building(effect: Effect | None) -> Generator[None]:
    """Effects made in this block by the same owner belong to `effect`."""
    outer = BUILDING.get()
    BUILDING.set(effect)
    try:
        yield
    finally:
        BUILDING.set(outer)


def build(effect: Effect, setup: Callable[[], Callable[[], None]]) -> Effect:
    """Run a synchronous setup. If it raises, its completed parts are undone, and it is raised."""
    try:
        with building(effect):
            undo = setup()
    except BaseException:
        effect.abandon()
        raise
    effect.ready(undo_now=undo)
    return effect


async def build_async(
    effect: Effect, setup: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]
) -> Effect:
    """Run an awaited setup in the caller's task; as `build`.

    An unload that begins meanwhile cancels the setup, which then raises InactiveEffect.
    """
    undo: Callable[[], Awaitable[None]] | None = None
    with trio.CancelScope() as scope:
        effect.setup_scope = scope
        try:
            with building(effect):
                undo = await setup()
        except BaseException:
            await effect.unwind_parts()
            effect.finish()
            raise
    if undo is None:
        raise InactiveEffect(f"{effect.label} of plugin {effect.owner.path!r}: unloading began")
    effect.ready(undo=undo, in_task=True)
    if effect.aborted:
        await effect.aclose()
        raise InactiveEffect(f"{effect.label} of plugin {effect.owner.path!r}: unloading began")
    return effect
