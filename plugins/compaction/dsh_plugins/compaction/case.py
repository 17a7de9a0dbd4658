"""One occasion to shorten one session: its sizes, its limits, and the one way to carry it out.

What comes in: an agent, and what is known of its session from earlier occasions. What goes out:
sizes in tokens, ranges that may be summarised, and finished compactions. It decides nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final
from uuid import uuid4
from weakref import WeakKeyDictionary

from attrs import define, evolve, field

from dsh import catalog as ev
from dsh.agent import new_message_id
from dsh.catalog import records
from dsh.hooks import frozen
from dsh.session import message_of
from dsh_plugins.compaction.checkpoint import instruction, instruction_text, text_of
from dsh_plugins.compaction.history import SessionHistory, kept_by, nodes_of
from dsh_plugins.compaction.policy import SUMMARY_PART, Limits, limits_for
from dsh_plugins.compaction.running import Running
from dsh_plugins.compaction.selection import Span, select
from dsh_plugins.compaction.summary import write_summary
from dsh_plugins.compaction.transaction import Order, note_no_progress, transact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.hooks.live import Agent, TurnSignal
    from dsh.llm import LlmRuntime
    from dsh.seams.compaction import Compacted
    from dsh.seams.token_meter import TokenMeter
    from dsh.session import Session, Sessions
    from dsh_plugins.compaction.catalog import CompactionConfig
    from dsh_plugins.compaction.selection import Node
    from dsh_plugins.compaction.summary import Summary
    from dsh_plugins.compaction.transaction import Trigger

__all__ = ["Case", "CaseFiles", "Occasion", "State"]

#: A provider that counts more than this for what was estimated refused for another reason.
SCALE_MAX: Final = 4.0
#: After a refusal the estimates count for a little more than the context's size.
REFUSED_MARGIN: Final = 1.02
#: A range that costs less than this is not worth a request.
LEAST_TOKENS: Final = 256


@frozen(kw_only=True, slots=True)
class Occasion:
    """Why a session is to be shortened now. `turn` is None between turns.

    `instructions` are what a person wants the summary to heed.
    """

    trigger: Trigger
    turn: int | None
    signal: TurnSignal
    instructions: str | None = None


@define(eq=False)
class State:
    """What is known of one session from earlier occasions.

    `stuck_at`: its size when shortening came to nothing. `scale`: how much more than estimated it
    must be, because a server refused it. `roofs`: by route, the smallest size that was refused
    where the context's size is unknown. `told_before`: the routes for which that was told in an
    earlier life of the session; None before it was looked at. `overflows`: refusals since the last
    reply.
    """

    history: SessionHistory = field(factory=SessionHistory)
    stuck_at: int | None = None
    scale: float = 1.0
    roofs: dict[tuple[str, str], int] = field(factory=dict)
    told_before: set[tuple[str, str]] | None = None
    overflows: int = 0


@final
class Case:
    """One occasion. Made by `CaseFiles.open`."""

    def __init__(
        self,
        files: CaseFiles,
        session: Session,
        header: records.EpochHeader,
        occasion: Occasion,
    ) -> None:
        self._files: Final = files
        self._header: Final = header
        self._occasion: Final = occasion
        self._incoming = 0
        self._summary_cap = 0
        self.session: Final = session
        self.meter: Final[TokenMeter] = files.meter
        self.state: Final = files.state(session)
        self.route: Final = (header.config.provider, header.config.model)
        context = session.request_context()
        self._known: Final = None if context is None else context.context_window
        window = self.state.roofs.get(self.route) if self._known is None else self._known
        self.limits: Final[Limits] = limits_for(
            files.config, *self.route, window, header.config.max_tokens
        )
        self._summary_cap = self.limits.summary

    @property
    def resumed(self) -> bool:
        """Whether the session had an earlier life."""
        self.state.history.advance(self.session)
        return self.state.history.resumed

    def incoming(self, messages: Sequence[records.UserMessage]) -> None:
        """What the next request will have beyond the surface."""
        self._incoming = sum(map(self.meter.estimate, messages))

    def size(self) -> int:
        """How large the next request would be, in tokens, by all that is known."""
        measured = self.meter.measure(self.session)
        guess = (measured.surface_tokens + measured.envelope_tokens) * self.state.scale
        return max(measured.total_tokens, round(guess)) + self._incoming

    def refused(self) -> int:
        """Learn that the request of now is too long; returns its size."""
        size = self.size()
        if self._known is None:
            self.state.roofs[self.route] = size
        elif 0 < size < self._known:
            scale = self.state.scale * self._known / size * REFUSED_MARGIN
            self.state.scale = min(scale, SCALE_MAX)
        return size

    def nodes(self) -> list[Node]:
        """The surface as it is now."""
        return nodes_of(self.session, self.meter.prices(self.session))

    def request_limit(self, roof: float | None = None) -> float | None:
        """How many estimated tokens of the surface a summary's own request has room for.

        `roof` is the size of a request that passes; None: the context's, if it is known.
        """
        if roof is None:
            roof = self.limits.window
        if roof is None:
            return None
        measured = self.meter.measure(self.session)
        # Of an unknown context nothing is known but this roof: the summary shares it, too.
        self._summary_cap = min(self.limits.summary, max(int(roof) // SUMMARY_PART, 1))
        asked = instruction_text(self._occasion.instructions)
        own = self._summary_cap + self.meter.estimate_text(asked)
        scale = max(measured.scale, self.state.scale)
        return (roof - own) / scale - measured.envelope_tokens

    def tokens_up_to(self, span: Span) -> int:
        """The estimate of everything that the request for this summary sends."""
        prices = self.meter.prices(self.session)
        return sum(price.tokens for price in prices[: span.end])

    def select(self, retain: float, limit: float | None) -> Span | None:
        """The range that may be summarised now, or None."""
        return select(self.nodes(), retain=retain, limit=limit, least=LEAST_TOKENS)

    def note_no_progress(self, reason: str) -> None:
        """Log that nothing can be done about this session's size, and why."""
        note_no_progress(self.session, self._order(()), self.size(), reason)

    async def compact(self, span: Span) -> Compacted:
        """Summarise the nodes of `span`. Raises CompactionFailed; cancellable."""
        nodes = tuple(self.session.surface.nodes)
        shadowed = nodes[span.start : span.end]
        events = self.session.events
        derived = (message_of(events[seq]) for seq in nodes[: span.end])
        messages = [message for message in derived if message is not None]

        async def summarise() -> Summary:
            return await write_summary(
                self._files.llm,
                self._summary_config(),
                self._header.tools,
                (*messages, instruction(new_message_id(), self._occasion.instructions)),
                session_id=self.session.id,
                signal=self._occasion.signal,
            )

        running = self._files.running
        with running.counted():
            return await transact(
                self.session,
                self.meter,
                self.state.history,
                self._order(shadowed),
                summarise=partial(running.wait_for, summarise),
                pinned=lambda: self._pinned(shadowed),
                signal=self._occasion.signal,
            )

    def _order(self, shadowed: tuple[int, ...]) -> Order:
        return Order(
            compaction_id=f"compaction_{uuid4().hex}",
            trigger=self._occasion.trigger,
            turn=self._occasion.turn,
            instructions=self._occasion.instructions,
            shadowed=shadowed,
            whole=self._occasion.turn is not None,
        )

    def _summary_config(self) -> records.LlmCallConfig:
        config, marks = self._files.config, self._header.adapter_defaults
        if config.summarization_provider and config.summarization_model:
            return records.LlmCallConfig(
                provider=config.summarization_provider,
                model=config.summarization_model,
                max_tokens=self._summary_cap,
            )
        filled = marks is not None and marks.reasoning_effort
        return evolve(
            self._header.config,
            reasoning_effort=None if filled else self._header.config.reasoning_effort,
            max_tokens=self._summary_cap,
            stop=(),
        )

    def _pinned(self, shadowed: Sequence[int]) -> list[records.UserMessage]:
        """Pinned messages that the model would not see any more, oldest first."""
        events, gone = self.session.events, frozenset(shadowed)
        visible = [seq for seq in self.session.surface.nodes if seq not in gone]
        shown = {*visible}
        kept = {name for seq in visible for name in kept_by(message_of(events[seq]))}
        found: list[records.UserMessage] = []
        self.state.history.advance(self.session)
        for seq in self.state.history.pins():
            data = events[seq].data
            if seq in shown or not isinstance(data, ev.user.Message) or data.message.id in kept:
                continue
            fits = self.meter.estimate(data.message) <= self._files.config.pin_tokens
            if fits and text_of(data.message.content):
                found.append(data.message)
        return found


@final
class CaseFiles:
    """What is known of every session, and where the parts come from."""

    def __init__(
        self, config: CompactionConfig, sessions: Sessions, meter: TokenMeter, llm: LlmRuntime
    ) -> None:
        self._sessions: Final = sessions
        self._states: Final[WeakKeyDictionary[Session, State]] = WeakKeyDictionary()
        self.config: Final = config
        self.meter: Final = meter
        self.llm: Final = llm
        self.running: Final = Running()

    def session_of(self, agent: Agent) -> Session | None:
        """The agent's session, while it is live."""
        return self._sessions.get(agent.session.id)

    def state(self, session: Session) -> State:
        """What is known of this session."""
        state = self._states.get(session)
        if state is None:
            state = self._states[session] = State()
        return state

    def open(self, agent: Agent, occasion: Occasion) -> Case | None:
        """The occasion, or None: the session made no request yet, so nothing is to be shortened."""
        session = self.session_of(agent)
        header = None if session is None else session.request_header()
        if session is None or header is None:
            return None
        return Case(self, session, header, occasion)

    def forget_overflows(self, session_id: str) -> None:
        """Refusals of this session count from 0 again."""
        session = self._sessions.get(session_id)
        if session is not None and session in self._states:
            self._states[session].overflows = 0
