"""One life of an agent in bad weather: everything that may go wrong does, by a seed.

What comes in: a seed. What goes out: what the life was like, and every law it broke; none is the
only good answer. Scheduler, clock, plugins, model, tools and the person all follow the seed, so a
bad seed is bad again when it is run alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import AgentBusy
from dsh.session import Projection, verify
from dsh.testing.chance import Chance, Life
from dsh.testing.house import OPTIONS, TestHouse, open_test_house
from dsh.testing.lawful import broken_laws, unanswered_on_the_wire
from dsh.testing.memory_store import MemoryStore
from dsh.testing.model import ScriptedReplies, says
from dsh.testing.seeded import run_seeded
from dsh.testing.shipped import shipped
from dsh.testing.storm import StormyModel, storm, stormy_tool
from dsh.testing.witness import Witness

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import live
    from dsh.kernel import Fiber
    from dsh.wire import StoredEvent

__all__ = ["Life", "live_through"]

#: Seconds of the mock clock in which a life must come to rest once everything hung was cancelled.
PATIENCE: Final = 10_000.0
#: Events that the log may refuse, and how many are taken before it refuses again.
REFUSED: Final = (ev.turn.START, ev.step.START, ev.user.MESSAGE, ev.tool.CALL, ev.tool.RESULT)
APART: Final = 50
#: How often, of all steps of all tasks, something comes out of the blue.
BOLTS: Final = 0.02


def live_through(seed: int) -> Life:
    """Live one life on a mock clock and a seeded scheduler. Blocks; run it outside of trio."""
    life = Life(seed)
    try:
        run_seeded(seed, _Weather(life).whole_life)
    except Exception as error:  # noqa: BLE001 - whatever got out is what was looked for
        life.broken.append(f"{type(error).__name__} escaped: {error}")
    return life


class _Bolts(trio.abc.Instrument):
    """At some step of some task, a cancel or a word from outside."""

    def __init__(self, chance: Chance, strike: partial[None]) -> None:
        self._chance: Final = chance
        self._strike: Final = strike
        self.failure: Exception | None = None

    @override
    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._chance.happens("a bolt from the blue", BOLTS):
            try:
                self._strike()
            except Exception as error:  # noqa: BLE001 - told at the end of the life
                self.failure = error


class _Weather:
    """Everything that happens in one life."""

    def __init__(self, life: Life) -> None:
        self._life: Final = life
        self._chance: Final = Chance(life)
        self._witness: Final = Witness(self._chance)
        self._refused_at = -APART

    async def whole_life(self) -> None:
        chance, store = self._chance, MemoryStore()
        model = ScriptedReplies([StormyModel(chance).reply] * 2000)
        async with open_test_house(
            model=model,
            store=store,
            tools=[stormy_tool(chance, "quick"), stormy_tool(chance, "alone")],
            plugins=[shipped(name) for name in ("token-meter", "compaction", "llm-retry")],
        ) as house:
            handle = await self._weathered(house)
            await self._rest(house, handle)
        await self._resumed(store)

    async def _weathered(self, house: TestHouse) -> AgentHandle:
        chance = self._chance
        house.sessions.project(
            house.ctx, Projection(key="weather", init=int, apply=self._refuse, events=REFUSED)
        )
        handle = await house.agent()
        self._witness.watch(house, handle.agent)
        plug = await self._mounted(house)
        for _ in range(chance.number(5, 16)):
            bolts = _Bolts(chance, partial(self._strike, handle.agent))
            trio.lowlevel.add_instrument(bolts)
            try:
                plug = await self._act(house, handle, plug)
                await trio.sleep(chance.pick((0, 0, 0.01, 0.5, 3, 30)))
            finally:
                trio.lowlevel.remove_instrument(bolts)
            if bolts.failure is not None:
                raise bolts.failure
            if handle.agent.status == "idle":
                self._witness.at_rest()
            if house.session(handle).events and chance.happens("an end in the middle", 0.04):
                handle = await self._ended(house, handle)
        return handle

    def _refuse(self, state: int, event: StoredEvent) -> int:
        """Sometimes nothing is appended, as when another plugin's projection has a defect."""
        if event.seq > self._refused_at + APART and self._chance.happens("a refusal", 0.05):
            self._refused_at = event.seq
            self._chance.cancels += 1  # whatever was expected may not come now
            raise ValueError("fog")
        return state

    def _strike(self, agent: live.Agent) -> None:
        chance = self._chance
        match chance.pick(("cancel", "go on", "steer", "prompt")):
            case "cancel":
                chance.cancel(agent)
            case "go on":
                self._go_on(agent)
            case "steer":
                agent.steer(user_message("mind"))
            case _:
                agent.followup(user_message("go"))

    async def _ended(self, house: TestHouse, handle: AgentHandle) -> AgentHandle:
        """The agent ends wherever it stands, and is resumed from its log."""
        session = house.session(handle)
        with trio.move_on_after(PATIENCE) as waiting:
            await handle.aclose()
        if waiting.cancelled_caught:
            self._life.broken.append("it did not end")
        self._life.broken += broken_laws(session)
        self._refused_at = len(session.events)  # what is read back is not refused
        again = await house.agents.resume("s", options=OPTIONS)
        if len(house.session(again).events) > len(session.events) + 1:
            self._life.broken.append("an ordinary end needed a repair")
        self._witness.watch(house, again.agent)
        return again

    async def _rest(self, house: TestHouse, handle: AgentHandle) -> None:
        """The sky clears: what hangs is cancelled, and then everything must work."""
        self._chance.calm = True
        agent, session = handle.agent, house.session(handle)
        with trio.move_on_after(PATIENCE) as waiting:
            while agent.status == "running":
                self._chance.cancel(agent, keep_inbox=False)
                await agent.when_idle()
        if waiting.cancelled_caught:
            self._life.broken.append("it never came to rest after a cancel")
            return
        self._witness.at_rest()
        self._life.broken += broken_laws(session)
        house.model.replies[:] = [says("fine")] * 100  # parked prompts are answered first
        with trio.fail_after(PATIENCE):
            outcome = await agent.ask(user_message("how are you?"))
        if not isinstance(outcome.reason, records.CompletedTurnEnd) or outcome.text != "fine":
            self._life.broken.append(f"the next prompt ended {outcome.reason}")
        self._witness.at_rest()
        for request in house.model.requests:
            self._life.broken += unanswered_on_the_wire(request.messages)
        self._life.broken += broken_laws(session)

    async def _resumed(self, store: MemoryStore) -> None:
        log = await store.read("s")
        self._life.broken += [f"stored: {problem.text}" for problem in verify(log)]
        async with open_test_house(replies=[says("again")] * 100, store=store) as house:
            handle = await house.agents.resume("s", options=OPTIONS)
            if len(house.session(handle).events) > len(log.events) + 1:
                self._life.broken.append("the log needed a repair")
            with trio.fail_after(PATIENCE):
                outcome = await handle.agent.ask(user_message("and now?"))
            if outcome.text != "again":
                self._life.broken.append(f"resumed, the next prompt ended {outcome.reason}")
            self._life.broken += broken_laws(house.session(handle))

    async def _act(self, house: TestHouse, handle: AgentHandle, plug: Fiber) -> Fiber:
        agent, chance = handle.agent, self._chance
        what = chance.pick(
            ("prompt", "prompt", "prompt", "prompt", "steer", "inject", "cancel", "go on",
             "take back", "replace", "maintain", "reload", "wake", "clear")
        )  # fmt: skip
        self._life.meet(what)
        match what:
            case "prompt":
                agent.followup(user_message("go"))
            case "steer":
                agent.steer(user_message("mind"))
            case "inject":
                agent.inject(user_message("aside"))
            case "cancel":
                self._cancel(agent)
            case "go on":
                self._go_on(agent)
            case "take back" | "replace":
                self._edit(agent, what)
            case "maintain" if agent.status == "idle":
                await self._maintain(agent)
            case "reload":
                with trio.move_on_after(60):
                    await plug.dispose()
                return await self._mounted(house)
            case "wake":
                agent.wake()
            case "clear":
                chance.cancels += 1
                agent.clear()
            case _:
                pass
        return plug

    def _go_on(self, agent: live.Agent) -> None:
        """Cancel and, before that has come to rest, say something."""
        self._chance.cancel(agent)
        self._witness.expects_a_turn()
        agent.followup(user_message("go on"))

    def _cancel(self, agent: live.Agent) -> None:
        keep = self._chance.pick((True, False))
        before = set(self._witness.pending())
        self._chance.cancel(agent, keep_inbox=keep)
        left = before & set(self._witness.pending())
        if left != (before if keep else set()):
            self._life.broken.append(f"a cancel left {len(left)} pending of {len(before)}")

    def _edit(self, agent: live.Agent, what: str) -> None:
        self._chance.cancels += 1
        for message in agent.pending("next-turn")[:1]:
            if what == "replace":
                agent.replace(message.id, user_message("rather this"))
            else:
                agent.remove(message.id)

    async def _maintain(self, agent: live.Agent) -> None:
        async def job(signal: live.TurnSignal) -> None:
            with signal.scope():
                await trio.sleep(self._chance.share())

        try:
            await agent.run_maintenance(job)
        except AgentBusy:
            self._life.meet("somebody was faster than maintenance")

    async def _mounted(self, house: TestHouse) -> Fiber:
        fiber = house.kernel.mount(storm(self._chance), slot=5)
        await fiber.ready()
        return fiber
