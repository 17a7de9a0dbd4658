"""The compactions that are running: cut short when the plugin unloads, and waited for.

What comes in: summaries to wait for, and the word that the plugin goes. What goes out: the summary,
or CompactionFailed `cancelled` the moment the plugin goes; and a drain that ends when every bracket
is closed. It knows nothing of logs or models.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from dsh.seams.compaction import CompactionFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

__all__ = ["Running"]

T = TypeVar("T")


@final
class Running:
    """Of one mounted plugin. Whoever makes it calls `close()`, then awaits `drain()`."""

    def __init__(self) -> None:
        self._scopes: Final[set[trio.CancelScope]] = set()
        self._open = 0
        self._none: trio.Event | None = None
        self._closed = False

    @contextmanager
    def counted(self) -> Generator[None, None, None]:
        """One compaction, from before its bracket opens until it is closed.

        Raises CompactionFailed `cancelled` when none may begin any more.
        """
        if self._closed:
            raise _gone()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open and self._none is not None:
                self._none.set()

    async def wait_for(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` gives. Raises CompactionFailed `cancelled` when the plugin goes first."""
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await work()
            finally:
                self._scopes.discard(scope)
        raise _gone()

    def close(self) -> None:
        """End every wait now; nothing begins any more."""
        self._closed = True
        for scope in self._scopes:
            scope.cancel()

    async def drain(self) -> None:
        """Wait until every bracket is closed."""
        if self._open:
            self._none = trio.Event()
            await self._none.wait()


def _gone() -> CompactionFailed:
    return CompactionFailed(
        "cancelled", "the plugin compaction was unloaded; the conversation is as it was"
    )
