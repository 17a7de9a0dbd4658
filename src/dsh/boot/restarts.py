"""Restarts of the loop: the agents that a change takes down, said first and resumed afterwards.

What comes in: the fibers that are about to be unloaded. What goes out: if the loop stands on one of
them, the same agents again, from their logs, with new handles. Only agents that work for no other
are resumed: a child belongs to a call of its parent's, which has ended. It never stops an agent by
itself; the loop does, when it is told that it goes.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

from dsh.agent import AGENTS
from dsh.boot.news import News
from dsh.kernel import in_a_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from dsh.agent import AgentHandle, Agents
    from dsh.boot.identities import Identities
    from dsh.hooks import live
    from dsh.kernel import Fiber, Kernel

__all__ = ["LOOP", "Restarts"]

#: The id of the row that runs agents.
LOOP: Final = "agent-loop"


@final
class Restarts:
    """What becomes of agents when the loop restarts."""

    def __init__(self, kernel: Kernel, identities: Identities) -> None:
        self._kernel: Final = kernel
        self._identities: Final = identities
        #: Called with each agent that lives again; its creator's old handle is of no use any more.
        self.resumed: Callable[[AgentHandle], None] = _nothing

    @asynccontextmanager
    async def around(
        self, fibers: Sequence[Fiber], why: str, tell: Callable[[News], None]
    ) -> AsyncGenerator[None]:
        """Let the block unload `fibers`. Agents that it ends go before, and live again after it.

        What stops is said before.
        """
        roots = self._roots() if self._ends_agents(fibers) else ()
        if roots:
            names = ", ".join(repr(agent.id) for agent in roots)
            tell(News("agents", f"{why} restarts the loop: {names} stop now and are resumed"))
        remembered = [(agent.id, agent.options) for agent in roots]
        async with self._kernel.parting(fibers):
            yield
        for session_id, options in remembered:
            agents = self._agents()
            if agents is None:
                tell(News("kept", f"the loop is not active, so {session_id!r} is not resumed"))
                continue
            if session_id in self._identities.declared or agents.get(session_id) is not None:
                continue  # A declared agent: the loop resumes it itself.
            try:
                self.resumed(await agents.resume(session_id, options=options))
            except Exception as error:  # noqa: BLE001 - one agent must not keep others from living
                tell(News("kept", f"session {session_id!r} is not resumed: {in_a_line(error)}"))

    def _ends_agents(self, fibers: Sequence[Fiber]) -> bool:
        below = {each.id for fiber in fibers for each in (fiber, *self._kernel.dependents(fiber))}
        return LOOP in below

    def _roots(self) -> tuple[live.Agent, ...]:
        agents = self._agents()
        return () if agents is None else agents.roots()

    def _agents(self) -> Agents | None:
        return self._kernel.root.get(AGENTS)


def _nothing(_handle: AgentHandle) -> None:
    """Nobody waits for it."""
