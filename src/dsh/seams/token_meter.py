"""The token meter seam: how large the next request will be, and what a session has cost.

What comes in: live sessions, texts, messages. What goes out: frozen measurements and totals. A
meter reads logs and never writes one; it costs what was logged since it was last asked, never the
whole history. Where a server reports its counts they win; the rest is estimated, and says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import field

from dsh.hooks import frozen
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.catalog.records import Message
    from dsh.session import Session

__all__ = [
    "TOKEN_METER",
    "Baseline",
    "Measurement",
    "NodePrice",
    "TokenMeter",
    "UsageReport",
    "UsageTotals",
]

#: What a measurement stands on: the counts of the last reply, or estimates alone.
Baseline: TypeAlias = Literal["usage", "estimated"]


@frozen(kw_only=True, slots=True)
class Measurement:
    """How large the next request of one session would be, in tokens.

    `total_tokens` is the prediction; `surface_tokens` and `envelope_tokens` (the tool schemas) are
    the plain estimate of its parts. With the baseline "usage" the total is what the provider
    counted for the last reply, and `surface_delta` for what came and went since, else the sum of
    the estimates. `scale` (at least 1) says how much larger than estimated the provider's counts
    were. `prefix_tokens` stand unchanged at the front of the surface since the last reply: what a
    provider's cache can still serve. `log_revision` is the session's next seq.
    """

    log_revision: int
    baseline: Baseline
    total_tokens: int
    surface_tokens: int
    surface_delta: int
    envelope_tokens: int
    prefix_tokens: int
    scale: float = 1.0


@frozen(slots=True)
class NodePrice:
    """The estimate of one node of the surface."""

    seq: int
    tokens: int


@frozen(kw_only=True, slots=True)
class UsageTotals:
    """Sums over model attempts, in tokens; the four counts are disjoint, reasoning is output.

    `estimated_attempts` of the `attempts` reported no counts and are in the sums as estimates.
    """

    attempts: int = 0
    estimated_attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def plus(self, other: UsageTotals) -> UsageTotals:
        """The sum of both."""
        return UsageTotals(
            attempts=self.attempts + other.attempts,
            estimated_attempts=self.estimated_attempts + other.estimated_attempts,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Everything that was read and written."""
        return self.prompt_tokens + self.output_tokens

    @property
    def prompt_tokens(self) -> int:
        """Everything that was read, from a cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def cache_hit_ratio(self) -> float | None:
        """The part of the input that came from a cache; None before any input."""
        return self.cache_read_tokens / self.prompt_tokens if self.prompt_tokens else None


@frozen(kw_only=True, slots=True)
class UsageReport:
    """What a session has cost: in all, in its newest turn, and by route (provider and model)."""

    session: UsageTotals = field(factory=UsageTotals)
    turn: UsageTotals = field(factory=UsageTotals)
    turn_number: int = 0
    routes: Mapping[tuple[str, str], UsageTotals] = field(
        factory=dict[tuple[str, str], UsageTotals]
    )
    turn_routes: Mapping[tuple[str, str], UsageTotals] = field(
        factory=dict[tuple[str, str], UsageTotals]
    )

    @property
    def providers(self) -> Mapping[str, UsageTotals]:
        """The session's sums by provider."""
        found: dict[str, UsageTotals] = {}
        for (provider, _), totals in self.routes.items():
            found[provider] = found.get(provider, UsageTotals()).plus(totals)
        return found


class TokenMeter(ABC):
    """Who provides this counts. Every method is synchronous and may be called at any time."""

    @abstractmethod
    def measure(self, session: Session) -> Measurement:
        """How large the next request would be, as the log stands now."""

    @abstractmethod
    def prices(self, session: Session) -> tuple[NodePrice, ...]:
        """The estimate of every node of the surface, in surface order. Costs the surface."""

    @abstractmethod
    def usage(self, session: Session) -> UsageReport:
        """What the session has cost so far, failed attempts and summaries included."""

    @abstractmethod
    def estimate(self, message: Message) -> int:
        """The estimate of one message, in tokens. Pure."""

    @abstractmethod
    def estimate_text(self, text: str) -> int:
        """The estimate of a text, in tokens. Pure."""


TOKEN_METER: Final[ServiceKey[TokenMeter]] = ServiceKey("token-meter")
