"""`dsh run` tells a collector: every body is read with the official messages of the protocol."""

from __future__ import annotations

import json
from base64 import b64encode
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from dsh.testing import HttpAnswer, open_http_stub

if TYPE_CHECKING:
    from dsh.hooks import JsonValue
    from dsh.testing.command_line import CommandLine

OFFICIAL = {
    "/v1/traces": ("trace.v1.trace_service_pb2", "ExportTraceServiceRequest"),
    "/v1/metrics": ("metrics.v1.metrics_service_pb2", "ExportMetricsServiceRequest"),
    "/v1/logs": ("logs.v1.logs_service_pb2", "ExportLogsServiceRequest"),
}


def in_base64(value: JsonValue) -> JsonValue:
    """Ids as protobuf's JSON has them; OTLP's JSON has them in hex."""
    if isinstance(value, dict):
        return {
            key: b64encode(bytes.fromhex(inner)).decode()
            if key in ("traceId", "spanId", "parentSpanId") and isinstance(inner, str)
            else in_base64(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [in_base64(inner) for inner in value]
    return value


def telemetry(cli: CommandLine, endpoint: str) -> str:
    (cli.workspace / "my.yml").write_text(
        f"- {{name: telemetry, config: {{endpoint: '{endpoint}', shutdownMs: 5000}}}}\n",
        encoding="utf-8",
    )
    return "my.yml"


@pytest.mark.skipif(
    find_spec("google") is None or find_spec("opentelemetry") is None,
    reason="opentelemetry-proto is not installed; nox -s stories installs it",
)
async def test_a_run_as_the_official_messages_read_it(cli: CommandLine) -> None:
    async with open_http_stub(lambda _asked: HttpAnswer(body=b"{}")) as collector:
        config = telemetry(cli, collector.origin)
        ran = await cli.run("run", "--profile", "demo", "--config", config, "Show me")
    assert ran.code == 0, ran
    assert "telemetry" not in ran.err
    assert {one.target for one in collector.asked} == set(OFFICIAL)
    parse = import_module("google.protobuf.json_format").ParseDict
    names: list[str] = []
    for asked in collector.asked:
        module, message = OFFICIAL[asked.target]
        official = getattr(import_module(f"opentelemetry.proto.collector.{module}"), message)
        read = parse(in_base64(json.loads(asked.body)), official())
        for resource in getattr(read, "resource_spans", ()):
            spans = [span for scope in resource.scope_spans for span in scope.spans]
            assert all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in spans)
            names += [span.name for span in spans]
    assert names.count("invoke_agent dsh") == 1
    assert "execute_tool write_file" in names
    assert "chat scripted" in names


@pytest.mark.holds("TE4")
async def test_a_collector_that_hangs_does_not_change_a_run(cli: CommandLine) -> None:
    async with open_http_stub(lambda _asked: HttpAnswer(hangs=True)) as collector:
        config = telemetry(cli, collector.origin)
        silent = await cli.run("run", "--profile", "demo", "Show me")
        ran = await cli.run(
            "run", "--profile", "demo", "--config", config,
            "--set", "telemetry.shutdownMs=200", "Show me",
        )  # fmt: skip
    assert (ran.code, ran.out) == (silent.code, silent.out) == (0, silent.out)
    assert "were not sent: no time was left" in ran.err
    assert len(collector.asked) == 1
