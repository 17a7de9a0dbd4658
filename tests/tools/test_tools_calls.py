"""Arguments as models write them, and failures of the machinery."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.hooks.live import ToolSuccess
from dsh.testing import BatchBench, call_block
from dsh.tools import BatchOutcome

if TYPE_CHECKING:
    from dsh import Next


def block(call_id: str, name: str = "par", **arguments: str) -> ev.records.ToolCallBlock:
    return call_block(call_id, name, **arguments)


@pytest.mark.holds("F10")
@pytest.mark.parametrize("breaks", ["call c", "result a", "rewrite c"])
async def test_a_failing_host_stops_the_batch_after_started_bodies_ended(
    bench: BatchBench, breaks: str
) -> None:
    ctx = await bench.room.plugin("p")

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        if event.exec.call_id == "c":
            return ev.tools.Allow(arguments={"end": "raise"})
        return await call_next()

    bench.room.host.breaks = breaks
    with pytest.raises(RuntimeError, match=f"{breaks} could not be appended"):
        await bench.room.batch(block("a"), block("b"), block("c"), block("d", "exc"))
    assert sorted(bench.started) == sorted(bench.ended)
    assert "d" not in bench.started
    assert set(bench.ids) <= {"a", "b", "c"}  # nothing is made up for d
    assert "b" in bench.ids


async def test_an_empty_batch_is_nothing(bench: BatchBench) -> None:
    assert await bench.room.batch() == BatchOutcome(concludes_turn=False, aborted=False)
    assert bench.room.host.log == []


@pytest.mark.holds("F1", "case-020")
@pytest.mark.parametrize("raw", ["", " \n", "null", "{}", " {} "])
async def test_empty_arguments_are_an_empty_object(bench: BatchBench, raw: str) -> None:
    await bench.room.batch(ev.records.ToolCallBlock(id="a", name="par", arguments=raw))
    assert isinstance(bench.room.host.results[0].result, ToolSuccess)


GOOD = {"gate": "", "end": "ok"}


@pytest.mark.holds("F1", "case-022")
@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(json.dumps(GOOD)),
        json.dumps(GOOD) + json.dumps(GOOD),
        json.dumps(GOOD) + '{"gate": "src/',
        json.dumps(GOOD) + "\n\nI will now write the file.",
        "```json\n" + json.dumps(GOOD) + "\n```",
        "{}" + json.dumps(GOOD),
        json.dumps([GOOD]),
        "42",
        "true",
        '{"gate": NaN}',
        '{"gate": Infinity}',
        "{" * 100_000,
        "[" * 100_000,
        '{"gate": ' + "9" * 5000 + "}",
        '{"gate": "\\ud800"}',
        "{bad",
    ],
)
async def test_anything_but_one_object_never_runs(bench: BatchBench, raw: str) -> None:
    await bench.room.batch(ev.records.ToolCallBlock(id="a", name="par", arguments=raw))
    assert bench.started == []
    assert bench.codes == ["INVALID_ARGS"]


@pytest.mark.holds("case-023")
@pytest.mark.parametrize(
    "raw",
    [
        '{"end": "ok", "end": "raise"}',
        '{"end": "ok", "\\u0065nd": "raise"}',
        '{"a": {"k": 1, "k": 2}}',
    ],
)
async def test_a_key_that_stands_twice_is_refused(bench: BatchBench, raw: str) -> None:
    await bench.room.batch(ev.records.ToolCallBlock(id="a", name="par", arguments=raw))
    assert bench.started == []
    assert bench.codes == ["INVALID_ARGS"]
    assert "stands twice" in bench.room.host.results[0].text
