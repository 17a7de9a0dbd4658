"""The agents service: who lives, who works for whom, and the door to creating and resuming.

What comes in: a factory (the loop), and the agents it enters. What goes out: lookups, roots and
children, handles, and the paired notices `agent/created` and `agent/disposed`. The registry gives
nobody the power to take an agent down; only its handle can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from dsh import catalog as ev
from dsh.agent.handle import NO_OPTIONS, AgentFactory, AgentHandle, CreateAgent, ResumeAgent
from dsh.agent.initiator import Initiators
from dsh.errors import AgentError, ServiceConflict, ServiceMissing, SessionExists
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.agent.handle import Setup
    from dsh.catalog import records
    from dsh.hooks import EffectHandle
    from dsh.hooks.live import Agent
    from dsh.kernel import Context, CoreContext
    from dsh.session import Sessions

__all__ = ["AGENTS", "Agents", "Entry"]


class Entry:
    """One agent's place in the registry, bound to that very object."""

    __slots__ = ("_agents", "_announced", "_announcing", "_detach_due", "agent")

    def __init__(self, agents: Agents, agent: Agent) -> None:
        self._agents = agents
        self.agent = agent
        self._announced = False
        self._announcing = False
        self._detach_due = False

    def announce(self) -> None:
        """Emit `agent/created`. Raises what a listener raised: it vetoes the agent."""
        self._announced = self._announcing = True
        try:
            self._agents.emit_created(self.agent)
        finally:
            self._announcing = False
            if self._detach_due:
                self._agents.leave(self.agent, announced=True)

    def detach(self) -> None:
        """Leave the registry. Idempotent; never touches a later agent with the same id.

        Asked for during the announcement, it waits until every listener has been told; and
        `agent/disposed` is emitted only if the announcement had begun.
        """
        if self._announcing:
            self._detach_due = True
        else:
            self._agents.leave(self.agent, announced=self._announced)


class Agents:
    """The service. One per house; the loop serves it."""

    def __init__(self, core: CoreContext, sessions: Sessions) -> None:
        self._core: Final = core
        self._sessions: Final = sessions
        self._factory: AgentFactory | None = None
        self._live: dict[str, Agent] = {}
        self.initiators: Final = Initiators()

    def serve(self, ctx: Context, factory: AgentFactory) -> EffectHandle:
        """Make `factory` the one that creates and resumes, for as long as `ctx` lives.

        Raises ServiceConflict while another one serves.
        """

        def setup() -> Callable[[], None]:
            if self._factory is not None:
                raise ServiceConflict(
                    f"plugin {ctx.plugin!r} serves agents, but another loop does already; "
                    "disable one of the two rows"
                )
            self._factory = factory
            return self._retire

        return ctx.effect(setup, label="agent factory")

    async def create(
        self,
        session_id: str | None = None,
        *,
        options: records.AgentOptions = NO_OPTIONS,
        cwd: str | None = None,
        setup: Setup | None = None,
        parent: Agent | None = None,
        owner: Context | None = None,
    ) -> AgentHandle:
        """A new session with its agent, published as one; or nothing, and the cause is raised.

        `session_id` defaults to a fresh one and is also the agent's id. `cwd`: absolute path of
        the workspace. `setup(ctx, agent)` runs before anybody can see either; it registers through
        `ctx` and may return a function to run at the moment of publication. `parent`: the agent on
        whose behalf this one works. `owner`: a plugin context; when it unloads, the agent goes too.
        Raises SessionExists, ServiceMissing (no loop is loaded), AgentClosed (it is closing), and
        whatever setup and the listeners of the announcements raise. Cancelled: rolled back whole.
        """
        return await self.make(
            CreateAgent(
                session_id=f"session-{uuid4().hex}" if session_id is None else session_id,
                options=options,
                cwd=cwd,
                setup=setup,
                parent=parent,
                owner=owner,
            )
        )

    async def make(self, wish: CreateAgent) -> AgentHandle:
        """`create` with everything that can be said, lineage and seed included."""
        self._refuse_live(wish.session_id)
        return await self._serving().create(wish)

    async def resume(
        self,
        session_id: str,
        *,
        options: records.AgentOptions = NO_OPTIONS,
        setup: Setup | None = None,
        parent: Agent | None = None,
        owner: Context | None = None,
    ) -> AgentHandle:
        """The stored session with an agent again: repaired if a crash cut it, numbering goes on.

        Raises SessionNotFound, SessionBusy, SessionCorrupt, SessionUnreadable from the store,
        SessionExists when it is live here, ServiceMissing without a store or a loop. Cancelled:
        the stored log is as it was (or repaired), and free.
        """
        self._refuse_live(session_id)
        return await self._serving().resume(
            ResumeAgent(
                session_id=session_id, options=options, setup=setup, parent=parent, owner=owner
            )
        )

    async def fork(
        self,
        source: Agent,
        *,
        session_id: str | None = None,
        boundary: int | None = None,
        options: records.AgentOptions | None = None,
        setup: Setup | None = None,
        owner: Context | None = None,
    ) -> AgentHandle:
        """A new agent whose session begins as that of `source`, a live agent, does.

        `boundary` is the seq of the last event to take over, at which no turn may be open; None
        takes the newest such one, also while a turn of the source runs. `options` default to the
        source's; the rest is as for `create`. The child has its parent's workspace and nothing of
        what waits in its inbox; the source is not touched and need not be idle. Raises
        SessionError SESSION_NOT_LIVE for an agent that was closed, INVALID_BOUNDARY or OPEN_TURN
        for a boundary that is none, and what `create` raises. Cancelled: no child is left.
        """
        fork = self._sessions.plan_fork(source.session, child_id=session_id, boundary=boundary)
        child = fork.header
        return await self.make(
            CreateAgent(
                session_id=child.id,
                options=source.options if options is None else options,
                cwd=child.cwd,
                setup=setup,
                owner=owner,
                seed=fork.seed,
                parent_session=child.parent_session,
                agent_preset=child.agent_preset,
            )
        )

    def get(self, agent_id: str) -> Agent | None:
        """The live agent with this id, or None."""
        return self._live.get(agent_id)

    def live(self) -> tuple[Agent, ...]:
        """Every live agent, oldest first."""
        return tuple(self._live.values())

    def roots(self) -> tuple[Agent, ...]:
        """The live agents that work for no other agent."""
        return tuple(agent for agent in self._live.values() if agent.parent is None)

    def children(self, parent: Agent) -> tuple[Agent, ...]:
        """The live agents that work for `parent`, oldest first."""
        return tuple(agent for agent in self._live.values() if agent.parent is parent)

    def enter(self, agent: Agent) -> Entry:
        """Make `agent` resolvable by its id; a loop calls this at publication.

        Raises SessionExists if the id is taken, AgentError if it is not the session's id.
        """
        if agent.id != agent.session.id:
            raise AgentError(
                f"agent {agent.id!r} stands on session {agent.session.id!r}; the two ids are one"
            )
        self._refuse_live(agent.id)
        self._live[agent.id] = agent
        return Entry(self, agent)

    def emit_created(self, agent: Agent) -> None:
        """For `Entry` alone."""
        self._core.emit(ev.agent.Created(agent=agent))

    def leave(self, agent: Agent, *, announced: bool) -> None:
        """For `Entry` alone."""
        if self._live.get(agent.id) is not agent:
            return
        del self._live[agent.id]
        if announced:
            self._core.emit(ev.agent.Disposed(agent=agent))

    def _refuse_live(self, agent_id: str) -> None:
        if agent_id in self._live:
            raise SessionExists(
                f"session {agent_id!r} is live in this process; use the agent that has it "
                "(`agents.get`), or choose another id"
            )

    def _retire(self) -> None:
        self._factory = None

    def _serving(self) -> AgentFactory:
        if self._factory is None:
            raise ServiceMissing(
                "no loop is loaded that could run an agent; add the row `agent-loop`, "
                "or see why it is not active (`dsh doctor`)"
            )
        return self._factory


#: The agents of the house.
AGENTS: Final[ServiceKey[Agents]] = ServiceKey("agents")
