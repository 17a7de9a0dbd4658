"""One session's log, folded for the meter: each event is looked at once.

What comes in: the events since the last look. What goes out: the prices of the surface, the counts
of the last reply, and sums of what was spent. Synchronous, without a clock; the log is only read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from attrs import evolve

from dsh import catalog as ev
from dsh.catalog import records
from dsh.hooks import frozen
from dsh.seams.token_meter import Measurement, NodePrice, UsageReport, UsageTotals
from dsh.session import Surface, message_of
from dsh_plugins.token_meter.estimate import blocks_tokens, message_tokens, tools_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.session import Session
    from dsh.wire import StoredEvent

__all__ = ["SessionFold"]

#: A provider that counts more than this for what was estimated counts something else.
SCALE_MAX: Final = 4.0


@frozen(slots=True)
class Anchor:
    """What the provider counted for a reply, and what was estimated for the same messages."""

    route: tuple[str, str]
    tools: tuple[records.ToolSchema, ...]
    counted: int
    surface: int
    envelope: int
    scale: float


@final
class SessionFold:
    """What the meter knows of one session. `advance` first, then read."""

    def __init__(self) -> None:
        self._position = 0
        self._surface: Final = Surface()
        self._prices: Final[dict[int, int]] = {}
        self._surface_tokens = 0
        self._stable = 0
        self._header: records.EpochHeader | None = None
        self._tools: tuple[records.ToolSchema, ...] = ()
        self._envelope = 0
        self._anchor: Anchor | None = None
        self._pending: records.Usage | None = None
        self._prompt = 0
        self._report = UsageReport()

    def advance(self, session: Session) -> None:
        """Look at what was logged since the last time."""
        end = session.next_seq
        if self._position == end:
            return
        for event in session.events[self._position : end]:
            self._take(event)
        self._position = end

    def _take(self, event: StoredEvent) -> None:
        data = event.data
        if type(data) is ev.assistant.Chunk:
            self._take_chunk(data.chunk)
            return
        if event.surface_op is not None:
            self._take_node(event, event.surface_op)
        match data:
            case ev.assistant.Message():
                self._take_reply(data)
            case ev.request.Header(header=header):
                self._take_header(header)
            case ev.step.Start() | ev.step.End():
                self._settle()
                self._prompt = self._surface_tokens + self._envelope
            case ev.turn.Start(turn=turn):
                self._report = evolve(
                    self._report, turn=UsageTotals(), turn_number=turn, turn_routes={}
                )
            case ev.compaction.Summary(usage=usage) if usage is not None:
                self._spend((data.provider, data.model), usage, estimated=False)
            case _:
                pass

    def _take_chunk(self, chunk: records.StreamChunk) -> None:
        if type(chunk) is records.UsageChunk:
            self._pending = chunk.usage
        elif type(chunk) is records.FinishChunk and isinstance(
            chunk.reason, records.ErrorFinish | records.AbortedFinish
        ):
            self._settle()
        elif type(chunk) is records.BlockStartChunk:
            # The prompt of this attempt is complete: what the estimate of its input stands on.
            self._prompt = self._surface_tokens + self._envelope

    def _settle(self) -> None:
        """Counts of an attempt that came to no reply: it has cost them all the same."""
        usage, self._pending = self._pending, None
        if usage is not None and self._header is not None:
            config = self._header.config
            self._spend((config.provider, config.model), usage, estimated=False)

    def _take_node(self, event: StoredEvent, op: records.SurfaceOp) -> None:
        message = message_of(event)
        price = 0 if message is None else message_tokens(message)
        if isinstance(op, records.Replace):
            hidden = self._surface.shadowed(op)
            at = self._surface.nodes.index(hidden[0])
            self._stable = min(self._stable, at)
            self._surface_tokens -= sum(self._prices.pop(seq) for seq in hidden)
        self._surface.apply(event.seq, op)
        self._prices[event.seq] = price
        self._surface_tokens += price

    def _take_header(self, header: records.EpochHeader) -> None:
        self._header = header
        if header.tools != self._tools:
            self._tools = header.tools
            self._envelope = tools_tokens(header.tools)

    def _take_reply(self, reply: ev.assistant.Message) -> None:
        self._pending = None
        source = reply.message.source
        provider, model = "", ""
        if isinstance(source, records.ModelSource):
            provider, model = source.provider, source.model
        usage = reply.usage
        self._stable = len(self._surface)
        if usage is None:
            output = blocks_tokens(reply.message.content)
            guess = records.Usage(input_tokens=self._prompt, output_tokens=output)
            self._spend((provider, model), guess, estimated=True)
            return
        self._spend((provider, model), usage, estimated=False)
        read = usage.input_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
        self._anchor = Anchor(
            (provider, model),
            self._tools,
            read + usage.output_tokens,
            self._surface_tokens,
            self._envelope,
            min(max(read / self._prompt, 1.0), SCALE_MAX) if self._prompt else 1.0,
        )

    def _spend(self, route: tuple[str, str], usage: records.Usage, *, estimated: bool) -> None:
        report, spent = self._report, _totals(usage, estimated=estimated)
        self._report = evolve(
            report,
            session=report.session.plus(spent),
            turn=report.turn.plus(spent),
            routes=_with(report.routes, route, spent),
            turn_routes=_with(report.turn_routes, route, spent),
        )

    def measurement(self) -> Measurement:
        """How large the next request would be."""
        estimated = self._surface_tokens + self._envelope
        anchor, header = self._anchor, self._header
        route = None if header is None else (header.config.provider, header.config.model)
        total, delta, scale = estimated, 0, 1.0
        if anchor is not None and (
            anchor.route != route
            or anchor.tools != self._tools
            or anchor.counted < anchor.surface + anchor.envelope
        ):
            anchor = None
        if anchor is not None:
            delta, scale = self._surface_tokens - anchor.surface, anchor.scale
            # What came is counted as the provider counts, what went only as it was estimated.
            total = max(anchor.counted + (round(delta * scale) if delta > 0 else delta), 0)
        return Measurement(
            log_revision=self._position,
            baseline="estimated" if anchor is None else "usage",
            total_tokens=total,
            surface_tokens=self._surface_tokens,
            surface_delta=delta,
            envelope_tokens=self._envelope,
            prefix_tokens=self._prefix(),
            scale=scale,
        )

    def _prefix(self) -> int:
        nodes = self._surface.nodes
        if self._stable >= len(nodes):
            return self._surface_tokens
        if self._stable * 2 > len(nodes):
            rest = sum(self._prices[nodes[at]] for at in range(self._stable, len(nodes)))
            return self._surface_tokens - rest
        return sum(self._prices[nodes[at]] for at in range(self._stable))

    def prices(self) -> tuple[NodePrice, ...]:
        """The price of every node, in surface order."""
        return tuple(NodePrice(seq, self._prices[seq]) for seq in self._surface.nodes)

    def report(self) -> UsageReport:
        """What was spent so far. Counts of an attempt that still runs are not in it."""
        return self._report


def _with(
    sums: Mapping[tuple[str, str], UsageTotals], route: tuple[str, str], spent: UsageTotals
) -> Mapping[tuple[str, str], UsageTotals]:
    return {**sums, route: sums.get(route, UsageTotals()).plus(spent)}


def _totals(usage: records.Usage, *, estimated: bool) -> UsageTotals:
    return UsageTotals(
        attempts=1,
        estimated_attempts=int(estimated),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        reasoning_tokens=usage.reasoning_tokens or 0,
    )
