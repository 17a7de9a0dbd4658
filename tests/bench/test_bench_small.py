"""The small benchmark run: its shape, and what may be counted. Never a time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks.growth import bend_of, line_through
from benchmarks.rows import SMALL
from benchmarks.running import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Mapping

TINY = 1e-9
Rows = dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--small", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
    )
    found = [cast("dict[str, object]", json.loads(line)) for line in done.stdout.splitlines()]
    return {str(row["row"]): row for row in found}


def number(row: Mapping[str, object], key: str) -> float:
    value = row[key]
    assert isinstance(value, int | float)
    return value


def test_every_row_is_there_and_compares_the_three_loops(rows: Rows) -> None:
    compared = [
        *(f"step at {steps}" for steps in SMALL.steps),
        *(f"peak memory, {steps} steps" for steps in SMALL.steps),
        "step with 4 parallel tools",
        f"chunk, between replies of {SMALL.chunks[0]} and {SMALL.chunks[1]}",
        *(f"step, {agents} agents x {SMALL.agent_steps} steps" for agents in SMALL.agents),
        "import",
        "start to the first reply",
    ]
    for name in compared:
        assert {"unit", "product", "bare_httpx", "bare_h11"} <= rows[name].keys(), name
    assert {"python", "cpu", "cores", "trio", "httpx"} <= rows["machine"].keys()
    for mode in ("waterfall", "waterfall, by", "serial", "emit", "log event"):
        assert {"0", "1", "5", "20"} <= rows[f"dispatch: {mode}"].keys()


def test_the_rows_beside_the_whole_product_are_there(rows: Rows) -> None:
    few, many = SMALL.chunks
    steps = SMALL.watched_steps
    for name in (f"step of the seam at {steps}", f"chunk of the seam, between {few} and {many}"):
        assert {"seam", "bare_httpx", "bare_h11", "toHttpx"} <= rows[name].keys()
    watched = rows[f"step at {steps} with invariants"]
    assert {"watched", "product", "bare_httpx", "toHttpx"} <= watched.keys()
    more = number(rows["Python calls a step with invariants"], "late")
    assert more > number(rows["Python calls a step"], "late")
    for layer in ("h11", "httpcore", "httpx transport", "httpx client", "httpx lines"):
        assert number(rows[f"a request over {layer}"], "spent") > 0
    assert number(rows["a request over dsh.llm.http"], "toHttpx") > 0


def test_peak_memory_is_that_of_each_process(rows: Rows) -> None:
    """A child's begins with its parent's, unless it is asked for the program's own."""
    row = rows[f"peak memory, {SMALL.steps[0]} steps"]
    assert number(row, "bare_h11") < number(row, "bare_httpx") < number(row, "product")


def test_a_request_begins_as_the_one_before(rows: Rows) -> None:
    wire = rows[f"wire of {SMALL.counted_steps} steps"]
    # A step adds one call and its result; what stands behind the messages is sent again.
    assert number(wire, "newBytesAStep") < 600
    assert number(wire, "prefixBytesAStep") > 9 * number(wire, "newBytesAStep")


def test_a_conversation_uses_one_connection_and_one_request_a_step(rows: Rows) -> None:
    wire = rows[f"wire of {SMALL.counted_steps} steps"]
    assert wire["connections"] == 1
    assert wire["requests"] == SMALL.counted_steps + 1


def test_a_step_syncs_twice_and_hops_into_a_thread_for_nothing_else(rows: Rows) -> None:
    for count in ("fsyncs", "thread hops"):
        row = rows[f"{count} a step"]
        assert (row["early"], row["late"]) == (2, 2)


def test_a_step_costs_the_same_whatever_came_before_it(rows: Rows) -> None:
    """Counted, not timed: anything that walks the history calls something for each part of it."""
    for count in ("Python calls", "native calls", "turns of the event loop"):
        row = rows[f"{count} a step"]
        # A reply may arrive in one read more, which is one turn.
        assert number(row, "late") <= number(row, "early") * 1.03 + 1, row


def test_a_step_takes_few_turns_of_the_event_loop(rows: Rows) -> None:
    # Five are the HTTP library's own, four the two syncs'.
    assert number(rows["turns of the event loop a step"], "early") <= 13


def test_the_fitted_line_is_that_of_least_squares() -> None:
    start, slope = line_through([(0, 1), (1, 3), (2, 5), (3, 7)])
    assert abs(start - 1) < TINY
    assert abs(slope - 2) < TINY


def test_the_bend_is_that_of_a_parabola() -> None:
    assert abs(bend_of([(x, 3 + 5 * x) for x in range(9)])) < TINY
    assert abs(bend_of([(x, 3 - 5 * x + 2 * x * x) for x in range(9)]) - 2) < TINY
