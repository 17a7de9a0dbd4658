"""The calls of one assistant message: what may overlap, and in which order everything is logged.

What comes in: tool call blocks in model order, and a host that writes the log. What goes out: one
result for every call, committed in model order, whatever fails or is cancelled. One coordinator
classifies, asks policy, commits and refills, one call at a time; only bodies overlap. A cancelled
body is waited for; nothing is abandoned.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import trio
from attrs import field, mutable

from dsh.hooks import frozen
from dsh.hooks.live import ToolSuccess
from dsh.tools.arguments import parse_arguments
from dsh.tools.attempt import stopped
from dsh.tools.execution import CallInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog import records
    from dsh.hooks import JsonObject
    from dsh.hooks.live import Agent, ToolResult, TurnSignal
    from dsh.tools.arguments import ParsedArguments
    from dsh.tools.pipeline import Call, Finished
    from dsh.tools.runtime import ToolRuntime

__all__ = ["BatchHost", "BatchOutcome", "run_batch"]


class BatchHost(Protocol):
    """The loop's side of a batch. All methods are synchronous and have no checkpoint."""

    @property
    def agent(self) -> Agent:
        """Whose calls these are."""
        ...

    @property
    def signal(self) -> TurnSignal:
        """The turn's signal; it cancels bodies, each in its own scope."""
        ...

    @property
    def cwd(self) -> str:
        """The workspace, absolute."""
        ...

    def limit(self) -> int:
        """How many bodies may overlap now; read again before each start. Below 1 counts as 1."""
        ...

    def log_call(self, call: records.ToolCallBlock) -> int:
        """Append `tool/call`; returns its seq."""
        ...

    def log_rewrite(self, call_id: str, plugin: str, arguments: JsonObject) -> None:
        """Append `tool/rewritten`."""
        ...

    def commit(
        self,
        call: records.ToolCallBlock,
        call_seq: int,
        result: ToolResult,
        decided_by: str | None,
    ) -> None:
        """Append `tool/result`, which cites `call_seq`."""
        ...

    def deliver_contexts(self, messages: Sequence[records.UserMessage]) -> None:
        """Put the contexts of this batch at the end of the next step's input, in this order."""
        ...


@frozen(kw_only=True, slots=True)
class BatchOutcome:
    """`concludes_turn`: a committed success asked for it. `aborted`: the signal was set."""

    concludes_turn: bool
    aborted: bool


@mutable(slots=True, eq=False)
class _Slot:
    block: records.ToolCallBlock
    seq: int
    call: Call
    settled: bool = False


@mutable(slots=True, eq=False)
class _Batch:
    runtime: ToolRuntime
    host: BatchHost
    waiting: deque[tuple[records.ToolCallBlock, ParsedArguments]]
    started: deque[_Slot] = field(factory=deque)
    running: int = 0
    settled: trio.Event = field(factory=trio.Event)
    failure: BaseException | None = None
    contexts: list[records.UserMessage] = field(factory=list)
    concludes: bool = False

    # --- the coordinator ------------------------------------------------------------------------

    async def run(self) -> None:
        """Start, overlap and commit until nothing waits, or nothing more may start."""
        while self._may_start():
            if len(self.waiting) > 1 and self.host.limit() > 1 and self._next_is_parallel():
                async with trio.open_nursery() as nursery:
                    await self._group(nursery)
            else:
                await self._alone()

    def _may_start(self) -> bool:
        return bool(self.waiting) and self.failure is None and not stopped(self.host.signal)

    def _next_is_parallel(self) -> bool:
        block, parsed = self.waiting[0]
        scope = self.host.agent.scope
        return self.runtime.is_parallel(block.name, parsed.value, scope)

    async def _alone(self) -> None:
        """A barrier: nothing else runs, before or meanwhile."""
        try:
            slot = self._begin()
            if await slot.call.admit():
                await slot.call.dispatch()
            slot.settled = True
            await self._commit()
        except Exception as error:  # noqa: BLE001 - kept, and raised when the batch is drained
            self._fail(error)

    async def _group(self, nursery: trio.Nursery) -> None:
        """A rolling pool, until the next call is a barrier or nothing more may start."""
        try:
            while self._may_start() and self._next_is_parallel():
                if self.running >= max(1, self.host.limit()):
                    await self._one_settles()
                    continue
                await self._launch(nursery)
                await self._commit()
        except Exception as error:  # noqa: BLE001 - kept, and raised when the batch is drained
            self._fail(error)
        await self._drain()

    async def _launch(self, nursery: trio.Nursery) -> None:
        slot = self._begin()
        if not await slot.call.admit():
            slot.settled = True
        elif slot.call.parallel:
            self.running += 1
            nursery.start_soon(self._body, slot, name=f"tool {slot.block.name}")
        else:  # a rewrite made it a barrier
            while self.running:
                await self._one_settles()
            await slot.call.dispatch()
            slot.settled = True

    def _begin(self) -> _Slot:
        block, parsed = self.waiting[0]
        slot = _Slot(block, self.host.log_call(block), self._open(block, parsed))
        self.waiting.popleft()
        self.started.append(slot)
        return slot

    def _open(self, block: records.ToolCallBlock, parsed: ParsedArguments) -> Call:
        host = self.host

        def note(plugin: str, arguments: JsonObject) -> None:
            host.log_rewrite(block.id, plugin, arguments)

        given = CallInput(
            call_id=block.id,
            name=block.name,
            arguments=parsed.value,
            problem=parsed.problem,
            agent=host.agent,
            signal=host.signal,
            cwd=host.cwd,
        )
        return self.runtime.open(given, note)

    async def _body(self, slot: _Slot) -> None:
        """One overlapping body. Nothing leaves this task: a sibling must not be cancelled."""
        try:
            await slot.call.dispatch()
            slot.settled = True
        except BaseException as error:  # noqa: BLE001 - kept, and raised when the batch is drained
            self._fail(error)
        finally:
            self.running -= 1
            self.settled.set()

    async def _one_settles(self) -> None:
        """Wait for a body, then commit what is due. Shielded: bodies are what is cancelled."""
        with trio.CancelScope(shield=True):
            await self.settled.wait()
        self.settled = trio.Event()
        await self._commit()

    async def _drain(self) -> None:
        """Wait for every started body; commit their results as far as that is still possible."""
        while self.running or (self.started and self.started[0].settled):
            try:
                await (self._one_settles() if self.running else self._commit())
            except Exception as error:  # noqa: BLE001 - kept, and raised when the batch is drained
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    # --- commits --------------------------------------------------------------------------------

    async def _commit(self) -> None:
        """Finish and log the settled calls at the front, in model order."""
        while self.started and self.started[0].settled:
            # Taken out first: one that cannot be finished is not tried for ever.
            slot = self.started.popleft()
            finished = await slot.call.finish()
            self._keep(slot.block, slot.seq, finished)

    def _keep(self, block: records.ToolCallBlock, seq: int, finished: Finished) -> None:
        self.host.commit(block, seq, finished.result, finished.decided_by)
        self.contexts.extend(finished.result.contexts)
        if isinstance(finished.result, ToolSuccess) and finished.result.concludes_turn:
            self.concludes = True

    def abandon_rest(self) -> None:
        """Give every call that never started its pair in the log."""
        while self.waiting:
            block, parsed = self.waiting[0]
            seq = self.host.log_call(block)
            self.waiting.popleft()
            self._keep(block, seq, self._open(block, parsed).abandon())


async def run_batch(
    runtime: ToolRuntime, calls: Sequence[records.ToolCallBlock], host: BatchHost
) -> BatchOutcome:
    """Run the calls of one assistant message.

    Calls in model order; a parallel one overlaps its parallel neighbours, at most `host.limit()`
    bodies at once; anything else waits for the pool and runs alone. When the signal is set, bodies
    are cancelled in their own scopes and waited for, and calls that never started get a
    synthetic pair (ABORTED_BEFORE_DISPATCH): every call has exactly one result, in model order.

    Raises the first failure of the host or of the machinery itself, after every started body has
    ended; calls that were logged and have no result then are the caller's to close. A cancellation
    from outside the signal takes the same road as the signal and is raised at the end.
    """
    batch = _Batch(runtime, host, deque((call, parse_arguments(call.arguments)) for call in calls))
    try:
        await batch.run()
        if batch.failure is not None:
            raise batch.failure
        batch.abandon_rest()
    finally:
        if batch.contexts:
            host.deliver_contexts(tuple(batch.contexts))
    aborted = stopped(host.signal)
    await trio.lowlevel.checkpoint_if_cancelled()
    return BatchOutcome(concludes_turn=batch.concludes, aborted=aborted)
