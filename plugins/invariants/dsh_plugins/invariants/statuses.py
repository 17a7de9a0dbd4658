"""The status law: an agent is told running and idle in turn, and says so itself.

What comes in: notices of status, and agents that leave. What goes out: nothing, or a breach that a
notice can only tell. Each agent has its own course.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh.hooks import live
    from dsh_plugins.invariants.breach import Book

__all__ = ["Statuses"]


class Statuses:
    """The law for all agents of one house. `live`: those that were there at loading."""

    def __init__(self, book: Book, agents: Iterable[live.Agent]) -> None:
        self._book: Final = book
        self._last: Final[dict[str, str]] = {agent.id: agent.status for agent in agents}

    def told(self, notice: ev.agent.Status) -> None:
        """A status was told. Raises LawBroken."""
        agent, status = notice.agent, notice.status
        before = self._last.get(agent.id, "idle")
        self._last[agent.id] = status
        if status == before:
            seen = f"{status} was told twice"
        elif agent.status != status:
            seen = f"{status} was told, and the agent is {agent.status}"
        else:
            return
        raise self._book.breach(
            "status", ev.agent.STATUS.name, agent.session.next_seq, f"agent {agent.id!r}: {seen}"
        )

    def left(self, agent: live.Agent) -> None:
        """The agent is gone; another may take its id."""
        self._last.pop(agent.id, None)
