"""The rows that compare processes: steps, tools, chunks, agents, start, memory, growth, counts.

What comes in: sizes. What goes out: rows as plain dictionaries, one after the other. The loops of a
row take turns, so that the machine's noise hits all of them alike. What a row means is told in
benchmarks/README.md.
"""

from __future__ import annotations

import statistics
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import field, frozen

from benchmarks.growth import growth
from benchmarks.running import LOOPS, SEAM_LOOPS, Told, command_cpu, measured, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["FULL", "MEDIUM", "SMALL", "Sizes", "process_rows", "row"]

Row: TypeAlias = "dict[str, object]"
#: The step count that the memory and the start are measured with.
BASE_STEPS: Final = 50
AGENT_STEPS: Final = 20


@frozen(kw_only=True)
class Sizes:
    """How much one run of the table does. `chunks` is a small and a large reply.

    `watched_steps` is the length of the conversations of the rows for invariants and for the seam.
    """

    repeats: int
    steps: tuple[int, ...]
    watched_steps: int
    parallel_steps: int
    chunks: tuple[int, int]
    agents: tuple[int, ...]
    counted_steps: int
    agent_steps: int = field(default=AGENT_STEPS)


FULL: Final = Sizes(
    repeats=5,
    steps=(50, 200, 500, 2000),
    watched_steps=200,
    parallel_steps=50,
    chunks=(2000, 20000),
    agents=(1, 8, 32, 128),
    counted_steps=200,
)
MEDIUM: Final = Sizes(
    repeats=3,
    steps=(50, 200),
    watched_steps=200,
    parallel_steps=50,
    chunks=(2000, 8000),
    agents=(1, 32),
    counted_steps=100,
)
SMALL: Final = Sizes(
    repeats=1,
    steps=(10, 20),
    watched_steps=20,
    parallel_steps=10,
    chunks=(100, 400),
    agents=(2,),
    counted_steps=60,
    agent_steps=4,
)


def row(name: str, unit: str, figures: Mapping[str, Sequence[float]]) -> Row:
    """One line of the table: medians, and the ratios of the first loop to the bare ones."""
    medians = {loop: statistics.median(values) for loop, values in figures.items()}
    first = next(iter(medians.values()))
    ratios = {
        label: round(first / medians[loop], 2)
        for label, loop in (("toHttpx", "bare_httpx"), ("toH11", "bare_h11"))
        if medians.get(loop)
    }
    return {
        "row": name,
        "unit": unit,
        **{loop: round(value, 3) for loop, value in medians.items()},
        **ratios,
    }


def _each(
    told: Mapping[str, Sequence[Told]], figure: Callable[[Told], float]
) -> dict[str, list[float]]:
    return {loop: [figure(one) for one in ones] for loop, ones in told.items()}


def _told(
    url: str, repeats: int, *options: str, loops: Sequence[str] = LOOPS
) -> dict[str, list[Told]]:
    told: dict[str, list[Told]] = {loop: [] for loop in loops}
    for _ in range(repeats):
        for loop in loops:
            told[loop].append(measured(loop, url, *options))
    return told


def per_step(told: Told) -> float:
    """CPU milliseconds of one step over the second half: neither start-up nor the first steps."""
    marks = told.marks
    middle = len(marks) // 2
    return 1000 * (marks[-1] - marks[middle]) / (len(marks) - 1 - middle)


def process_rows(sizes: Sizes) -> Iterator[Row]:
    """All of them, in the order of the README."""
    yield from _step_rows(sizes)
    yield _watched_row(sizes)
    yield from _chunk_rows(sizes)
    yield from _seam_rows(sizes)
    yield from _agent_rows(sizes)
    yield from _start_rows(sizes)
    yield from _count_rows(sizes)


def _step_rows(sizes: Sizes) -> Iterator[Row]:
    for steps in sizes.steps:
        with serving(steps=steps) as server:
            told = _told(server.url, sizes.repeats)
        yield row(f"step at {steps}", "ms CPU", _each(told, per_step))
        yield row(f"peak memory, {steps} steps", "MiB", _each(told, lambda one: one.peakKib / 1024))
        if steps == max(sizes.steps):
            yield growth(told)
    with serving(steps=sizes.parallel_steps, calls=4) as server:
        told = _told(server.url, sizes.repeats)
    yield row("step with 4 parallel tools", "ms CPU", _each(told, per_step))


def _watched_row(sizes: Sizes) -> Row:
    """What the plugin `invariants` costs, which development profiles have and others do not."""
    steps = sizes.watched_steps
    figures: dict[str, list[float]] = {"watched": [], "product": [], "bare_httpx": []}
    with serving(steps=steps) as server:
        for _ in range(sizes.repeats):
            figures["watched"].append(per_step(measured("product", server.url, "--invariants")))
            for loop in ("product", "bare_httpx"):
                figures[loop].append(per_step(measured(loop, server.url)))
    return row(f"step at {steps} with invariants", "ms CPU", figures)


def _chunks(
    sizes: Sizes, loops: Sequence[str]
) -> tuple[dict[str, list[float]], dict[str, list[Told]]]:
    """Microseconds of a chunk for each loop, and what the runs with the large reply told."""
    few, many = sizes.chunks
    with serving(steps=0, chunks=few) as small, serving(steps=0, chunks=many) as large:
        first = _told(small.url, sizes.repeats, loops=loops)
        second = _told(large.url, sizes.repeats, loops=loops)
    figures = {
        loop: [
            1e6 * ((more.cpu - more.answered) - (less.cpu - less.answered)) / (many - few)
            for less, more in zip(first[loop], second[loop], strict=True)
        ]
        for loop in loops
    }
    return figures, second


def _chunk_rows(sizes: Sizes) -> Iterator[Row]:
    few, many = sizes.chunks
    figures, told = _chunks(sizes, LOOPS)
    yield row(f"chunk, between replies of {few} and {many}", "us CPU", figures)
    peaks = _each(told, lambda one: one.peakKib / 1024)
    yield row(f"peak memory, a reply of {many} chunks", "MiB", peaks)


def _seam_rows(sizes: Sizes) -> Iterator[Row]:
    """The model seam alone: what is left when loop, log and tools are taken away."""
    steps = sizes.watched_steps
    with serving(steps=steps) as server:
        told = _told(server.url, sizes.repeats, loops=SEAM_LOOPS)
    yield row(f"step of the seam at {steps}", "ms CPU", _each(told, per_step))
    few, many = sizes.chunks
    figures, _ = _chunks(sizes, SEAM_LOOPS)
    yield row(f"chunk of the seam, between {few} and {many}", "us CPU", figures)


def _agent_rows(sizes: Sizes) -> Iterator[Row]:
    for agents in sizes.agents:
        with serving(steps=sizes.agent_steps) as server:
            told = _told(server.url, sizes.repeats, "--agents", str(agents))
        figures = _each(told, lambda one: 1000 * (one.cpu - one.opened) / len(one.marks))
        yield row(f"step, {agents} agents x {sizes.agent_steps} steps", "ms CPU", figures)


def _start_rows(sizes: Sizes) -> Iterator[Row]:
    with serving(steps=1) as server:
        told = _told(server.url, sizes.repeats)
    yield row("import", "s CPU", _each(told, lambda one: one.imported))
    yield row("open", "s CPU", _each(told, lambda one: one.opened - one.imported))
    yield row("start to the first reply", "s CPU", _each(told, lambda one: one.answered))
    command = (sys.executable, "-m", "dsh.cli", "run", "--profile", "demo", "Show me")
    used = [command_cpu(*command) for _ in range(sizes.repeats)]
    yield row("dsh run --profile demo, whole", "s CPU", {"product": used})


def _count_rows(sizes: Sizes) -> Iterator[Row]:
    """Per step: what was done, at the beginning and at the end of a conversation."""
    steps = sizes.counted_steps
    with serving(steps=steps, prefix=True) as server:
        told = measured("product", server.url, "--count")
        wire = server.stats()
    early, late = _counted(told, 5, 5 + steps // 4), _counted(told, steps - steps // 4, steps)
    for key, name in (
        ("calls", "Python calls"),
        ("native", "native calls"),
        ("polls", "turns of the event loop"),
        ("hops", "thread hops"),
        ("syncs", "fsyncs"),
    ):
        yield {"row": f"{name} a step", "unit": "count", "early": early[key], "late": late[key]}
    with serving(steps=steps) as server:
        watched = measured("product", server.url, "--count", "--invariants")
    yield {
        "row": "Python calls a step with invariants",
        "unit": "count",
        "early": _counted(watched, 5, 5 + steps // 4)["calls"],
        "late": _counted(watched, steps - steps // 4, steps)["calls"],
    }
    yield {
        "row": f"wire of {steps} steps",
        "unit": "count",
        "connections": wire["connections"],
        "requests": wire["requests"],
        "bodyBytes": wire["bodyBytes"],
        "prefixBytesAStep": round(wire["prefixBytes"] / (wire["requests"] - 1)),
        "newBytesAStep": round((wire["bodyBytes"] - wire["prefixBytes"]) / wire["requests"]),
        "logBytesAStep": round(told.more["logBytes"] / wire["requests"]),
    }


def _counted(told: Told, first: int, last: int) -> dict[str, float]:
    """The median of each count over the steps from `first` to `last`."""
    window = told.counts[first:last]
    return {
        key: statistics.median(later[key] - earlier[key] for earlier, later in pairwise(window))
        for key in window[0]
    }
