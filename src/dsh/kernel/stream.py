"""Streams: an onion of async context managers around one stream of chunks.

What comes in: a payload, the chain, and the innermost stream. What goes out: one manager, entered
lazily from the outside in. `call_next()` is legal until the listener's own manager has exited, one
at a time. A manager that swallows its consumer's exception is misuse, for it would cut the stream
without a word.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, TypeVar, cast, final

from typing_extensions import override

from dsh.errors import BadAnswer, WaterfallMisuse
from dsh.kernel.stack import Held, pop, push

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    from dsh.kernel.listeners import Entry

__all__ = ["Segment"]

C = TypeVar("C")


@final
class _StreamNext(Generic[C]):
    """`call_next` of one stream listener."""

    __slots__ = ("_parent", "busy", "closed")

    def __init__(self, parent: Segment[C]) -> None:
        self._parent = parent
        self.busy = False
        self.closed = False

    def __call__(self) -> AbstractAsyncContextManager[AsyncIterator[C]]:
        self.check()
        return self._parent.rest(self)

    def check(self) -> None:
        """Raise WaterfallMisuse unless the rest of the chain may be entered now."""
        if self.closed:
            raise self._parent.misuse(
                "called call_next() after its manager exited", "use it inside the manager only"
            )
        if self.busy:
            raise self._parent.misuse(
                "called call_next() while the previous one was still open",
                "leave its `async with` first",
            )


@final
class Segment(AbstractAsyncContextManager["AsyncIterator[C]"], Generic[C]):
    """The chain from one index on. Entered once; the next listener is called on entering."""

    __slots__ = (
        "_chain",
        "_default",
        "_entry",
        "_event",
        "_frame",
        "_from",
        "_index",
        "_manager",
        "_next",
        "_payload",
    )

    def __init__(
        self,
        event: str,
        chain: tuple[Entry, ...],
        index: int,
        payload: object,
        default: Callable[[], AbstractAsyncContextManager[AsyncIterator[C]]],
        came_from: _StreamNext[C] | None = None,
    ) -> None:
        self._event = event
        self._chain = chain
        self._index = index
        self._payload = payload
        self._default = default
        self._from = came_from
        self._manager: AbstractAsyncContextManager[AsyncIterator[C]] | None = None
        self._entry: Entry | None = None
        self._next: _StreamNext[C] | None = None
        self._frame: Held | None = None

    def rest(self, came_from: _StreamNext[C]) -> Segment[C]:
        """The chain behind this segment's listener."""
        return Segment(
            self._event, self._chain, self._index, self._payload, self._default, came_from
        )

    def misuse(self, what: str, remedy: str) -> WaterfallMisuse:
        """The error that names who did what where."""
        if self._entry is None:
            return WaterfallMisuse(f"the innermost stream of {self._event!r} {what}; {remedy}")
        return WaterfallMisuse(
            f"plugin {self._entry.plugin!r} {what} in its listener of {self._event!r} "
            f"({self._entry.place}); {remedy}"
        )

    @override
    async def __aenter__(self) -> AsyncIterator[C]:
        if self._manager is not None:
            raise self.misuse("entered one stream twice", "call call_next() again")
        if self._from is not None:
            self._from.check()
            self._from.busy = True
        # One frame for each listener: all that are open are gone through at every network read.
        try:
            manager = self._manager = self._next_manager()
            stream = await manager.__aenter__()
            if self._entry is not None and not hasattr(stream, "__anext__"):
                await manager.__aexit__(None, None, None)
                raise self._no_stream(self._entry, stream)  # noqa: TRY301 - left like any failure
        except BaseException:
            self._leave()
            raise
        return stream

    def _no_stream(self, entry: Entry, answer: object) -> BadAnswer:
        return BadAnswer(
            f"plugin {entry.plugin!r} yielded {type(answer).__name__} for {self._event!r} "
            f"({entry.place}); allowed: an async iterator of chunks"
        )

    def _next_manager(self) -> AbstractAsyncContextManager[AsyncIterator[C]]:
        while self._index < len(self._chain):
            entry = self._chain[self._index]
            self._index += 1
            if entry.active:
                return self._asked(entry)
        return self._default()

    def _asked(self, entry: Entry) -> AbstractAsyncContextManager[AsyncIterator[C]]:
        self._entry = entry
        self._next = _StreamNext(self)
        entry.runs += 1
        entry.running += 1
        self._frame = Held(entry)
        push(self._frame)
        manager: object = entry.fn(self._payload, self._next)
        if not isinstance(manager, AbstractAsyncContextManager):
            raise BadAnswer(
                f"plugin {entry.plugin!r} answered {type(manager).__name__} to {self._event!r} "
                f"({entry.place}); allowed: an async context manager; "
                "decorate the listener with @asynccontextmanager"
            )
        return cast("AbstractAsyncContextManager[AsyncIterator[C]]", manager)

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._manager is None:
            raise self.misuse("left a stream that was never entered", "use `async with`")
        try:
            swallowed = await self._manager.__aexit__(kind, error, traceback)
        finally:
            self._leave()
        if swallowed and error is not None:
            raise self.misuse(
                f"swallowed its consumer's {type(error).__name__}", "let it pass, or raise another"
            ) from error

    def _leave(self) -> None:
        if self._from is not None:
            self._from.busy = False
        if self._next is not None and not self._next.closed:
            self._next.closed = True
            if self._frame is not None:
                pop(self._frame)
            if self._entry is not None:
                self._entry.running -= 1
                self._entry.went_idle()
