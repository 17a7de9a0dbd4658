"""When a conversation is shortened, and how far: pressure, overflow, and on request.

What comes in: proposed steps, refused requests, wishes. What goes out: a surface that fits, or an
event that says why not. Nothing here is tried twice for the same state of a session: what came to
nothing is tried again only when the conversation has grown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

from typing_extensions import override

from dsh.errors import AgentBusy, AgentError, SessionError
from dsh.seams.compaction import Compacted, CompactionEngine, CompactionFailed
from dsh_plugins.compaction.case import Occasion
from dsh_plugins.compaction.pruning import Cut, prune
from dsh_plugins.compaction.selection import Span, balanced

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Sequence

    from dsh.catalog import records
    from dsh.hooks.live import Agent, TurnSignal
    from dsh_plugins.compaction.case import Case, CaseFiles
    from dsh_plugins.compaction.catalog import CompactionConfig
    from dsh_plugins.compaction.selection import Node

__all__ = ["OVERFLOW", "Compactor"]

#: The failure of a request that was too long.
OVERFLOW: Final = "CONTEXT_WINDOW_EXCEEDED"
#: How much of the context a conversation must grow before a vain attempt is repeated.
GROWTH: Final = 0.02
#: Below this size almost every context has room: nobody needs to know that it is unknown.
UNKNOWN_TOKENS: Final = 64_000
#: How much of what was just refused a summary's own request may take.
OVERFLOW_PART: Final = 0.8

#: How much of a summary's refused request the next one takes.
REFUSED_PART: Final = 0.6

T = TypeVar("T")


@final
class Compactor(CompactionEngine):
    """The engine of one harness."""

    def __init__(self, config: CompactionConfig, files: CaseFiles, log: logging.Logger) -> None:
        self._config: Final = config
        self._files: Final = files
        self._log: Final = log
        self._cut: Final = Cut(config.prune_threshold, config.prune_head, config.prune_tail)
        self._told: Final[set[tuple[str, str]]] = set()

    # -- pressure --------------------------------------------------------------------------------

    async def pressure(
        self,
        agent: Agent,
        turn: int,
        incoming: Sequence[records.UserMessage],
        signal: TurnSignal,
    ) -> None:
        """Shorten the conversation if the next request would be too close to the context's size.

        Raises only what ends the turn anyway; every other failure is logged, and the turn goes on.
        """
        case = self._files.open(agent, Occasion(trigger="pressure", turn=turn, signal=signal))
        if case is None:
            return
        window, threshold = case.limits.window, case.limits.threshold
        if window is None or threshold is None:
            self._tell_unknown(case)
            return
        case.incoming(incoming)
        if case.size() < threshold:
            case.state.stuck_at = None
            return
        prune(case.session, case.meter, self._cut, spare_newest=True)
        size, stuck = case.size(), case.state.stuck_at
        if size < threshold or (stuck is not None and size < stuck + window * GROWTH):
            return
        # Until it is known better, so that a failure of any kind is not repeated at every step.
        case.state.stuck_at = size
        short = await self._shorten(case, threshold)
        case.state.stuck_at = None if short else case.size()
        signal.raise_if_set()

    async def _shorten(self, case: Case, threshold: int) -> bool:
        """Summarise until the conversation is short enough; False: it is not."""
        limit = case.request_limit()
        for _ in range(1 + self._config.compaction_retries):
            span = case.select(case.limits.retain, limit)
            if span is None:
                case.note_no_progress("everything that is left must stay as it is")
                break
            try:
                await case.compact(span)
            except CompactionFailed as failed:
                self._log.warning("summarising session %s failed: %s", case.session.id, failed)
                if failed.kind in {"busy", "cancelled"}:
                    return False
                if failed.code == OVERFLOW:
                    limit = case.tokens_up_to(span) * REFUSED_PART
                continue
            if case.size() < threshold:
                return True
            limit = case.request_limit()
        self._log.warning(
            "session %s is still about %d tokens long (it is shortened from %d on)",
            case.session.id,
            case.size(),
            threshold,
        )
        return False

    def _tell_unknown(self, case: Case) -> None:
        """Warn once for each route, of a conversation that has become long."""
        state, long = case.state, case.size() >= UNKNOWN_TOKENS
        if state.told_before is None:
            # One that was long before it was resumed had its warning then.
            state.told_before = {case.route} if long and case.resumed else set()
        if not long or case.route in state.told_before or case.route in self._told:
            return
        self._told.add(case.route)
        self._log.warning(
            "the context size of %s/%s is unknown, so the conversation is shortened only when "
            "the server refuses it; set `contextWindow` of the provider",
            *case.route,
        )

    # -- overflow --------------------------------------------------------------------------------

    async def overflow(self, agent: Agent, turn: int, signal: TurnSignal) -> bool:
        """Shorten what was refused as too long. True: it is shorter now, and worth another try."""
        case = self._files.open(agent, Occasion(trigger="overflow", turn=turn, signal=signal))
        if case is None or case.state.overflows >= self._config.max_overflow_retries:
            return False
        case.state.overflows += 1
        refused = case.refused()
        before = case.session.surface.generation
        try:
            await self._relieve(case, refused)
        except AgentError:
            raise
        except CompactionFailed as failed:
            self._log.warning("summarising session %s failed: %s", case.session.id, failed)
        except Exception:  # noqa: BLE001 - what was cut before it may be enough
            self._log.warning(
                "shortening session %s after a refusal failed", case.session.id, exc_info=True
            )
        signal.raise_if_set()
        return case.session.surface.generation != before

    async def _relieve(self, case: Case, refused: int) -> None:
        cut = prune(case.session, case.meter, self._cut, spare_newest=True)
        threshold = case.limits.threshold
        if cut and threshold is not None and case.size() < threshold:
            return
        roof = refused if case.limits.window is None else min(refused, case.limits.window)
        span = case.select(0, case.request_limit(roof * OVERFLOW_PART))
        failure: CompactionFailed | None = None
        if span is not None:
            try:
                await case.compact(span)
            except CompactionFailed as failed:
                if failed.kind == "cancelled":
                    raise
                failure = failed
        if span is None or failure is not None:
            # What the model has not seen yet is cut only when nothing else is left.
            cut = prune(case.session, case.meter, self._cut, spare_newest=False)
            if span is None and not cut:
                case.note_no_progress("a single message is longer than the model takes")
        if failure is not None:
            raise failure

    def forget_refusals(self, session_id: str) -> None:
        """A reply came, or the agent rests: the next refusal is the first of its kind again."""
        self._files.forget_overflows(session_id)

    # -- on request ------------------------------------------------------------------------------

    @override
    async def compact_now(self, agent: Agent, instructions: str | None = None) -> Compacted | None:
        wish = (instructions or "").strip() or None

        async def work(signal: TurnSignal) -> Compacted | None:
            occasion = Occasion(trigger="manual", turn=None, signal=signal, instructions=wish)
            case = self._files.open(agent, occasion)
            if case is None:
                return None
            whole = case.meter.measure(case.session).surface_tokens
            span = case.select(min(case.limits.retain, whole // 4), case.request_limit())
            return None if span is None else await case.compact(span)

        return await self._while_idle(agent, work)

    @override
    async def compact_region(self, agent: Agent, start_seq: int, end_seq: int) -> Compacted:
        async def work(signal: TurnSignal) -> Compacted:
            case = self._files.open(agent, Occasion(trigger="region", turn=None, signal=signal))
            if case is None:
                raise CompactionFailed("changed", "this session made no request yet")
            return await case.compact(_region(case.nodes(), start_seq, end_seq))

        return await self._while_idle(agent, work)

    async def _while_idle(self, agent: Agent, work: Callable[[TurnSignal], Awaitable[T]]) -> T:
        async def job(signal: TurnSignal) -> T:
            found: list[T] = []
            with signal.scope():
                found.append(await work(signal))
            signal.raise_if_set()
            await self._make_durable(agent)
            return found[0]

        try:
            return await agent.run_maintenance(job)
        except AgentBusy as error:
            raise CompactionFailed("busy", error.message) from error
        except AgentError as error:
            raise CompactionFailed("cancelled", error.message) from error

    async def _make_durable(self, agent: Agent) -> None:
        session = self._files.session_of(agent)
        try:
            if session is not None:
                await session.flush()
        except SessionError as error:
            raise CompactionFailed("persistence", error.message, code=error.code) from error


def _region(nodes: Sequence[Node], start_seq: int, end_seq: int) -> Span:
    """The span of these nodes. Raises CompactionFailed when it is none that can be summarised."""
    places = {node.seq: place for place, node in enumerate(nodes)}
    start, end = places.get(start_seq), places.get(end_seq)
    if start is None or end is None or start > end:
        raise CompactionFailed(
            "changed", f"{start_seq} to {end_seq} is no range of what the model is shown now"
        )
    if any(node.system for node in nodes[start : end + 1]):
        raise CompactionFailed("changed", f"{start_seq} to {end_seq} holds a system prompt")
    whole = balanced(nodes)
    if not whole[start] or not whole[end + 1]:
        raise CompactionFailed(
            "changed", f"{start_seq} to {end_seq} would part a tool call from its result"
        )
    return Span(start, end + 1)
