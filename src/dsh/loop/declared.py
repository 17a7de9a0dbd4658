"""Declared agents: those that a composition starts together with the loop.

What comes in: the `agents` of the row `agent-loop`, and identities that a launcher gives them. What
goes out: running agents; for one that could not start, a warning and
`agent-loop/config-start-failed`. A failure here never fails the loop or another agent.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import trio

from dsh import catalog as ev
from dsh.agent import CreateAgent, ResumeAgent
from dsh.catalog import records
from dsh.errors import ConfigError, SessionNotFound
from dsh.hooks import frozen
from dsh.kernel import Context, mount, plugin, required
from dsh.llm import describe
from dsh.seams.persistence import PERSISTENCE, SessionPersistence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh.catalog.config import ConfiguredAgent
    from dsh.kernel import CoreContext, Late, Plugin
    from dsh.loop.factory import LoopFactory

__all__ = ["Declared", "Starter", "declared_agents"]


@frozen(kw_only=True)
class Declared:
    """One agent to start. `must_exist`: its session is only resumed, never created."""

    label: str
    session_id: str
    must_exist: bool
    exact: bool
    options: records.AgentOptions
    cwd: str | None


def declared_agents(
    configured: Sequence[ConfiguredAgent], identities: Mapping[str, str] | None = None
) -> tuple[Declared, ...]:
    """What to start, or ConfigError before anything is.

    `identities` maps labels to session ids and overrides both id keys of the entries it names;
    without any id a fresh one is minted. Two entries may not share an exact id.
    """
    given = identities or {}
    agents = tuple(_declared(entry, given.get(entry.id)) for entry in configured)
    exact = [agent.session_id for agent in agents if agent.exact]
    repeated = sorted({session_id for session_id in exact if exact.count(session_id) > 1})
    if repeated:
        raise ConfigError(
            f"agent-loop.agents: {', '.join(map(repr, repeated))} is the session of more than one "
            "agent; give each its own sessionId"
        )
    return agents


def _declared(entry: ConfiguredAgent, identity: str | None) -> Declared:
    exact, resumed = entry.session_id, entry.resume_session_id or None
    if identity is not None:
        exact, resumed = identity, None
    elif exact is not None and resumed is not None:
        raise ConfigError(
            f"agent-loop.agents: {entry.id!r} has sessionId and resumeSessionId; keep sessionId to "
            "create it on first use, resumeSessionId if it must exist"
        )
    return Declared(
        label=entry.id,
        session_id=resumed or exact or f"{entry.id}-session-{uuid4()}",
        must_exist=resumed is not None,
        exact=resumed is not None or exact is not None,
        options=records.AgentOptions(
            provider=entry.provider,
            model=entry.model,
            reasoning_effort=entry.reasoning_effort,
            max_tokens=entry.max_tokens,
        ),
        cwd=entry.cwd,
    )


class Starter:
    """Starts declared agents for one loaded loop."""

    def __init__(
        self, ctx: CoreContext, factory: LoopFactory, persistence: Late[SessionPersistence]
    ) -> None:
        self._ctx: Final = ctx
        self._factory: Final = factory
        self._persistence: Final = persistence

    async def start(self, agents: Sequence[Declared]) -> None:
        """Start them all, once everything else that is being loaded has loaded; contain failures.

        A task of the loop's plugin: it ends when each has started, failed, or waits for a store.
        """
        await _settled(self._ctx)
        async with trio.open_nursery() as nursery:
            for agent in agents:
                nursery.start_soon(self._start_one, agent)

    async def _start_one(self, agent: Declared) -> None:
        owner = await self._ctx.child(f"declared {agent.label}")
        if agent.must_exist and self._persistence.current is None:
            mount(owner, self._when_stored(agent), slot=owner.activation.slot)
            return
        await self._try(agent, owner)

    def _when_stored(self, agent: Declared) -> Plugin:
        """A plugin that waits for a store, then resumes; it follows the store's coming."""

        @plugin(name="resume-declared", deps=_Stored)
        async def resume_declared(ctx: Context, _config: None, _deps: _Stored) -> None:
            await self._try(agent, ctx)

        return resume_declared

    async def _try(self, agent: Declared, owner: Context) -> None:
        try:
            await self._attempt(agent, owner)
        except Exception as error:  # noqa: BLE001 - one declared agent must not fail the loop
            if self._ctx.fiber.leaving or not self._factory.accepting:
                return
            self._ctx.log.warning(
                "declared agent %r (session %r) was not started: %s",
                agent.label,
                agent.session_id,
                describe(error),
            )
            self._ctx.emit(
                ev.agent_loop.ConfigStartFailed(session_id=agent.session_id, error=error)
            )

    async def _attempt(self, agent: Declared, owner: Context) -> None:
        await self._factory.drained(agent.session_id)
        wish = ResumeAgent(session_id=agent.session_id, options=agent.options, owner=owner)
        if agent.must_exist:
            await self._factory.resume(wish)
            return
        if agent.exact and self._persistence.current is not None:
            with suppress(SessionNotFound):
                await self._factory.resume(wish)
                return
        await self._factory.create(
            CreateAgent(
                session_id=agent.session_id, options=agent.options, cwd=agent.cwd, owner=owner
            )
        )


@frozen
class _Stored:
    store: SessionPersistence = required(PERSISTENCE)


async def _settled(ctx: CoreContext) -> None:
    while busy := [fiber for fiber in ctx.fiber.shared.fibers if fiber.busy]:
        await busy[0].settled()
