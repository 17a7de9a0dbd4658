"""Metrics: histograms and counters since the start, in bounded space.

What comes in: single measurements with attributes. What goes out: a snapshot of all series. Beyond
a number of series of one metric further ones are added up, under `otel.metric.overflow`. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, TypeAlias, final

from attrs import field, mutable

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh_plugins.telemetry.spans import Value

__all__ = ["Instrument", "Measures", "Series"]

SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
TOKENS: Final = tuple(float(4**power) for power in range(14))
SERIES_MAX: Final = 1_000
OVERFLOW: Final = (("otel.metric.overflow", True),)

Key: TypeAlias = "tuple[tuple[str, Value], ...]"


@frozen(slots=True)
class Instrument:
    """What is measured. Without `bounds` it is a counter."""

    name: str
    unit: str
    about: str
    bounds: Sequence[float] = ()


@mutable(slots=True, eq=False)
class Series:
    """One set of attributes: how often, how much, and how it is spread."""

    attributes: Mapping[str, Value]
    count: int = 0
    total: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")
    buckets: list[int] = field(factory=list)


INSTRUMENTS: Final = {
    one.name: one
    for one in (
        Instrument(
            "gen_ai.client.operation.duration", "s", "How long a model attempt took.", SECONDS
        ),
        Instrument(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "How long a model attempt took to its first chunk.",
            SECONDS,
        ),
        Instrument("gen_ai.client.token.usage", "{token}", "Tokens of a model attempt.", TOKENS),
        Instrument("gen_ai.execute_tool.duration", "s", "How long a tool's body took.", SECONDS),
        Instrument("gen_ai.invoke_agent.duration", "s", "How long a turn took.", SECONDS),
        Instrument("dsh.llm.retries", "{retry}", "Attempts that are made again."),
        Instrument("dsh.telemetry.dropped", "{item}", "What could not be sent and was dropped."),
    )
}


@final
class Measures:
    """All series. `start` is when they began, in epoch ms."""

    def __init__(self, start: int) -> None:
        self.start: Final = start
        self._series: Final[dict[str, dict[Key, Series]]] = {}

    def add(self, name: str, value: float, attributes: Mapping[str, Value | None]) -> None:
        """One measurement. Attributes that are None are left out."""
        instrument = INSTRUMENTS[name]
        known = self._series.setdefault(name, {})
        key: Key = tuple(
            sorted((key, given) for key, given in attributes.items() if given is not None)
        )
        if key not in known and len(known) >= SERIES_MAX:
            key = OVERFLOW
        series = known.get(key)
        if series is None:
            series = known[key] = Series(dict(key), buckets=[0] * (len(instrument.bounds) + 1))
        series.count += 1
        series.total += value
        series.least = min(series.least, value)
        series.most = max(series.most, value)
        series.buckets[bisect_left(instrument.bounds, value)] += 1

    def snapshot(self) -> list[tuple[Instrument, list[Series]]]:
        """Every instrument that measured something."""
        return [(INSTRUMENTS[name], list(known.values())) for name, known in self._series.items()]
