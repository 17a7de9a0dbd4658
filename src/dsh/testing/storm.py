"""What the weather is made of: a plugin, a model and tools in which everything may go wrong.

What comes in: the dice of a life. What goes out: listeners at every extension point of a turn that
reject, rewrite, raise, hang, steer and cancel; a provider that resets, cuts off, overflows and
limits; bodies that fail, conclude and shield themselves. None of it outlasts the storm: when the
dice are calm, all of it is as if it were not there.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio
from attrs import evolve, frozen

from dsh import catalog as ev
from dsh.agent import AGENTS, Agents, user_message
from dsh.catalog import records
from dsh.errors import LlmError
from dsh.hooks import live
from dsh.kernel import Context, Plugin, plugin, required
from dsh.tools import Tool, define_tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from dsh.hooks import Next, StreamNext
    from dsh.testing.chance import Chance

__all__ = ["StormyModel", "storm", "stormy_tool"]


@frozen
class _Needs:
    agents: Agents = required(AGENTS)


def storm(chance: Chance) -> Plugin:
    """The plugin. It may be unloaded and mounted again at any time."""

    @plugin(name="storm", deps=_Needs)
    async def stormy(ctx: Context, _config: None, deps: _Needs) -> None:
        _on_turns(ctx, chance)
        _on_notices(ctx, chance, deps.agents)
        _on_requests(ctx, chance)
        _on_tools(ctx, chance)

    return stormy


def _on_turns(ctx: Context, chance: Chance) -> None:
    @ctx.on(ev.system_prompt.ASSEMBLE)
    async def assemble(
        payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
    ) -> live.PromptAssembly:
        assembly = await chance.around("assembly", call_next)
        if chance.happens("another prompt", 0.15):
            text = chance.pick(("sunny", "rainy", ""))
            assembly = evolve(assembly, sections=(live.AssembledText(name="s", text=text),))
        if chance.happens("another runtime context", 0.15):
            text = chance.pick(("north", "south", ""))
            assembly = evolve(assembly, contexts=(live.AssembledText(name="c", text=text),))
        return assembly

    @ctx.on(ev.agent.PRE_STEP)
    async def pre_step(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        if chance.happens("rejected", 0.05):
            return ev.agent.Reject(reason="rain")
        decision = await chance.around("pre-step", call_next)
        if isinstance(decision, ev.agent.Enter) and chance.happens("rewritten", 0.1):
            said = (*decision.messages, user_message("by the way"))
            return ev.agent.Enter(
                messages=said if chance.pick((True, True, False)) else (),
                starts_request_series=chance.pick((True, False)),
            )
        return decision

    @ctx.on(ev.agent.TURN_STOPPING)
    async def stopping(stop: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
        await chance.gust("turn-stopping")
        if chance.happens("kept going", 0.15):
            return ev.agent.KeepGoing(message=user_message("more"))
        return None


def _on_notices(ctx: Context, chance: Chance, agents: Agents) -> None:
    @ctx.on(ev.agent.STATUS)
    def status(notice: ev.agent.Status) -> None:
        if chance.happens("cancelled by a listener", 0.05):
            chance.cancel(notice.agent, keep_inbox=True)

    @ctx.on(ev.agent.INBOX_INSERTED)
    def inserted(notice: ev.agent.InboxInserted) -> None:
        if chance.happens("cancelled at an insertion", 0.02):
            chance.cancel(notice.agent)

    @ctx.on(ev.session.EVENT)
    def event(notice: ev.session.Event) -> None:
        agent = agents.get(notice.session.id)
        if agent is not None:
            _interject(chance, agent)


def _interject(chance: Chance, agent: live.Agent) -> None:
    """A listener of the log raises, speaks up or cancels."""
    if chance.happens("an observer raised", 0.02):
        raise ValueError("hail")
    if chance.happens("a plugin steered", 0.01):
        agent.steer(user_message("mind"))
    if chance.happens("a plugin injected", 0.01):
        agent.inject(user_message("note"))
    if chance.happens("a plugin cancelled", 0.003):
        chance.cancel(agent)


def _on_requests(ctx: Context, chance: Chance) -> None:
    @ctx.on(ev.agent.REQUEST)
    async def request(
        payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
    ) -> records.LlmCallConfig:
        config = await chance.around("request", call_next)
        if chance.happens("rerouted", 0.1):
            return evolve(config, model=chance.pick(("model-1", "model-2")), max_tokens=99)
        return config

    @ctx.on(ev.agent.REQUEST_ERROR)
    async def recover(
        failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
    ) -> ev.agent.Retry | None:
        await chance.gust("recovery")
        if chance.happens("retried", 0.3):
            return ev.agent.Retry()
        return await call_next()

    @ctx.on(ev.llm.STREAM)
    @asynccontextmanager
    async def stream(
        payload: ev.llm.Stream, call_next: StreamNext[records.StreamChunk]
    ) -> AsyncGenerator[AsyncIterator[records.StreamChunk]]:
        await chance.gust("middleware")
        async with call_next() as chunks:
            yield chunks


def _on_tools(ctx: Context, chance: Chance) -> None:
    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        payload: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        if chance.happens("denied", 0.1):
            return ev.tools.Deny(reason="rain")
        if chance.happens("asked about", 0.05):
            return ev.tools.Ask(reason="rain")
        if chance.happens("rewritten arguments", 0.05):
            return ev.tools.Allow(arguments={"text": "umbrella"})
        return await chance.around("policy", call_next)

    @ctx.on(ev.tools.EXECUTE)
    async def execute(
        payload: ev.tools.Execute, call_next: Next[live.ToolResult]
    ) -> live.ToolResult:
        return await chance.around("wrapper", call_next)

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        if chance.happens("blocked", 0.05):
            return ev.tools.Block(feedback=(records.TextBlock(text="rain"),))
        return await chance.around("review", call_next)


class StormyModel:
    """Replies: whole, cut off, failed, hung, or full of calls."""

    def __init__(self, chance: Chance) -> None:
        self._chance: Final = chance
        self._calls = 0

    async def reply(self, request: live.LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        """One of them; a summary, if it is asked for one, is short and may fail like others."""
        chance = self._chance
        plain = request.purpose is not None or not chance.pick((True, True, False))
        wanted = () if plain else self._wanted()
        yield records.BlockStartChunk(index=0, block_type="text")
        for word in ("so ", "it ", "goes"):
            await chance.gust("stream")
            yield records.TextDeltaChunk(index=0, text=word)
            self._fail()
            if chance.happens("the stream was cut off", 0.03):
                return
        yield records.BlockEndChunk(index=0, block=records.TextBlock(text="so it goes"))
        for index, block in enumerate(wanted, start=1):
            yield records.BlockStartChunk(index=index, block_type="tool-call")
            yield records.ToolCallDeltaChunk(
                index=index, id=block.id, name=block.name, arguments_delta=block.arguments
            )
            if chance.happens("a call was cut off", 0.02):
                return
            yield records.BlockEndChunk(index=index, block=block)
        cut = chance.happens("cut by the cap", 0.05)
        reason = records.ToolCallsFinish() if wanted else records.StopFinish()
        yield records.FinishChunk(reason=records.MaxTokensFinish() if cut else reason)

    def _fail(self) -> None:
        chance = self._chance
        if chance.happens("the model was reset", 0.02):
            raise ConnectionResetError("rain")
        if chance.happens("the model failed", 0.03):
            raise LlmError("rain", code=chance.pick(("SERVER", "TRANSPORT", "AUTH")))
        if chance.happens("the model limited us", 0.02):
            wait = chance.pick((None, 50, 3_000_000))
            raise LlmError("rain", code="RATE_LIMIT", status=429, retry_after_ms=wait)
        if chance.happens("the history was too long", 0.03):
            raise LlmError("rain", code="CONTEXT_WINDOW_EXCEEDED")

    def _wanted(self) -> tuple[records.ToolCallBlock, ...]:
        chance = self._chance
        names = [
            chance.pick(("quick", "quick", "alone", "nobody")) for _ in range(chance.number(1, 4))
        ]
        self._calls += len(names)
        return tuple(
            records.ToolCallBlock(
                id=f"call-{self._calls - place}",
                name=name,
                arguments=chance.pick((*['{"text": "x"}'] * 6, "{}", "no json")),
            )
            for place, name in enumerate(names)
        )


@frozen
class _Text:
    text: str


def stormy_tool(chance: Chance, name: str) -> Tool:
    """`quick` overlaps, any other does not."""

    async def execute(args: _Text, run: live.ToolRun) -> str:
        await chance.gust("body")
        if chance.happens("a body left a context", 0.1):
            run.defer_context(user_message("found"))
        if chance.happens("a body concluded", 0.1):
            run.conclude_turn()
        if chance.happens("a body shielded itself", 0.05):
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
        if chance.happens("a body steered", 0.05):
            assert run.agent is not None
            run.agent.steer(user_message("look"))
        return args.text

    return define_tool(
        name=name,
        description=name,
        args=_Text,
        output=str,
        execute=execute,
        execution_mode="parallel" if name == "quick" else "exclusive",
    )
