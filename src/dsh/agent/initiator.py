"""The initiator: which agent's work the running code belongs to.

What comes in: boundaries, entered around an agent's driver. What goes out: the innermost agent, by
a context variable that tasks inherit when they are started. It says who began this chain of work:
never that the agent is alive, never what it may do.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import trio

from dsh.errors import AgentClosed, AgentError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from dsh.hooks import live

__all__ = ["Initiators", "initiator", "require_initiator"]


class _Boundary:
    """One entered boundary. `agent` None: ambient work that belongs to nobody."""

    __slots__ = ("agent", "home", "outer")

    def __init__(self, home: Initiators, agent: live.Agent | None, outer: _Boundary | None) -> None:
        self.home = home
        self.agent = agent
        self.outer = outer

    def lineage(self) -> Iterator[_Boundary]:
        """This boundary and those around it."""
        boundary: _Boundary | None = self
        while boundary is not None:
            yield boundary
            boundary = boundary.outer


_CURRENT: ContextVar[_Boundary | None] = ContextVar("dsh_initiator", default=None)


def initiator() -> live.Agent | None:
    """The agent on whose behalf this code runs, or None. Raises AgentClosed after shutdown."""
    boundary = _CURRENT.get()
    if boundary is None:
        return None
    if boundary.home.disposed:
        raise AgentClosed(
            "the agents service of this task has shut down; start background work under "
            "`agents.initiators.nobody()` if it should outlive its agent"
        )
    return boundary.agent


def require_initiator() -> live.Agent:
    """`initiator()`, where there must be one. Raises AgentError naming the remedy."""
    agent = initiator()
    if agent is None:
        raise AgentError(
            "no agent is running this code; call it from a turn (a hook, a tool), "
            "or enter `agents.initiators.boundary(agent)` first"
        )
    return agent


class Initiators:
    """The boundaries of one agents service; shut down with it."""

    def __init__(self) -> None:
        self._active: set[_Boundary] = set()
        self._closing = False
        self._left: Final = trio.lowlevel.ParkingLot()
        self.disposed = False

    @contextmanager
    def boundary(self, agent: live.Agent) -> Generator[None, None, None]:
        """Run a block on behalf of `agent`; the former initiator returns after it."""
        with self._enter(agent):
            yield

    @contextmanager
    def nobody(self) -> Generator[None, None, None]:
        """Run a block on nobody's behalf: for shared work that outlives the agent that began it."""
        with self._enter(None):
            yield

    @contextmanager
    def _enter(self, agent: live.Agent | None) -> Generator[None, None, None]:
        if self._closing:
            raise AgentClosed("the agents service is shutting down and takes no new work")
        boundary = _Boundary(self, agent, _CURRENT.get())
        token = _CURRENT.set(boundary)
        self._active.add(boundary)
        try:
            yield
        finally:
            self._active.discard(boundary)
            self._left.unpark_all()
            _CURRENT.reset(token)

    async def aclose(self) -> None:
        """Refuse new boundaries, wait for the active ones, then make reading an error.

        Boundaries around the caller are not waited for, so a shutdown that an agent's own work
        asks for cannot deadlock. Cancelled: closed to new work, not yet disposed; call again.
        """
        self._closing = True
        current = _CURRENT.get()
        around = set(current.lineage()) if current is not None else set[_Boundary]()
        while self._active - around:
            await self._left.park()
        self.disposed = True
        await trio.lowlevel.checkpoint()
