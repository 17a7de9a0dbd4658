"""A scripted run, interrupted at one of its moments, and everything that must be true after it.

What comes in: a scene (what the model says, which tools and plugins there are, what a person does),
a moment and a way to interrupt. What goes out: what is wrong afterwards, in words; nothing is the
only good answer. The rooms are the real ones, on a mock clock and a seeded scheduler.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import trio
from attrs import field, frozen, mutable
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import AgentError
from dsh.kernel import plugin
from dsh.testing.house import OPTIONS, TestHouse, open_test_house
from dsh.testing.lawful import broken_laws
from dsh.testing.memory_store import MemoryStore
from dsh.testing.model import ScriptedReplies, says
from dsh.testing.points import Points, everywhere
from dsh.testing.seeded import run_seeded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from dsh.agent import AgentHandle
    from dsh.hooks import live
    from dsh.kernel import Context, Plugin
    from dsh.llm import ResolvedModel
    from dsh.session import Session
    from dsh.testing.model import Reply
    from dsh.tools import Tool

__all__ = ["WAYS", "Interrupted", "Scene", "Stage", "Way", "interrupted", "uninterrupted"]

#: Seconds of the mock clock within which a scene must come to rest.
PATIENCE: Final = 10_000.0
#: What a strict provider says against a request; None: it takes it.
Refusal: TypeAlias = "Callable[[live.LlmRequest], str | None]"


@frozen(kw_only=True)
class Way:
    """A way to interrupt: a cancel for `cause`, or without one an end of the agent."""

    name: str
    cause: records.CancelCause | None = None
    keep_inbox: bool = False


_CAUSES: Final[dict[str, records.CancelCause]] = {
    "user": records.UserCause(),
    "parent": records.ParentCause(),
    "hook": records.HookCause(reason="enough"),
    "disposed": records.DisposedCause(),
}
#: Every cause, with and without `keep_inbox`; the end of the agent, and that of the whole house.
WAYS: Final[tuple[Way, ...]] = (
    *(
        Way(name=f"{name}{', inbox kept' if kept else ''}", cause=cause, keep_inbox=kept)
        for name, cause in _CAUSES.items()
        for kept in (False, True)
    ),
    Way(name="handle closed"),
    Way(name="house closed"),
)


@mutable(eq=False)
class Stage:
    """Where a scene plays.

    Its tools and listeners act only while `playing`: from the person's first word until what that
    set off has ended, also when the person is gone by then.
    """

    points: Points
    store: MemoryStore
    playing: bool = False
    house: TestHouse = field(init=False)
    handle: AgentHandle = field(init=False)
    #: Sessions that the scene made itself.
    others: list[Session] = field(factory=list["Session"])
    #: The agents that lived when the house, closing, took its first plugin away.
    orphans: tuple[live.Agent, ...] = ()

    @property
    def agent(self) -> live.Agent:
        """The agent that is interrupted."""
        return self.handle.agent

    @property
    def session(self) -> Session:
        """Its session."""
        return self.house.session(self.handle)


async def one_prompt(stage: Stage) -> None:
    """What a person does in most scenes."""
    stage.agent.followup(user_message("go", id="prompt"))
    await stage.agent.when_idle()


async def _empty(_store: MemoryStore) -> None:
    """Most scenes begin with a new session."""


@frozen(kw_only=True, eq=False)
class Scene:
    """One script. What it makes is made anew for each run.

    `before` may put a session `s` into the store; then that one is resumed. `fails`: a turn of it
    ends with an error, if nothing interrupts it.
    """

    name: str
    replies: tuple[Reply, ...]
    tools: Callable[[Stage], Sequence[Tool]] = lambda _: ()
    plugins: Callable[[Stage], Sequence[Plugin]] = lambda _: ()
    play: Callable[[Stage], Awaitable[None]] = one_prompt
    before: Callable[[MemoryStore], Awaitable[None]] = _empty
    resolved: ResolvedModel | None = None
    fails: bool = False

    @asynccontextmanager
    async def staged(self, stage: Stage) -> AsyncGenerator[None]:
        """The house with everything in it, and the agent at rest."""
        await self.before(stage.store)
        async with open_test_house(
            model=ScriptedReplies(self.replies, resolved=self.resolved),
            tools=self.tools(stage),
            plugins=(everywhere(stage.points), *self.plugins(stage), _first_to_leave(stage)),
            store=stage.store,
        ) as house:
            stage.house = house
            if await stage.store.list():
                stage.handle = await house.agents.resume("s", options=OPTIONS)
            else:
                stage.handle = await house.agent()
            yield


def _first_to_leave(stage: Stage) -> Plugin:
    """The newest plugin of the house: it sees whom the house takes its plugins from."""

    @plugin(name="first-to-leave")
    async def watching(ctx: Context) -> None:
        def leave() -> None:
            stage.orphans = stage.house.agents.live()

        ctx.on_unload(leave)

    return watching


@frozen(kw_only=True)
class Interrupted:
    """What came of one run. `count`: its moments; `met`: the events that were dispatched."""

    broken: tuple[str, ...]
    count: int
    met: frozenset[str]


def uninterrupted(scene: Scene, refusal: Refusal) -> Interrupted:
    """Let a scene play to its end. Blocks; not for use inside of trio."""
    return interrupted(scene, None, WAYS[0], refusal)


def interrupted(scene: Scene, at: int | None, way: Way, refusal: Refusal) -> Interrupted:
    """Interrupt a scene at its moment number `at`. Blocks; not for use inside of trio."""
    run = _Run(scene, at, way, refusal)
    try:
        run_seeded(at or 0, run.whole)
    except Exception as error:  # noqa: BLE001 - whatever got out is what was looked for
        run.wrong(f"{type(error).__name__} escaped: {error}")
    points = run.stage.points
    return Interrupted(broken=tuple(run.broken), count=points.count, met=frozenset(points.met))


class _Run:
    """One run of one scene."""

    def __init__(self, scene: Scene, at: int | None, way: Way, refusal: Refusal) -> None:
        self._scene: Final = scene
        self._at: Final = at
        self._way: Final = way
        self._refusal: Final = refusal
        self._open_turn: int | None = None
        self._pending: frozenset[str] = frozenset()
        self._seq = 0
        self._ends: Callable[[], None] | None = None
        self.stage: Final = Stage(Points(at), MemoryStore())
        self.broken: Final[list[str]] = []

    def wrong(self, text: str) -> None:
        """Keep a violation, with what makes it happen again."""
        self.broken.append(f"{self._scene.name}, {self._way.name}, moment {self._at}: {text}")

    async def whole(self) -> None:
        """Play, look, go on; then close the agent, open its log again, look, go on."""
        stage, sessions = self.stage, list["Session"]()
        with trio.CancelScope() as outside:
            async with self._scene.staged(stage), trio.open_nursery() as nursery:
                sessions += [stage.session]
                self._ends = {
                    "handle closed": lambda: nursery.start_soon(stage.handle.aclose),
                    "house closed": outside.cancel,
                }.get(self._way.name)
                await self._played()
                if self._ends is None or not stage.points.acted:
                    stage.playing = False
                    await self._at_rest()
                    await self._next_prompt(stage.house, stage.handle)
                if not outside.cancel_called:
                    await stage.handle.aclose()
                    stage.playing = False
                    await self._reopened(stage.house, sessions[0])
        if stage.orphans:
            names = [agent.id for agent in stage.orphans]
            self.wrong(f"{names} lived when the closing house took plugins away")
        for session in (*sessions, *stage.others):
            self._look(session)
        self._accepted(stage.house.model.requests)
        if outside.cancel_called:
            async with open_test_house(store=stage.store) as house:
                await self._reopened(house, sessions[0])
                self._accepted(house.model.requests)

    async def _played(self) -> None:
        stage, points = self.stage, self.stage.points
        await wait_all_tasks_blocked()
        living = trio.lowlevel.current_statistics().tasks_living
        points.act = self._act
        stage.playing = points.armed = True
        trio.lowlevel.add_instrument(points)
        try:
            with trio.move_on_after(PATIENCE) as waiting:
                await self._scene.play(stage)
                await stage.agent.when_idle()
            if waiting.cancelled_caught:
                self.wrong(f"still {stage.agent.status} after {PATIENCE:.0f} s")
        except AgentError as error:
            if not points.acted:
                raise
            if error.code not in {"WITHDRAWN", "AGENT_CLOSED", "ABORTED"}:
                self.wrong(f"the person got {error.code}: {error}")
        finally:
            points.armed = False
            trio.lowlevel.remove_instrument(points)
        if self._at is not None and not points.acted:
            self.wrong(f"it had only {points.count} moments this time")
        if points.failure is not None:
            self.wrong(f"interrupting raised {points.failure!r}")
        if self._ends is None or not points.acted:
            await stage.agent.when_idle()
            await wait_all_tasks_blocked()
            left = trio.lowlevel.current_statistics().tasks_living - living
            if left > 0:
                self.wrong(f"{left} tasks more than before")

    def _act(self) -> None:
        stage, way = self.stage, self._way
        agent, events = stage.agent, stage.session.events
        turns = [e.data for e in events if isinstance(e.data, ev.turn.Start | ev.turn.End)]
        if turns and isinstance(turns[-1], ev.turn.Start):
            # A turn that was told to have failed has failed, whatever its listeners do.
            told = stage.points.latest == ev.agent.ERROR.name
            self._open_turn = None if told else turns[-1].turn
        both = (*agent.pending("next-step"), *agent.pending("next-turn"))
        self._pending = frozenset(message.id for message in both)
        self._seq = len(events)
        if way.cause is not None:
            agent.cancel(way.cause, keep_inbox=way.keep_inbox)
        elif self._ends is not None:
            self._ends()

    async def _at_rest(self) -> None:
        agent, session = self.stage.agent, self.stage.session
        if agent.status != "idle":
            self.wrong(f"at rest its status is {agent.status}")
        self._look(session)
        pending = {m.id for m in (*agent.pending("next-step"), *agent.pending("next-turn"))}
        if not self._way.keep_inbox and (kept := pending & self._pending):
            self.wrong(f"{sorted(kept)} are still pending after a cancel that takes them back")
        taken_back = any(
            isinstance(event.data, ev.agent.InboxSpliced) and event.data.outcome is not None
            for event in session.events[self._seq :]
        )
        if self._way.keep_inbox and self.stage.points.acted and taken_back:
            self.wrong("messages were taken back by a cancel that keeps them")

    def _look(self, session: Session) -> None:
        for text in broken_laws(session):
            self.wrong(f"session {session.id}: {text}")
        if self._open_turn is None or session.id != "s":
            return
        ends = [
            event.data.reason
            for event in session.events
            if isinstance(event.data, ev.turn.End) and event.data.turn == self._open_turn
        ]
        if len(ends) != 1 or not self._lawful(ends[0]):
            self.wrong(f"turn {self._open_turn} was cancelled, and ended {ends}")

    def _lawful(self, end: records.TurnEndReason) -> bool:
        """Whether the turn that was open may have ended so."""
        cause = self._way.cause
        if cause is not None:
            return end == records.AbortedTurnEnd(reason=cause)
        # The end of an agent is a cause only when its task has run; the turn may be faster.
        match end:
            case records.AbortedTurnEnd(reason=reason):
                return reason == records.DisposedCause()
            case records.ErrorTurnEnd():
                return self._scene.fails
            case records.InterruptedTurnEnd():
                return False
            case _:
                return True

    async def _next_prompt(self, house: TestHouse, handle: AgentHandle) -> None:
        house.model.replies[:] = [says("fine")] * 20  # parked prompts are answered first
        with trio.fail_after(PATIENCE):
            outcome = await handle.agent.ask(user_message("and now?"))
        if not isinstance(outcome.reason, records.CompletedTurnEnd) or outcome.text != "fine":
            self.wrong(f"the next prompt came to {outcome.reason}, {outcome.text!r}")
        self._look(house.session(handle))

    def _accepted(self, requests: Sequence[live.LlmRequest]) -> None:
        for number, request in enumerate(requests, start=1):
            words = self._refusal(request)
            if words is not None:
                self.wrong(f"request {number} of {len(requests)} would be refused: {words}")

    async def _reopened(self, house: TestHouse, before: Session) -> None:
        stored = (await self.stage.store.read("s")).events
        if [(e.seq, e.data) for e in stored] != [(e.seq, e.data) for e in before.events]:
            self.wrong(f"{len(stored)} of {len(before.events)} events are stored as they were")
        handle = await house.agents.resume("s", options=OPTIONS)
        if len(house.session(handle).events) - len(stored) > 1:
            self.wrong("the log needed a repair")
        await self._next_prompt(house, handle)
