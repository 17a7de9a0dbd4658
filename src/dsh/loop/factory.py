"""The factory: creation and resumption as one transaction, and the end of everything it made.

What comes in: wishes from the agents service. What goes out: published agents with their handles,
or nothing at all and the cause. Until both registries have an agent nobody can see it; from the
last write before publication to the announcements there is no checkpoint.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import AgentFactory, AgentHandle, CreateAgent, ResumeAgent
from dsh.catalog import records
from dsh.errors import AgentClosed, AgentError, ServiceMissing, SessionExists
from dsh.hooks import Scope, frozen, live
from dsh.llm import describe
from dsh.loop.agent import LoopAgent, Making
from dsh.loop.driver import Host
from dsh.loop.life import Life, raise_collected
from dsh.session import Sessions, interrupted_closers
from dsh.wire import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.kernel import CoreContext, Late
    from dsh.loop.kit import Services
    from dsh.seams.persistence import SessionPersistence
    from dsh.session import Session

__all__ = ["INACTIVE", "LoopFactory", "Rooms"]

#: What a creation is told that the end of the loop overtook.
INACTIVE: Final = "the agent loop is not active"

Wish: TypeAlias = CreateAgent | ResumeAgent
Prepare: TypeAlias = "Callable[[Life], Awaitable[Session]]"


@frozen(kw_only=True, eq=False)
class Rooms:
    """What a factory stands on. `ctx` is the loop plugin's, `home` the parent of all agents'."""

    ctx: CoreContext
    home: CoreContext
    sessions: Sessions
    persistence: Late[SessionPersistence]
    services: Services


class LoopFactory(AgentFactory):
    """The agents of one loaded loop."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms: Final = rooms
        self._lives: list[Life] = []
        self._accepting = True
        self._host: Host | None = None
        self._ready = trio.Event()

    # -- the task that holds all others ----------------------------------------------------------

    async def hold(self) -> None:
        """Keep the nursery of drivers and teardowns open until cancelled, and every agent ended."""
        async with trio.open_nursery() as nursery:
            self._host = Host(
                nursery=nursery,
                context=contextvars.copy_context(),
                accepting=lambda: self._accepting,
            )
            self._ready.set()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await self.aclose()

    async def ready(self) -> None:
        """Return when agents can be made."""
        await self._ready.wait()

    @property
    def accepting(self) -> bool:
        """Whether new work is taken."""
        return self._accepting

    async def aclose(self) -> None:
        """Take no more work, end every agent and every making, and wait for all of it.

        Raises the one failure itself, several as a group. Cancelled: it goes on.
        """
        self._accepting = False
        lives = tuple(self._lives)
        for life in reversed(lives):
            life.request_end(INACTIVE)
        failures: list[Exception] = []
        for life in lives:
            await life.done.wait()
            failures += (one for one in life.failures if one not in failures)
        raise_collected("closing the agent loop failed", failures)

    async def shut_down(self) -> None:
        """`aclose`, when the house ends. Cancelled: whoever has not ended is named."""
        try:
            await self.aclose()
        except trio.Cancelled:
            late = ", ".join(repr(life.session_id) for life in self._lives)
            self._rooms.ctx.log.warning(
                "agents that have not ended in time: %s; where a log stops short, "
                "resuming its session repairs it", late,
            )  # fmt: skip
            raise

    async def drained(self, session_id: str) -> None:
        """Return when no earlier agent with this id is on its way out."""
        for life in tuple(self._lives):
            if life.session_id == session_id and life.ending:
                await life.done.wait()

    # -- making ----------------------------------------------------------------------------------

    @override
    async def create(self, wish: CreateAgent) -> AgentHandle:
        async def prepare(life: Life) -> Session:
            session = self._rooms.sessions.prepare(self._header(wish), seed=wish.seed)
            life.session = session
            persistence = self._rooms.persistence.current
            if persistence is not None:
                life.write = await persistence.create(session.header)
                life.store = persistence
            return session

        return await self._make(wish, prepare, "startup")

    @override
    async def resume(self, wish: ResumeAgent) -> AgentHandle:
        async def prepare(life: Life) -> Session:
            persistence = self._rooms.persistence.current
            if persistence is None:
                raise ServiceMissing(
                    f"session {wish.session_id!r} cannot be resumed: no store is loaded; "
                    "add the row `session-jsonl`"
                )
            write = life.write = await persistence.open(wish.session_id, "write")
            events = await write.read_log()
            closers = interrupted_closers(events)
            if closers:
                await write.append(closers)
            seed = (*events, *closers)
            life.session = self._rooms.sessions.prepare(write.header, seed=seed, stored=len(seed))
            return life.session

        return await self._make(wish, prepare, "resume")

    async def _make(
        self, wish: Wish, prepare: Prepare, source: Literal["startup", "resume"]
    ) -> AgentHandle:
        check_options(wish.options)
        life = self._begin(wish)
        scope = life.making
        assert scope is not None
        try:
            with scope:
                await trio.lowlevel.checkpoint_if_cancelled()
                handle = await self._publish(wish, life, await prepare(life), source)
                life.making = None
                return handle
        except BaseException:
            await self._roll_back(life)
            raise
        await self._roll_back(life)
        raise AgentClosed(f"agent {wish.session_id!r} was not published: {life.reason}")

    async def _roll_back(self, life: Life) -> None:
        """Give back what was acquired; what fails is logged, for the maker is told the cause."""
        await life.roll_back()
        for failure in life.failures:
            self._rooms.ctx.log.warning(
                "agent %r was not made, and undoing what there was of it failed: %s",
                life.session_id, describe(failure), exc_info=failure,
            )  # fmt: skip

    def _begin(self, wish: Wish) -> Life:
        """Register the way back before anything is acquired."""
        if not self._accepting or self._host is None:
            raise AgentClosed(f"agent {wish.session_id!r} cannot be made: {INACTIVE}")
        if self._rooms.sessions.get(wish.session_id) is not None:
            raise SessionExists(
                f"session {wish.session_id!r} is live in this process; use the agent that has it "
                "(`agents.get`), or choose another id"
            )
        parent = self._life_of(wish.parent)
        if wish.parent is not None and (parent is None or parent.ending):
            raise AgentClosed(
                f"agent {wish.parent.id!r} is closing, or gone, and takes no sub-agents"
            )
        life = Life(wish.session_id, wish.parent, self._host)
        retire = self._own(wish, life)

        def forget() -> None:
            self._lives.remove(life)
            retire()

        life.forget = forget
        life.children = lambda: tuple(
            other
            for other in self._lives
            if other.parent is not None and other.parent is life.agent
        )
        self._lives.append(life)
        return life

    def _own(self, wish: Wish, life: Life) -> Callable[[], None]:
        """Let the owner's unloading end this life; what comes back retires that effect."""
        if wish.owner is None:
            return _nothing
        effect = wish.owner.begin(f"agent {wish.session_id!r}", bounded=False)

        async def undo() -> None:
            await life.end(f"its owner {owner.plugin!r} was unloaded")

        owner = wish.owner
        effect.ready(undo=undo)
        return effect.finish

    async def _publish(
        self, wish: Wish, life: Life, session: Session, source: Literal["startup", "resume"]
    ) -> AgentHandle:
        agent, ctx = await self._compose(wish, life, session)
        commit = None
        if wish.setup is not None:
            commit = await wish.setup(ctx, agent)
        if commit is not None:
            commit()
        if life.write is not None:
            await session.writer.drain_into(life.write)
        # No checkpoint from here to the end of this function.
        self._check(wish, life)
        if life.write is not None:
            session.writer.attach(life.write)
            ctx.spawn(session.writer.run, label=f"log of session {session.id!r}")
        life.detach_session = self._rooms.sessions.enter(session, agent.scope)
        life.entry = self._rooms.services.agents.enter(agent)
        self._rooms.sessions.announce(session)
        self._check(wish, life)
        life.entry.announce()
        self._check(wish, life)
        ctx.emit(ev.agent.SessionStart(agent=agent, source=source))
        self._check(wish, life)
        setup, life.setup = life.setup, None
        if setup is not None:
            agent.driver.release(setup)
        life.store = None
        return AgentHandle(agent, ctx, life.aclose)

    async def _compose(
        self, wish: Wish, life: Life, session: Session
    ) -> tuple[LoopAgent, CoreContext]:
        """The agent, private and reserved: what wakes it from now on waits for publication."""
        scope = Scope(session.id)
        ctx = life.ctx = await self._rooms.home.child(f"agent {session.id}", scope=scope)
        life.check()
        assert self._host is not None
        life.agent = LoopAgent(
            Making(
                session=session,
                ctx=ctx,
                scope=scope,
                services=self._rooms.services,
                host=self._host,
                options=wish.options,
                parent=wish.parent,
            )
        )
        life.setup = life.agent.reserve()
        return life.agent, ctx

    def _check(self, wish: Wish, life: Life) -> None:
        """Raise AgentClosed when the caller, the owner or the loop is on its way out."""
        life.check()
        if wish.owner is not None and wish.owner.fiber.leaving:
            life.reason = f"its owner {wish.owner.plugin!r} is being unloaded"
        if self._rooms.ctx.fiber.leaving:
            life.reason = INACTIVE
        life.check()

    def _life_of(self, agent: live.Agent | None) -> Life | None:
        return next((life for life in self._lives if life.agent is agent), None) if agent else None

    def _header(self, wish: CreateAgent) -> records.SessionHeader:
        return records.SessionHeader(
            version=FORMAT_VERSION,
            id=wish.session_id,
            created_at=self._rooms.ctx.clock.now_ms(),
            cwd=wish.cwd,
            parent_session=wish.parent_session,
            seed_length=None if wish.parent_session is None else len(wish.seed or ()),
            origin=wish.origin,
            delegation_depth=wish.delegation_depth,
            agent_preset=wish.agent_preset,
        )


def check_options(options: records.AgentOptions) -> None:
    """Raise AgentError for an option that no request could carry. Nothing exists yet."""
    if not _is_cap(options.max_tokens):
        raise AgentError(
            f"maxTokens is {options.max_tokens!r}; give a whole number of tokens, "
            f"1 to {MAX_TOKENS}",
            code="BAD_OPTION",
        )


def _is_cap(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TOKENS


#: The largest number that every JSON reader keeps exactly.
MAX_TOKENS: Final = 2**53 - 1


def _nothing() -> None:
    """No owner, nothing to retire."""
