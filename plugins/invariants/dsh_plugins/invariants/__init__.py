"""The plugin `invariants`: the harness's own laws, checked while it runs.

What comes in: appends, requests, streams, stages of calls, assemblies and status notices. What goes
out: nothing, as long as all laws hold; else `LawBroken`, raised where it can still stop the breach,
and kept in the book. It changes nothing, waits for nothing and logs no event: with it and without
it a lawful run is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import Context, Next, plugin, required
from dsh import catalog as ev
from dsh.agent import AGENTS, Agents
from dsh.hooks import frozen
from dsh.session import SESSIONS, Projection, Sessions
from dsh_plugins.invariants.assemblies import assembly_fault
from dsh_plugins.invariants.breach import INVARIANTS, Book, Law, LawBroken
from dsh_plugins.invariants.laws import CONCERNED, Trace, Unlawful, judged
from dsh_plugins.invariants.requests import Requests
from dsh_plugins.invariants.stages import Stages
from dsh_plugins.invariants.statuses import Statuses
from dsh_plugins.invariants.streams import CheckedStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from dsh.catalog import records
    from dsh.hooks import StreamNext, live
    from dsh.session import Session
    from dsh.wire import StoredEvent

__all__ = ["INVARIANTS", "Book", "LawBroken", "invariants"]

RETRY = frozenset({ev.llm.RETRY.name, ev.llm.RETRY_STARTED.name})


@frozen
class InvariantsDeps:
    """Whose laws they are."""

    sessions: Sessions = required(SESSIONS)
    agents: Agents = required(AGENTS)


@plugin(name="invariants", deps=InvariantsDeps, provides=(INVARIANTS,))
async def invariants(ctx: Context, _config: None, deps: InvariantsDeps) -> None:
    """Check every law until unloaded; unloaded, nothing is left of it."""
    book = Book(ctx.log)
    trace = _log_laws(ctx, deps.sessions, book)
    _request_and_stream(ctx, deps.sessions, book, trace)
    _stages_and_status(ctx, deps.agents, book)
    _assembly(ctx, book)
    ctx.provide(INVARIANTS, book)


def _log_laws(ctx: Context, sessions: Sessions, book: Book) -> Projection[Trace]:
    """The log's laws as a fold on the candidate: what it refuses is never committed."""

    def apply(trace: Trace, event: StoredEvent) -> Trace:
        try:
            return judged(trace, event)
        except Unlawful as fault:
            law: Law = "retry" if event.type in RETRY else "log"
            raise book.breach(law, event.type, event.seq, str(fault)) from None

    unit = Projection(key="invariants", init=Trace, apply=apply, events=CONCERNED)
    sessions.project(ctx, unit)
    return unit


def _request_and_stream(
    ctx: Context, sessions: Sessions, book: Book, trace: Projection[Trace]
) -> None:
    def trace_of(session: Session) -> Trace:
        return session.projection(trace)

    requests = Requests(book, sessions, trace_of)

    @ctx.on(ev.llm.STREAM, prepend=True)
    def stream(
        payload: ev.llm.Stream, call_next: StreamNext[records.StreamChunk]
    ) -> AbstractAsyncContextManager[AsyncIterator[records.StreamChunk]]:
        requests.check(payload.request)
        return CheckedStream(book, call_next)

    @ctx.on(ev.session.DISPOSED)
    def left(notice: ev.session.Disposed) -> None:
        requests.forget(notice.session)


def _stages_and_status(ctx: Context, agents: Agents, book: Book) -> None:
    stages = Stages(book, [agent.id for agent in agents.live() if agent.status == "running"])
    statuses = Statuses(book, agents.live())

    @ctx.on(ev.agent.STATUS, prepend=True)
    def told(notice: ev.agent.Status) -> None:
        if notice.status == "idle":
            stages.rested(notice.agent)
        statuses.told(notice)

    @ctx.on(ev.agent.DISPOSED)
    def left(notice: ev.agent.Disposed) -> None:
        stages.rested(notice.agent)
        statuses.left(notice.agent)

    @ctx.on(ev.tools.PRE_EXECUTE, prepend=True)
    async def policy(
        payload: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        stages.at("policy", payload.exec)
        return await call_next()

    @ctx.on(ev.tools.EXECUTE, prepend=True)
    async def body(payload: ev.tools.Execute, call_next: Next[live.ToolResult]) -> live.ToolResult:
        stages.at("body", payload.exec)
        return await call_next()

    @ctx.on(ev.tools.POST_EXECUTE, prepend=True)
    async def review(
        payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        stages.at("review", payload.exec)
        return await call_next()

    @ctx.on(ev.tools.RESULT, prepend=True)
    def result(notice: ev.tools.Result) -> None:
        stages.ended(notice.exec, notice.result)


def _assembly(ctx: Context, book: Book) -> None:
    @ctx.on(ev.system_prompt.ASSEMBLE, prepend=True)
    async def assemble(
        payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
    ) -> live.PromptAssembly:
        assembly = await call_next()
        fault = assembly_fault(assembly)
        if fault is not None:
            raise book.breach("assembly", ev.system_prompt.ASSEMBLE.name, None, fault)
        return assembly
