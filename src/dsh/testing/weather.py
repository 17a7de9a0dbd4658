"""One life of an agent in bad weather: everything that may go wrong does, by a seed.

What comes in: a seed. What goes out: what the life was like, and every law it broke; none is the
only good answer. Scheduler, clock, plugins, model, tools and the person all follow the seed, so a
bad seed is bad again when it is run alone.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from attrs import field, frozen, mutable
from trio.testing import MockClock

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import LlmError
from dsh.kernel import Context, Plugin, plugin
from dsh.session import verify
from dsh.testing.house import OPTIONS, TestHouse, open_test_house
from dsh.testing.lawful import broken_laws, unanswered_on_the_wire
from dsh.testing.memory_store import MemoryStore
from dsh.testing.model import ScriptedReplies, says
from dsh.tools import Tool, define_tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.agent import AgentHandle
    from dsh.hooks import Logged, Next, live
    from dsh.kernel import Fiber

__all__ = ["Life", "live_through"]

R = TypeVar("R")

#: Seconds of the mock clock in which a life must come to rest once everything hung was cancelled.
PATIENCE: Final = 10_000.0
#: Of all gusts so many raise; so many raise or hang; so many raise, hang or wait.
RAISES, HANGS, WAITS = 0.04, 0.07, 0.3
CAUSES: Final[tuple[records.CancelCause, ...]] = (
    records.UserCause(),
    records.ParentCause(),
    records.HookCause(reason="rain"),
)


@mutable
class Life:
    """What became of one seed. `broken`: laws that did not hold; `met`: what happened, counted."""

    seed: int
    broken: list[str] = field(factory=list[str])
    met: dict[str, int] = field(factory=dict[str, int])

    def meet(self, what: str) -> None:
        """Count something that happened."""
        self.met[what] = self.met.get(what, 0) + 1


def live_through(seed: int) -> Life:
    """Live one life on a mock clock and a seeded scheduler. Blocks; run it outside of trio."""
    scheduler = import_module("trio._core._run")
    chance: object = vars(scheduler)["_r"]
    assert isinstance(chance, random.Random)
    vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    chance.seed(seed)
    life = Life(seed)
    try:
        trio.run(_Weather(life).whole_life, clock=MockClock(autojump_threshold=0))
    except Exception as error:  # noqa: BLE001 - whatever got out is what was looked for
        life.broken.append(f"{type(error).__name__} escaped: {error}")
    finally:
        vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = False
    return life


@frozen
class _Text:
    text: str


class _Weather:
    """Everything random of one life."""

    def __init__(self, life: Life) -> None:
        self._life: Final = life
        self._chance: Final = random.Random(life.seed)
        self._calm = False
        self._calls = 0

    # -- the life ----------------------------------------------------------------------------------

    async def whole_life(self) -> None:
        store = MemoryStore()
        model = ScriptedReplies([self._reply] * 500)
        async with open_test_house(
            model=model, store=store, tools=[self._tool("quick"), self._tool("alone")]
        ) as house:
            handle = await house.agent()
            plug = await self._mounted(house)
            for _ in range(self._chance.randint(5, 16)):
                plug = await self._act(house, handle, plug)
                await trio.sleep(self._chance.choice((0, 0, 0.01, 0.5, 3, 30)))
            await self._rest(house, handle)
        await self._resumed(store)

    async def _rest(self, house: TestHouse, handle: AgentHandle) -> None:
        """The sky clears: what hangs is cancelled, and then everything must work."""
        self._calm = True
        agent, session = handle.agent, house.session(handle)
        with trio.move_on_after(PATIENCE) as waiting:
            while agent.status == "running":
                agent.cancel(records.UserCause())
                await agent.when_idle()
        if waiting.cancelled_caught:
            self._life.broken.append("it never came to rest after a cancel")
            return
        self._life.broken += broken_laws(session)
        house.model.replies[:] = [says("fine")] * 100  # parked prompts are answered first
        outcome = await agent.ask(user_message("how are you?"))
        if not isinstance(outcome.reason, records.CompletedTurnEnd) or outcome.text != "fine":
            self._life.broken.append(f"the next prompt ended {outcome.reason}")
        self._life.broken += unanswered_on_the_wire(house.model.requests[-1].messages)
        self._life.broken += broken_laws(session)

    async def _resumed(self, store: MemoryStore) -> None:
        log = await store.read("s")
        self._life.broken += [f"stored: {problem.text}" for problem in verify(log)]
        async with open_test_house(replies=[says("again")], store=store) as house:
            handle = await house.agents.resume("s", options=OPTIONS)
            outcome = await handle.agent.ask(user_message("and now?"))
            if outcome.text != "again":
                self._life.broken.append(f"resumed, the next prompt ended {outcome.reason}")
            self._life.broken += broken_laws(house.session(handle))

    async def _act(self, house: TestHouse, handle: AgentHandle, plug: Fiber) -> Fiber:
        agent, chance = handle.agent, self._chance
        what = chance.choice(
            ("prompt", "prompt", "prompt", "prompt", "steer", "inject", "cancel", "take back",
             "maintain", "reload", "wake", "clear")
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
                agent.cancel(chance.choice(CAUSES), keep_inbox=chance.choice((True, False)))
            case "take back":
                for message in agent.pending("next-turn")[:1]:
                    agent.remove(message.id)
            case "maintain" if agent.status == "idle":
                await agent.run_maintenance(self._job)
            case "reload":
                with trio.move_on_after(60):
                    await plug.dispose()
                return await self._mounted(house)
            case "wake":
                agent.wake()
            case "clear":
                agent.clear()
            case _:
                pass
        return plug

    async def _job(self, signal: live.TurnSignal) -> None:
        with signal.scope():
            await trio.sleep(self._chance.random())

    # -- plugins -----------------------------------------------------------------------------------

    async def _mounted(self, house: TestHouse) -> Fiber:
        fiber = house.kernel.mount(self._plugin(), slot=5)
        await fiber.ready()
        return fiber

    async def _gust(self, where: str) -> None:
        """Nothing, a wait, a hang or a failure."""
        roll = 1.0 if self._calm else self._chance.random()
        if roll < RAISES:
            self._life.meet(f"{where} raised")
            raise ValueError(f"{where}: thunder")
        if roll < HANGS:
            self._life.meet(f"{where} hung")
            await trio.sleep(self._chance.choice((5, 50, 500)))
        elif roll < WAITS:
            await trio.lowlevel.checkpoint()

    def _happens(self, what: str, share: float) -> bool:
        happens = not self._calm and self._chance.random() < share
        if happens:
            self._life.meet(what)
        return happens

    async def _around(self, where: str, call_next: Next[R]) -> R:
        await self._gust(where)
        answer = await call_next()
        await self._gust(where)
        return answer

    def _plugin(self) -> Plugin:
        @plugin(name="weather")
        async def weather(ctx: Context) -> None:
            self._on_turns(ctx)
            self._on_requests(ctx)
            self._on_tools(ctx)

        return weather

    def _on_turns(self, ctx: Context) -> None:
        @ctx.on(ev.system_prompt.ASSEMBLE)
        async def assemble(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            return await self._around("assembly", call_next)

        @ctx.on(ev.agent.PRE_STEP)
        async def pre_step(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            if self._happens("rejected", 0.05):
                return ev.agent.Reject(reason="rain")
            decision = await self._around("pre-step", call_next)
            if isinstance(decision, ev.agent.Enter) and self._happens("rewritten", 0.1):
                said = (*decision.messages, user_message("by the way"))
                return ev.agent.Enter(
                    messages=said if self._chance.choice((True, True, False)) else (),
                    starts_request_series=self._chance.choice((True, False)),
                )
            return decision

        @ctx.on(ev.agent.TURN_STOPPING)
        async def stopping(stop: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
            await self._gust("turn-stopping")
            if self._happens("kept going", 0.15):
                return ev.agent.KeepGoing(message=user_message("more"))
            return None

        @ctx.on(ev.agent.STATUS)
        def status(notice: ev.agent.Status) -> None:
            if self._happens("cancelled by a listener", 0.05):
                notice.agent.cancel(self._chance.choice(CAUSES), keep_inbox=True)

        @ctx.on(ev.assistant.CHUNK)
        def chunk(event: Logged[ev.assistant.Chunk]) -> None:
            if self._happens("an observer raised", 0.02):
                raise ValueError("hail")

    def _on_requests(self, ctx: Context) -> None:
        @ctx.on(ev.agent.REQUEST)
        async def request(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            return await self._around("request", call_next)

        @ctx.on(ev.agent.REQUEST_ERROR)
        async def recover(
            failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            await self._gust("recovery")
            if self._happens("retried", 0.6):
                return ev.agent.Retry()
            return await call_next()

    def _on_tools(self, ctx: Context) -> None:
        @ctx.on(ev.tools.PRE_EXECUTE)
        async def pre(
            payload: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
        ) -> ev.tools.PreExecuteDecision:
            if self._happens("denied", 0.1):
                return ev.tools.Deny(reason="rain")
            return await self._around("policy", call_next)

        @ctx.on(ev.tools.POST_EXECUTE)
        async def post(
            payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
        ) -> ev.tools.PostExecuteDecision:
            if self._happens("blocked", 0.05):
                return ev.tools.Block(feedback=(records.TextBlock(text="rain"),))
            return await self._around("review", call_next)

    # -- the model and the tools -------------------------------------------------------------------

    async def _reply(self, request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        """One reply: whole, cut off, failed, hung, or full of calls."""
        chance = self._chance
        self._life.broken += unanswered_on_the_wire(request.messages)
        wanted = self._wanted() if chance.choice((True, True, False)) else ()
        yield records.BlockStartChunk(index=0, block_type="text")
        for word in ("so ", "it ", "goes"):
            await self._gust("stream")
            yield records.TextDeltaChunk(index=0, text=word)
            if self._happens("the model failed", 0.05):
                code = chance.choice(("SERVER", "RATE_LIMIT", "TRANSPORT", "CONTEXT_OVERFLOW"))
                raise LlmError("rain", code=code)
            if self._happens("the stream was cut off", 0.03):
                return
        yield records.BlockEndChunk(index=0, block=records.TextBlock(text="so it goes"))
        for index, block in enumerate(wanted, start=1):
            yield records.BlockStartChunk(index=index, block_type="tool-call")
            yield records.ToolCallDeltaChunk(
                index=index, id=block.id, name=block.name, arguments_delta=block.arguments
            )
            yield records.BlockEndChunk(index=index, block=block)
        cut = self._happens("cut by the cap", 0.05)
        reason = records.ToolCallsFinish() if wanted else records.StopFinish()
        yield records.FinishChunk(reason=records.MaxTokensFinish() if cut else reason)

    def _wanted(self) -> tuple[records.ToolCallBlock, ...]:
        chance = self._chance
        names = chance.choices(("quick", "quick", "alone", "nobody"), k=chance.randint(1, 4))
        self._calls += len(names)
        return tuple(
            records.ToolCallBlock(
                id=f"call-{self._calls - place}",
                name=name,
                arguments=chance.choice((*['{"text": "x"}'] * 6, "{}", "no json")),
            )
            for place, name in enumerate(names)
        )

    def _tool(self, name: str) -> Tool:
        async def execute(args: _Text, run: live.ToolRun) -> str:
            await self._gust("body")
            if self._happens("a body left a context", 0.1):
                run.defer_context(user_message("found"))
            if self._happens("a body concluded", 0.1):
                run.conclude_turn()
            if self._happens("a body shielded itself", 0.05):
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
            return args.text

        return define_tool(
            name=name,
            description=name,
            args=_Text,
            output=str,
            execute=execute,
            execution_mode="parallel" if name == "quick" else "exclusive",
        )
