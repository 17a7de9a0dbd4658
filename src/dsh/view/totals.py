"""The sums of a session: how long the model, the tools and the people took, and the tokens.

What comes in: tables. What goes out: one set of numbers, which the page and the text both show.
Time in which two tools ran counts once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from dsh.view.tables import Span, Tables

__all__ = ["Totals", "totals"]

MODEL: Final = frozenset({"model", "compaction"})
TOOLS: Final = frozenset({"tool"})
WAITS: Final = frozenset({"approval", "backoff"})
BAD: Final = frozenset({"failed", "crashed"})


@frozen(kw_only=True, slots=True)
class Totals:
    """Times in milliseconds. `waiting` is for approvals, for tries, and between turns."""

    turns: int
    steps: int
    model: int
    tools: int
    waiting: int
    input: int
    cached: int
    output: int
    retries: int
    errors: int


def totals(tables: Tables, now: int) -> Totals:
    """Sum up. `now` is where what has no end yet is taken to end."""
    turns = tables.turns
    between = sum(
        max(later.begin - (now if turn.end is None else turn.end), 0)
        for turn, later in pairwise(turns)
    )
    return Totals(
        turns=len(turns),
        steps=len(tables.steps),
        model=_covered(tables.spans, MODEL, now),
        tools=_covered(tables.spans, TOOLS, now),
        waiting=_covered(tables.spans, WAITS, now) + between,
        input=sum(turn.spent.input for turn in turns),
        cached=sum(turn.spent.cached for turn in turns),
        output=sum(turn.spent.output for turn in turns),
        retries=sum(row.kind == "try" for row in tables.rows),
        errors=sum(row.kind != "turn" and row.state in BAD for row in tables.rows),
    )


def _covered(spans: Sequence[Span], kinds: Container[str], now: int) -> int:
    """How long at least one span of these kinds lasted."""
    stretches = sorted(
        (span.begin, now if span.end is None else span.end) for span in spans if span.kind in kinds
    )
    covered = reach = 0
    for begin, end in stretches:
        covered += max(end - max(begin, reach), 0)
        reach = max(reach, end)
    return covered
