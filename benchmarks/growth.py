"""How the cost of a step grows with the history: straight lines fitted to the marks of long runs.

What comes in: the marks of the longest conversations of each loop. What goes out: one row with the
cost of a step at the beginning and at the end, and the slope. Pure.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.running import Told

__all__ = ["bend_of", "growth", "line_through"]

#: Steps whose costs are averaged before the line is fitted; a tick of the CPU clock is coarse.
WINDOW = 10


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: what `y` is at 0, and how much it grows for each 1 of `x`."""
    middle_x = statistics.fmean(x for x, _ in points)
    middle_y = statistics.fmean(y for _, y in points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
    return middle_y - slope * middle_x, slope


def bend_of(points: Sequence[tuple[float, float]]) -> float:
    """How far the points bend from their line: what `y` has beyond it for each 1 of `x` squared.

    `x` must be evenly spaced: then the part of a parabola that no line has stands at right angles
    to lines, and is fitted on its own.
    """
    middle = statistics.fmean(x for x, _ in points)
    spread = statistics.fmean((x - middle) ** 2 for x, _ in points)
    curve = [((x - middle) ** 2 - spread, y) for x, y in points]
    return sum(c * y for c, y in curve) / sum(c * c for c, _ in curve)


def _points(marks: Sequence[float]) -> list[tuple[float, float]]:
    """Step number and microseconds a step, window by window; the first is warming up."""
    width = max(1, min(WINDOW, len(marks) // 5))
    starts = range(width, len(marks) - width, width)
    return [(at + width / 2, 1e6 * (marks[at + width] - marks[at]) / width) for at in starts]


def growth(told: Mapping[str, Sequence[Told]]) -> dict[str, object]:
    """The row: for each loop microseconds at step 0 and for each 1,000 steps of history more.

    The bend is what a parabola has beyond the line, in microseconds for the square of 1,000 steps:
    near 0 means that nothing costs the square of the history for a step.
    """
    points = {
        loop: [
            (at[0][0], statistics.median(y for _, y in at))
            for at in zip(*(_points(one.marks) for one in ones), strict=False)
        ]
        for loop, ones in told.items()
    }
    fits = {loop: line_through(found) for loop, found in points.items()}
    steps = len(told["product"][0].marks)
    start, slope = fits["product"]
    fifty = start + slope * min(50, steps)
    last = start + slope * steps
    return {
        "row": f"growth over {steps} steps",
        "unit": "us CPU",
        **{loop: round(start) for loop, (start, _) in fits.items()},
        **{f"{loop}Per1000": round(1000 * slope) for loop, (_, slope) in fits.items()},
        **{f"{loop}Bend": round(1e6 * bend_of(found)) for loop, found in points.items()},
        "lastToFirst": round(last / fifty, 2),
    }
