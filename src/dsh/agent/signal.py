"""The signal of one activity: its first cause, and the cancel scopes that are alive under it.

What comes in: `cancel(cause)`, once or more often; the first cause stays. What goes out: the cause,
to whoever asks, and a cancelled scope around every await that may be interrupted. No scope of a
signal surrounds a whole turn: the driver's own frame is never cancelled, so it can always close
what it opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from typing_extensions import override

from dsh.errors import AgentError
from dsh.hooks import live

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from dsh.catalog import records

__all__ = ["ActivitySignal", "TurnCancelled"]


class TurnCancelled(AgentError):
    """The current activity was cancelled. The loop raises and catches it; `cause` says why."""

    default_code = "ABORTED"

    def __init__(self, cause: records.CancelCause) -> None:
        super().__init__(f"cancelled ({cause.kind})")
        self.cause = cause


class _LiveScope:
    """A cancel scope that its signal knows while it is entered."""

    __slots__ = ("_scope", "_signal")

    def __init__(self, signal: ActivitySignal) -> None:
        self._signal = signal
        self._scope = trio.CancelScope()

    def __enter__(self) -> trio.CancelScope:
        scope = self._scope.__enter__()
        self._signal.adopt(scope)
        return scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._signal.release(self._scope)
        return self._scope.__exit__(kind, error, trace)


class ActivitySignal(live.TurnSignal):
    """One per turn, and one per maintenance job; the same object through all its extension points.

    `latched` remembers that a wake arrived after the cancel and before the agent was idle again;
    the driver replays it when it converges. `woken` remembers that a waking message arrived since
    the turn's last claim, so that the driver goes on after it.
    """

    __slots__ = ("_cause", "_scopes", "_waiters", "latched", "woken")

    def __init__(self) -> None:
        self._cause: records.CancelCause | None = None
        self._scopes: set[trio.CancelScope] = set()
        self._waiters: trio.Event | None = None
        self.latched = False
        self.woken = False

    @property
    @override
    def cancelled(self) -> bool:
        return self._cause is not None

    @property
    @override
    def cause(self) -> records.CancelCause | None:
        return self._cause

    def cancel(self, cause: records.CancelCause) -> bool:
        """Record `cause` and cancel every live scope. False: an earlier cause stands."""
        if self._cause is not None:
            return False
        self._cause = cause
        for scope in tuple(self._scopes):
            scope.cancel()
        if self._waiters is not None:
            self._waiters.set()
        return True

    @override
    async def wait(self) -> None:
        """Return when cancelled; a checkpoint also when that is already so."""
        if self._cause is not None:
            await trio.lowlevel.checkpoint()
            return
        if self._waiters is None:
            self._waiters = trio.Event()
        await self._waiters.wait()

    @override
    def raise_if_set(self) -> None:
        if self._cause is not None:
            raise TurnCancelled(self._cause)

    @override
    def scope(self) -> AbstractContextManager[trio.CancelScope]:
        return _LiveScope(self)

    def adopt(self, scope: trio.CancelScope) -> None:
        """Make `scope` one of those that `cancel` cancels; at once if a cause stands."""
        self._scopes.add(scope)
        if self._cause is not None:
            scope.cancel()

    def release(self, scope: trio.CancelScope) -> None:
        """Forget `scope`; it is being left."""
        self._scopes.discard(scope)
