"""Host tasks: one task for each context manager or background function that a plugin keeps open.

What comes in: an async context manager, or a function and its arguments. What goes out: the
entered value, and an end that can be asked for in any order. A nursery or cancel scope that is
entered in one frame and left in another corrupts trio's stack; here each lives in a frame of its
own. A host catches everything: a failure kills its effect and fails its fiber, nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import trio

from dsh.errors import InactiveEffect
from dsh.kernel.effects import BUILDING, Effect
from dsh.kernel.places import uncontained
from dsh.kernel.stack import Held, pop, push

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

__all__ = ["Host", "enter_hosted", "spawn_hosted"]

T = TypeVar("T")


@final
class Host(Generic[T]):
    """The task that holds one thing open."""

    __slots__ = ("closing", "done", "effect", "failed", "failure", "opened", "scope", "value")

    def __init__(self, effect: Effect, failed: Callable[[str, Exception], None]) -> None:
        self.effect: Final = effect
        self.failed: Final = failed
        self.scope: Final = trio.CancelScope()
        self.opened: Final = trio.Event()
        self.closing: Final = trio.Event()
        self.done: Final = trio.Event()
        self.value: tuple[T] | None = None
        self.failure: Exception | None = None

    async def hold(self, manager: AbstractAsyncContextManager[T]) -> None:
        """Enter `manager`, hand out its value, leave it when asked."""

        async def body() -> None:
            BUILDING.set(self.effect)
            async with manager as value:
                BUILDING.set(None)
                self.value = (value,)
                self.opened.set()
                await self.closing.wait()

        await self._contain(body)

    async def work(self, fn: Callable[[], Awaitable[object]]) -> None:
        """Run `fn` to its end, or until it is cancelled."""

        async def body() -> None:
            self.opened.set()
            await fn()

        await self._contain(body)

    def opened_value(self) -> T:
        """What entering gave; raises what entering raised."""
        if self.value is not None:
            return self.value[0]
        raise self.failure or InactiveEffect(
            f"{self.effect.label} of plugin {self.effect.owner.path!r}: unloading began meanwhile"
        )

    async def close(self) -> None:
        """Leave the manager and wait for it. When that wait is cut short, cancel it."""
        self.closing.set()
        try:
            await self.done.wait()
        finally:
            self.scope.cancel()

    async def stop(self) -> None:
        """Cancel the function and wait for its end."""
        self.closing.set()
        self.scope.cancel()
        await self.done.wait()

    async def _contain(self, body: Callable[[], Awaitable[None]]) -> None:
        BUILDING.set(None)
        # Its end waits for what runs in it and below; that must not wait for its end.
        frame = Held(self.effect)
        push(frame)
        try:
            with self.scope:
                try:
                    await body()
                except BaseException as error:  # noqa: BLE001 - divided below
                    self.failure, onward = uncontained(error)
                    if onward is not None:
                        raise onward from None
        finally:
            pop(frame)
            opened = self.opened.is_set()
            self.done.set()
            self.opened.set()
            if opened:
                self._settle()

    def _settle(self) -> None:
        if self.closing.is_set():
            if self.failure is not None:
                self.effect.owner.note_teardown(self.effect.label, self.failure)
            return
        if self.effect.active:
            self.effect.finish()
        if self.failure is not None:
            self.failed(self.effect.label, self.failure)


async def enter_hosted(
    effect: Effect,
    manager: AbstractAsyncContextManager[T],
    failed: Callable[[str, Exception], None],
) -> T:
    """Enter `manager` in a host task and return its value; the effect's undoing leaves it.

    What entering raises is raised here. Cancelled while entering: the manager is left again first.
    """
    host: Host[T] = Host(effect, failed)
    effect.setup_scope = host.scope
    effect.owner.nursery.start_soon(host.hold, manager, name=f"{effect.owner.path}: {effect.label}")
    try:
        await host.opened.wait()
        value = host.opened_value()
    except BaseException:
        host.scope.cancel()
        with trio.CancelScope(shield=True):
            await host.done.wait()
        await effect.unwind_parts()
        effect.finish()
        raise
    effect.ready(undo=host.close)
    if effect.aborted:
        await effect.aclose()
        raise InactiveEffect(f"{effect.label} of plugin {effect.owner.path!r}: unloading began")
    return value


def spawn_hosted(
    effect: Effect,
    fn: Callable[[], Awaitable[object]],
    failed: Callable[[str, Exception], None],
) -> Effect:
    """Start `fn` in a host task of its own; the effect's undoing cancels and joins it."""
    host: Host[None] = Host(effect, failed)
    effect.ready(undo=host.stop)
    effect.owner.nursery.start_soon(host.work, fn, name=f"{effect.owner.path}: {effect.label}")
    return effect
