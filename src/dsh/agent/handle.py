"""What a creator gets, what it may ask for, and the seam behind which a loop makes agents.

What comes in: the wishes of one creation or resumption. What goes out: an `AgentHandle`, the only
thing that can take the agent down again. The agents service forwards; a loop (the factory)
answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import field

from dsh.catalog import records
from dsh.hooks import frozen

if TYPE_CHECKING:
    from dsh.hooks import live
    from dsh.kernel import Context
    from dsh.wire import StoredEvent

__all__ = ["AgentFactory", "AgentHandle", "Commit", "CreateAgent", "ResumeAgent", "Setup"]

#: Runs after everything of a setup succeeded, without a checkpoint before publication.
Commit: TypeAlias = Callable[[], None]
#: Composes an agent before anybody sees it: registers through the agent's own context.
Setup: TypeAlias = "Callable[[Context, live.Agent], Awaitable[Commit | None]]"

NO_OPTIONS: Final = records.AgentOptions()


@frozen(kw_only=True, slots=True, eq=False)
class ResumeAgent:
    """A wish to continue a stored session.

    `owner`: the context whose unloading also takes the agent down. `parent`: the agent on whose
    behalf this one works; it is taken down first.
    """

    session_id: str
    options: records.AgentOptions = NO_OPTIONS
    setup: Setup | None = None
    parent: live.Agent | None = None
    owner: Context | None = None


@frozen(kw_only=True, slots=True, eq=False)
class CreateAgent:
    """A wish for a new session and its agent. `cwd` is an absolute path.

    `seed` are the leading events of another log, given to the new one; `parent_session` then says
    whose, and `seed_length` how many.
    """

    session_id: str
    options: records.AgentOptions = NO_OPTIONS
    cwd: str | None = None
    setup: Setup | None = None
    parent: live.Agent | None = None
    owner: Context | None = None
    seed: Sequence[StoredEvent] | None = None
    parent_session: str | None = None
    origin: Literal["subagent"] | None = None
    delegation_depth: int = 0
    agent_preset: str | None = None


@frozen(slots=True, eq=False)
class AgentHandle:
    """A live agent and the right to take it down."""

    agent: live.Agent
    ctx: Context = field(repr=False)
    _teardown: Callable[[], Awaitable[None]] = field(repr=False)

    async def aclose(self) -> None:
        """Stop the agent, close its log, and detach both. Idempotent; callers share one teardown.

        Returns when all of it is done; raises what failed on the way (a group if several). A
        cancelled caller stops waiting, the teardown goes on.
        """
        await self._teardown()


class AgentFactory(ABC):
    """A loop as the agents service sees it."""

    @abstractmethod
    async def create(self, wish: CreateAgent) -> AgentHandle:
        """Make a session and its agent, or nothing at all."""

    @abstractmethod
    async def resume(self, wish: ResumeAgent) -> AgentHandle:
        """Open a stored session and give it an agent, or change nothing."""
