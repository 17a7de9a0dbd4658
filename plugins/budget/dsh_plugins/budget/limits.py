"""Which limit is used up: pure.

What comes in: the limits, and what was used. What goes out: the first limit that is reached, in
words for the log, or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dsh.seams.token_meter import UsageReport, UsageTotals
    from dsh_plugins.budget.catalog import BudgetConfig, ModelPrice
    from dsh_plugins.budget.pace import Pace

__all__ = ["NoPrice", "cost_of", "exhausted"]

MILLION: Final = 1_000_000


class NoPrice(Exception):
    """A model was used that has no price."""


def exhausted(config: BudgetConfig, pace: Pace, usage: UsageReport, now_ms: int) -> str | None:
    """The first limit that is reached, as in `turn-steps 100 of 100`; None: there is room."""
    counts: tuple[tuple[str, float | None, float], ...] = (
        ("turn-steps", config.turn_steps, pace.turn_steps),
        ("session-steps", config.session_steps, pace.session_steps),
        ("turn-tokens", config.turn_tokens, usage.turn.total_tokens),
        ("session-tokens", config.session_tokens, usage.session.total_tokens),
        ("turn-seconds", config.turn_seconds, pace.turn_ms(now_ms) / 1000),
        ("session-seconds", config.session_seconds, pace.session_ms(now_ms) / 1000),
    )
    for name, limit, used in counts:
        if limit is not None and used >= limit:
            return f"{name} {used:g} of {limit:g}"
    return _cost_exhausted(config, usage)


def _cost_exhausted(config: BudgetConfig, usage: UsageReport) -> str | None:
    for name, limit, routes in (
        ("turn-cost", config.turn_cost, usage.turn_routes),
        ("session-cost", config.session_cost, usage.routes),
    ):
        if limit is None:
            continue
        try:
            used = cost_of(config.prices, routes)
        except NoPrice as missing:
            return f"no price for {missing}"
        if used >= limit and used > 0:
            return f"{name} {used:.4g} of {limit:g}"
    return None


def cost_of(prices: tuple[ModelPrice, ...], routes: Mapping[tuple[str, str], UsageTotals]) -> float:
    """What these routes have cost. Raises NoPrice for a route without a price."""
    return sum(_costs(prices, routes))


def _costs(
    prices: tuple[ModelPrice, ...], routes: Mapping[tuple[str, str], UsageTotals]
) -> Iterator[float]:
    for (provider, model), used in routes.items():
        price = _price(prices, provider, model)
        if price is None:
            raise NoPrice(f"{provider}/{model}")
        read = price.input if price.cache_read is None else price.cache_read
        write = price.input if price.cache_write is None else price.cache_write
        yield (
            used.input_tokens * price.input
            + used.output_tokens * price.output
            + used.cache_read_tokens * read
            + used.cache_write_tokens * write
        ) / MILLION


def _price(prices: tuple[ModelPrice, ...], provider: str, model: str) -> ModelPrice | None:
    own = [price for price in prices if price.provider == provider]
    exact = next((price for price in own if price.model == model), None)
    return exact or next((price for price in own if price.model == "*"), None)
