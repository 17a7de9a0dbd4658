"""Collectors that hang, refuse or are not there; queues that are full; what is not sent."""

from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
import trio
from attrs import evolve, frozen
from typing_extensions import override

from dsh import define_tool, user_message
from dsh.boot import ProcessEnviron
from dsh.boot.environ import EnvironCredentials, environ_plugin
from dsh.errors import PluginError
from dsh.kernel import FiberState, SystemClock
from dsh.llm import http
from dsh.testing import (
    HttpAnswer,
    call,
    calls,
    open_http_stub,
    open_test_house,
    says,
)
from dsh_plugins.telemetry import telemetry
from dsh_plugins.telemetry.catalog import TelemetryConfig
from dsh_plugins.telemetry.exporter import Collector, Exporter
from dsh_plugins.telemetry.measures import Measures
from dsh_plugins.telemetry.otlp import Encoder
from dsh_plugins.telemetry.redaction import TEXT_MAX, Redaction
from dsh_plugins.telemetry.spans import Span, place_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trio.testing import MockClock

    from dsh.hooks.live import ToolRun
    from dsh.kernel import Fiber
    from dsh.testing import TestHouse

STEPS = 20


@frozen
class NoArgs:
    """Nothing."""


async def nothing(_args: NoArgs, _run: ToolRun) -> str:
    return "ok"


WORK = define_tool(name="work", description="", args=NoArgs, output=str, execute=nothing)


@asynccontextmanager
async def open_house(
    config: TelemetryConfig, variables: dict[str, str] | None = None
) -> AsyncGenerator[tuple[TestHouse, Fiber], None]:
    environ = ProcessEnviron(variables if variables is not None else {})
    around = environ_plugin(environ, EnvironCredentials(environ))
    replies = [*(calls(call("work")) for _ in range(STEPS)), says("done")]
    async with open_test_house(replies=replies, tools=[WORK], plugins=[around]) as house:
        yield house, house.kernel.mount(telemetry, config, slot=9)


async def walked(house: TestHouse) -> float:
    """Run all steps; the seconds that passed on trio's clock."""
    handle = await house.agent()
    before = trio.current_time()
    await handle.agent.ask(user_message("go"))
    assert house.names(handle).count("step/end") == STEPS + 1
    return trio.current_time() - before


@pytest.mark.holds("TE4")
async def test_a_collector_that_hangs_holds_up_neither_the_loop_nor_the_end(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On this clock time passes only while everybody waits: a loop that waited would show it.
    del autojump_clock
    caplog.set_level(logging.WARNING)
    under_way: list[str] = []

    async def hang(_pools: http.Pools, request: httpx.Request) -> httpx.Response:
        under_way.append(request.url.path)
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(http.Pools, "handle_async_request", hang)
    config = TelemetryConfig(interval_ms=100, timeout_ms=60_000, shutdown_ms=1_000)
    async with open_house(config) as (house, fiber):
        await fiber.ready()
        assert await walked(house) == 0
        await trio.sleep(1)
        assert under_way == ["/v1/traces"]
        house.model.replies.append(says("again"))
        agent = house.agents.get("s")
        assert agent is not None
        before = trio.current_time()
        await agent.ask(user_message("more"))
        assert trio.current_time() == before
        await fiber.dispose()
        assert trio.current_time() - before == pytest.approx(1)
        assert fiber.state is FiberState.DISPOSED
    assert "were not sent: no time was left" in caplog.text


@pytest.mark.holds("TE4")
async def test_a_full_queue_drops_and_counts() -> None:
    async with open_http_stub(lambda _asked: HttpAnswer()) as collector:
        config = TelemetryConfig(
            endpoint=collector.origin, interval_ms=3_600_000, shutdown_ms=5_000, queue=10
        )
        async with open_house(config) as (house, fiber):
            await fiber.ready()
            await walked(house)
            await fiber.dispose()
        bodies = {one.target: json.loads(one.body) for one in collector.asked}
    spans = bodies["/v1/traces"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    metrics = bodies["/v1/metrics"]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    (dropped,) = [one for one in metrics if one["name"] == "dsh.telemetry.dropped"]
    counts = {
        point["attributes"][0]["value"]["stringValue"]: point["asDouble"]
        for point in dropped["sum"]["dataPoints"]
    }
    assert len(spans) == 10
    # A turn, and for each step the step and the attempt; one body fewer.
    assert counts["traces"] == 1 + 2 * (STEPS + 1) + STEPS - 10
    assert counts["logs"] > 0


async def test_a_collector_that_is_not_there_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9/canary"}
    async with open_house(TelemetryConfig(interval_ms=100), variables) as (house, fiber):
        await fiber.ready()
        await walked(house)
        await fiber.dispose()
    told = [one.getMessage() for one in caplog.records if "could not be sent" in one.getMessage()]
    assert told == [
        "traces could not be sent to the collector: it cannot be reached (ConnectError)"
    ]
    assert "canary" not in caplog.text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (TelemetryConfig(endpoint="ftp://h"), "telemetry.endpoint"),
        (TelemetryConfig(endpoint="http://h:x"), "telemetry.endpoint"),
        (TelemetryConfig(endpoint="http://u:canary@h"), "without a password"),
        (TelemetryConfig(redact=("(",)), "telemetry.redact"),
        (TelemetryConfig(headers={"X": "é"}), "telemetry.headers"),
        (TelemetryConfig(headers={"X Y": "z"}), "telemetry.headers"),
        (TelemetryConfig(header_env={"é": "K"}), "telemetry.headerEnv"),
    ],
)
async def test_settings_that_mean_nothing_are_refused(config: TelemetryConfig, words: str) -> None:
    async with open_house(config) as (_house, fiber):
        with pytest.raises(PluginError) as caught:
            await fiber.ready()
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)


async def test_what_is_switched_off_is_not_sent() -> None:
    async with open_http_stub(lambda _asked: HttpAnswer()) as collector:
        base = TelemetryConfig(endpoint=collector.origin, shutdown_ms=5_000, interval_ms=3_600_000)
        for config in (
            evolve(base, traces=False, logs=False, metrics=False),
            evolve(base, traces=False, logs=False),
        ):
            async with open_house(config) as (house, fiber):
                await fiber.ready()
                await walked(house)
                await fiber.dispose()
        assert [one.target for one in collector.asked] == ["/v1/metrics"]


class Answers(httpx.AsyncBaseTransport):
    """A transport that answers with these statuses, and keeps what it was sent."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.bodies: list[bytes] = []

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        self.bodies.append(request.read())
        return httpx.Response(self.statuses.pop(0), stream=httpx.ByteStream(b""))


@pytest.mark.parametrize(
    ("statuses", "sent", "dropped"),
    [
        ((200,), 1, 0),
        ((503, 429, 200), 3, 0),
        ((503,) * 5, 5, 1),
        ((400,), 1, 1),
        ((307,), 1, 1),
    ],
)
@pytest.mark.holds("TE4")
async def test_a_batch_is_tried_again_when_that_may_help(
    autojump_clock: MockClock, statuses: tuple[int, ...], sent: int, dropped: int
) -> None:
    del autojump_clock
    environ = ProcessEnviron({})
    credentials = EnvironCredentials(environ)
    redaction = Redaction((), environ, credentials)
    transport = Answers(*statuses)
    collector = Collector(
        url=httpx.URL("http://h"), headers={}, header_env={}, credentials=credentials,
        transport=transport, seconds=5,
    )  # fmt: skip
    exporter = Exporter(
        collector, Encoder({}, "1", redaction, content=False), None, redaction,
        clock=SystemClock(), log=logging.getLogger("test"), interval=1, queue=8,
    )  # fmt: skip
    exporter.add_span(Span("one", place_of("s", 0, 1), 5))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exporter.run)
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert (len(transport.bodies), exporter.dropped) == (sent, dropped)
    assert len(set(transport.bodies)) == 1


def test_series_are_bounded() -> None:
    measures = Measures(0)
    for number in range(1_500):
        measures.add("gen_ai.execute_tool.duration", 0.02, {"gen_ai.tool.name": f"t{number}"})
    measures.add("dsh.llm.retries", 1, {"error.type": None})
    ((_, durations), (_, retries)) = measures.snapshot()
    assert len(durations) == 1_001
    assert durations[-1].attributes == {"otel.metric.overflow": True}
    assert durations[-1].count == 500
    # A bound is the largest value that its bucket takes.
    assert durations[0].buckets[:3] == [0, 1, 0]
    assert retries[0].attributes == {}


@pytest.mark.holds("TE3")
def test_a_key_at_the_edge_of_a_long_text_leaves_no_piece() -> None:
    key = "sk-" + "k" * 50
    environ = ProcessEnviron({"A_TOKEN": key, "B_TOKEN": "short"})
    redaction = Redaction((), environ, EnvironCredentials(environ))
    redaction.renew()
    text = redaction("x" * (TEXT_MAX - 20) + key + "y" * 500 + "short")
    assert "sk-" not in text
    assert len(text) < TEXT_MAX + 50
    assert redaction("short") == "short"


@pytest.mark.holds("TE3")
@pytest.mark.parametrize(
    "key", ["first line\nsecond line", 'quo"ted and \\ back', "caf\udce9-canary"]
)
def test_a_key_is_found_in_json_and_in_json_within_it(key: str) -> None:
    environ = ProcessEnviron({"A_TOKEN": key})
    redaction = Redaction((), environ, EnvironCredentials(environ))
    redaction.renew()
    once = json.dumps({"said": key}, ensure_ascii=False)
    assert redaction(f"<{key}>") == "<[redacted]>"
    assert redaction(once) == '{"said": "[redacted]"}'
    assert "[redacted]" in redaction(json.dumps({"body": once}, ensure_ascii=False))


@pytest.mark.holds("TE2")
def test_ids_follow_from_session_and_turn() -> None:
    first = place_of("s", 1, 1)
    assert first == place_of("s", 1, 1)
    assert place_of("s", 1, 1, 2, "attempt", 1).trace == first.trace
    others = [place_of("s", 1, 2), place_of("s", 2, 1), place_of("t", 1, 1)]
    assert len({first.trace, *(one.trace for one in others)}) == 4
    assert first.span != place_of("s", 1, 1, 1).span
