"""Which sessions the agents of a composition have that name none: this launcher's own choice.

What comes in: the rows that are mounted, or are about to be. What goes out: one session id for each
declared agent without one, the same for as long as this process lives, whatever restarts the loop.
It reads no log and starts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

from dsh.agent import IDENTITIES
from dsh.catalog.config import AgentLoopConfig
from dsh.kernel import Context, Plugin, plugin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh.boot.composition import Mountable

__all__ = ["Identities"]


@final
class Identities:
    """The choice. `declared`: every session that the loop opens itself, named by anybody."""

    def __init__(self, rows: Iterable[Mountable]) -> None:
        self.declared: frozenset[str] = frozenset()
        self._chosen: Final[dict[str, str]] = {}
        #: What the loop reads: labels that name no session, as of the rows that were followed last.
        self._given: Final[dict[str, str]] = {}
        self.follow(rows)

    def follow(self, rows: Iterable[Mountable]) -> None:
        """Let these rows be the ones that count from now on."""
        loops = (row.config for row in rows if isinstance(row.config, AgentLoopConfig))
        agents = [one for loop in loops for one in loop.agents]
        named = [one.session_id or one.resume_session_id or None for one in agents]
        self._given.clear()
        for one, name in zip(agents, named, strict=True):
            if name is None:
                minted = f"{one.id}-session-{uuid4()}"
                self._given[one.id] = self._chosen.setdefault(one.id, minted)
        self.declared = frozenset(self._given.values()).union(name for name in named if name)

    def plugin(self) -> Plugin:
        """The row that tells the loop."""

        @plugin(name="identities", provides=(IDENTITIES,))
        async def apply(ctx: Context) -> None:
            ctx.provide(IDENTITIES, self._given)

        return apply
