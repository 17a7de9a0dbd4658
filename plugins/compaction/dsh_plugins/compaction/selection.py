"""Which nodes a summary takes the place of: pure, on prices and pairs.

What comes in: the nodes of the surface, each with its price and what it has to do with tool calls.
What goes out: a range of them, or None. A range never parts a call from its result, never holds a
system prompt, and leaves the newest messages alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Node", "Span", "balanced", "select"]


@frozen(kw_only=True, slots=True)
class Node:
    """One node. `calls` are the ids that it opens, `answers` the one that it closes."""

    seq: int
    tokens: int
    system: bool = False
    checkpoint: bool = False
    calls: tuple[str, ...] = ()
    answers: str | None = None


@frozen(slots=True)
class Span:
    """The nodes from place `start` up to, not including, place `end`."""

    start: int
    end: int


def balanced(nodes: Sequence[Node]) -> list[bool]:
    """For each place from 0 to len(nodes): whether a cut there parts no call from its result.

    An id may be used again once it was answered.
    """
    open_calls: Counter[str] = Counter()
    opened = 0
    found = [True]
    for node in nodes:
        open_calls.update(node.calls)
        opened += len(node.calls)
        if node.answers is not None and open_calls[node.answers] > 0:
            open_calls[node.answers] -= 1
            opened -= 1
        found.append(opened == 0)
    return found


def select(
    nodes: Sequence[Node], *, retain: float, limit: float | None, least: float = 0
) -> Span | None:
    """The range to summarise, or None when there is nothing worth it.

    `retain` tokens at the end stay, and always the newest unit (a message, or calls with their
    results). Everything from the beginning up to the end of the range must fit into `limit`
    tokens, for that is what the summary's own request sends. Of several ranges between system
    prompts the dearest is taken, if it costs more than `least`.
    """
    whole = balanced(nodes)
    newest = _last_cut(whole, _retained_from(nodes, retain))
    if limit is not None:
        newest = _last_cut(whole, _fitting(nodes, newest, limit))
    best: Span | None = None
    best_tokens = least
    for first, stop in _between_prompts(nodes, newest):
        end = _last_cut(whole, stop)
        start = next((at for at in range(first, end) if whole[at]), end)
        inside = nodes[start:end]
        tokens = sum(node.tokens for node in inside)
        if tokens > best_tokens and not all(node.checkpoint for node in inside):
            best, best_tokens = Span(start, end), tokens
    return best


def _retained_from(nodes: Sequence[Node], retain: float) -> int:
    """The place from which at least `retain` tokens, and at least one node, stay."""
    kept, place = 0, len(nodes)
    while place > 0 and (place == len(nodes) or kept < retain):
        place -= 1
        kept += nodes[place].tokens
    return place


def _fitting(nodes: Sequence[Node], place: int, limit: float) -> int:
    tokens = 0
    for at in range(place):
        tokens += nodes[at].tokens
        if tokens > limit:
            return at
    return place


def _last_cut(whole: Sequence[bool], place: int) -> int:
    while not whole[place]:
        place -= 1
    return place


def _between_prompts(nodes: Sequence[Node], end: int) -> list[tuple[int, int]]:
    """The runs without a system prompt among the first `end` nodes."""
    runs: list[tuple[int, int]] = []
    start = 0
    for place in range(end):
        if nodes[place].system:
            runs.append((start, place))
            start = place + 1
    runs.append((start, end))
    return [(first, last) for first, last in runs if first < last]
