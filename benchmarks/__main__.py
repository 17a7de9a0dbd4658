"""The table: dsh beside bare httpx and bare h11, in the same run, on the same local server.

What comes in: `--small` for a smoke run, `--json` for machines. What goes out: one line a row with
medians of CPU seconds and ratios. Sizes, repeats and what each row means: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPS = ("product", "bare_httpx", "bare_h11")


@frozen(kw_only=True)
class Sizes:
    """How much one run of the table does."""

    repeats: int
    steps: tuple[int, ...]
    chunks: tuple[int, ...]
    agents: tuple[int, ...]


MEDIUM = Sizes(repeats=3, steps=(50, 200), chunks=(2000,), agents=(32,))
FULL = Sizes(repeats=5, steps=(50, 200, 500, 2000), chunks=(2000, 20000), agents=(8, 32))
SMALL = Sizes(repeats=1, steps=(10, 20), chunks=(200,), agents=(2,))


@frozen(kw_only=True)
class Told:
    """What one measured process told."""

    cpu: float
    startup: float
    marks: list[float]
    chunks: int
    peakKib: int  # noqa: N815 - the meter's own key


@contextmanager
def server(*, steps: int, calls: int = 1, chunks: int = 20) -> Iterator[str]:
    """A server process of its own; gives its base URL and ends it."""
    command = [sys.executable, "-m", "benchmarks.server"]
    command += ["--steps", str(steps), "--calls", str(calls), "--chunks", str(chunks)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None:
            raise SystemExit("the server has no stdout")
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def measured(loop: str, url: str, *, agents: int = 1) -> Told:
    """Run one loop in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{loop}", url, "--agents", str(agents)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Told(**json.loads(done.stdout.splitlines()[-1]))


def per_step(told: Told) -> float:
    """CPU milliseconds of one step over the second half: neither start-up nor the first steps."""
    marks = told.marks
    middle = len(marks) // 2
    return 1000 * (marks[-1] - marks[middle]) / (len(marks) - 1 - middle)


def per_chunk(told: Told) -> float:
    """CPU microseconds of one streamed chunk, start of the process left out."""
    return 1e6 * told.cpu / told.chunks


def row(name: str, unit: str, figures: dict[str, list[float]]) -> dict[str, object]:
    """One line of the table: medians and the ratios of the first loop to the others."""
    medians = {loop: statistics.median(values) for loop, values in figures.items()}
    return {
        "row": name,
        "unit": unit,
        **{loop: round(value, 3) for loop, value in medians.items()},
        "toHttpx": round(medians["product"] / medians["bare_httpx"], 2),
        "toH11": round(medians["product"] / medians["bare_h11"], 2),
    }


def table(sizes: Sizes) -> Iterator[dict[str, object]]:
    """Every row, one after the other; the loops of a row take turns, so noise hits all alike."""
    for steps in sizes.steps:
        with server(steps=steps) as url:
            told = {loop: [measured(loop, url) for _ in range(sizes.repeats)] for loop in LOOPS}
        figures = {loop: [per_step(one) for one in ones] for loop, ones in told.items()}
        yield row(f"step at {steps}", "ms CPU", figures)
        peaks = {loop: [one.peakKib / 1024 for one in ones] for loop, ones in told.items()}
        yield row(f"peak memory, {steps} steps", "MiB", peaks)
    for chunks in sizes.chunks:
        with server(steps=0, chunks=chunks) as url:
            told = {loop: [measured(loop, url) for _ in range(sizes.repeats)] for loop in LOOPS}
        figures = {loop: [per_chunk(one) for one in ones] for loop, ones in told.items()}
        yield row(f"chunk of {chunks}", "us CPU", figures)
    for agents in sizes.agents:
        with server(steps=20) as url:
            told = {
                loop: [measured(loop, url, agents=agents) for _ in range(sizes.repeats)]
                for loop in LOOPS
            }
        figures = {
            loop: [1000 * one.cpu / len(one.marks) for one in ones] for loop, ones in told.items()
        }
        yield row(f"step, {agents} agents x 20 steps", "ms CPU", figures)


def main() -> None:
    """Read the options, run the rows, print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="dsh beside bare loops"
    )
    parser.add_argument("--small", action="store_true", help="a smoke run: small sizes, one repeat")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    cores = os.cpu_count()
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {cores} cores", flush=True
    )
    for line in table(MEDIUM):
        if options.json:
            print(json.dumps(line), flush=True)
        else:
            cells = "  ".join(f"{key} {value}" for key, value in line.items() if key != "row")
            print(f"{line['row']:<34}{cells}", flush=True)


if __name__ == "__main__":
    main()
