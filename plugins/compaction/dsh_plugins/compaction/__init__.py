"""The plugin `compaction`: a long conversation is shortened before it grows too large.

What comes in: proposed steps, requests that a server refused as too long, and the wish of a
person. What goes out: a shorter surface, in the log as a bracket that says what stands for what.
The log keeps everything. The loop knows nothing of it: it is two listeners and a service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import Context, Logged, Next, plugin
from dsh import catalog as ev
from dsh.errors import AgentError
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.llm import LLM, LlmRuntime
from dsh.seams.compaction import COMPACTION
from dsh.seams.token_meter import TOKEN_METER, TokenMeter
from dsh.session import SESSIONS, Sessions
from dsh_plugins.compaction.case import CaseFiles
from dsh_plugins.compaction.catalog import CompactionConfig
from dsh_plugins.compaction.engine import OVERFLOW, Compactor
from dsh_plugins.compaction.policy import check_config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["compaction"]


@frozen
class Needs:
    """What the plugin stands on."""

    sessions: Sessions = required(SESSIONS)
    meter: TokenMeter = required(TOKEN_METER)
    llm: LlmRuntime = required(LLM)


@plugin(name="compaction", config=CompactionConfig, deps=Needs, provides=(COMPACTION,))
async def compaction(ctx: Context, config: CompactionConfig, deps: Needs) -> None:
    """Shorten under pressure, after an overflow, and on request."""
    check_config(config)
    files = CaseFiles(config, deps.sessions, deps.meter, deps.llm)
    compactor = Compactor(config, files, ctx.log)
    ctx.on_unload(files.running.close)

    async def running() -> Callable[[], Awaitable[None]]:
        return files.running.drain

    # First in, last out: nothing new begins by then, and what ran has closed its bracket.
    await ctx.aeffect(running, label="running compactions")
    ctx.provide(COMPACTION, compactor)
    if not config.auto:
        return

    @ctx.on(ev.agent.PRE_STEP)
    async def relieve(
        step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
    ) -> ev.agent.PreStepDecision:
        try:
            await compactor.pressure(step.agent, step.turn, step.messages, step.signal)
        except AgentError:
            raise
        except Exception:
            # A turn never fails because its conversation could not be shortened.
            ctx.log.warning("shortening %s failed", step.agent.id, exc_info=True)
        step.signal.raise_if_set()
        return await call_next()

    @ctx.on(ev.agent.REQUEST_ERROR)
    async def recover(
        failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
    ) -> ev.agent.Retry | None:
        if (
            failed.failure.code == OVERFLOW
            and not failed.signal.cancelled
            and await compactor.overflow(failed.agent, failed.turn, failed.signal)
        ):
            return ev.agent.Retry()
        return await call_next()

    @ctx.on(ev.assistant.MESSAGE)
    def answered(event: Logged[ev.assistant.Message]) -> None:
        compactor.forget_refusals(event.session.id)

    @ctx.on(ev.agent.STATUS)
    def rested(notice: ev.agent.Status) -> None:
        if notice.status == "idle":
            compactor.forget_refusals(notice.agent.id)
