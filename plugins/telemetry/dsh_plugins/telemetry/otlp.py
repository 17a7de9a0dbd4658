"""OTLP as JSON: what a collector takes under `/v1/traces`, `/v1/metrics` and `/v1/logs`.

What comes in: spans, series and log records. What goes out: one request body each. Ids are in hex
and 64-bit numbers are texts, as the protocol's JSON wants it. Every text passes the redaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

import orjson

from dsh.wire import encode_payload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dsh_plugins.telemetry.measures import Instrument, Measures, Series
    from dsh_plugins.telemetry.spans import LogRecord, Span, Value

__all__ = ["Encoder"]

Json: TypeAlias = "dict[str, object]"

STATUS_ERROR: Final = 2
CUMULATIVE: Final = 2
SEVERITIES: Final = {9: "INFO", 13: "WARN", 17: "ERROR"}
SCOPE: Final = "dsh.telemetry"


@final
class Encoder:
    """Writes bodies for one resource. `content`: whether words of failures are written."""

    def __init__(
        self,
        resource: Mapping[str, str],
        version: str,
        clean: Callable[[str], str],
        *,
        content: bool,
    ) -> None:
        self._clean: Final = clean
        self._content: Final = content
        self._version: Final = version
        self._resource: Final = resource

    def traces(self, spans: Sequence[Span]) -> bytes:
        """The body for `/v1/traces`."""
        written: Json = {"spans": [self._span(span) for span in spans]}
        return self._body("resourceSpans", "scopeSpans", written)

    def logs(self, records: Sequence[LogRecord]) -> bytes:
        """The body for `/v1/logs`."""
        written: Json = {"logRecords": [self._log(record) for record in records]}
        return self._body("resourceLogs", "scopeLogs", written)

    def metrics(self, measures: Measures, now: int) -> bytes:
        """The body for `/v1/metrics`. `now` in epoch ms."""
        times: Json = {"startTimeUnixNano": _nanos(measures.start), "timeUnixNano": _nanos(now)}
        written = [
            self._metric(instrument, series, times) for instrument, series in measures.snapshot()
        ]
        return self._body("resourceMetrics", "scopeMetrics", {"metrics": written})

    def _body(self, outer: str, inner: str, items: Json) -> bytes:
        scope = {"name": SCOPE, "version": self._version}
        resource = {"attributes": self._attributes(self._resource)}
        return orjson.dumps({outer: [{"resource": resource, inner: [{"scope": scope, **items}]}]})

    def _span(self, span: Span) -> Json:
        made: Json = {
            "traceId": span.place.trace.hex(),
            "spanId": span.place.span.hex(),
            "name": self._clean(span.name),
            "kind": span.kind,
            "startTimeUnixNano": _nanos(span.start),
            "endTimeUnixNano": _nanos(span.start if span.end is None else span.end),
            "attributes": self._attributes(span.attributes),
        }
        if span.parent is not None:
            made["parentSpanId"] = span.parent.hex()
        if span.marks:
            made["events"] = [
                {
                    "name": self._clean(mark.name),
                    "timeUnixNano": _nanos(mark.time),
                    "attributes": self._attributes(mark.attributes),
                }
                for mark in span.marks
            ]
        if span.links:
            made["links"] = [
                {"traceId": place.trace.hex(), "spanId": place.span.hex()} for place in span.links
            ]
        if span.failed:
            words = {"message": self._clean(span.words)} if self._content and span.words else {}
            made["status"] = {"code": STATUS_ERROR, **words}
        return made

    def _log(self, record: LogRecord) -> Json:
        made: Json = {
            "timeUnixNano": _nanos(record.time),
            "observedTimeUnixNano": _nanos(record.time),
            "severityNumber": record.severity,
            "severityText": SEVERITIES[record.severity],
            "eventName": record.name,
            "attributes": self._attributes(record.attributes),
        }
        if record.body is not None:
            body = encode_payload(record.body).decode()
            made["body"] = {"stringValue": self._clean(body)}
        if record.place is not None:
            made["traceId"] = record.place.trace.hex()
            made["spanId"] = record.place.span.hex()
        return made

    def _metric(self, instrument: Instrument, series: Sequence[Series], times: Json) -> Json:
        head: Json = {
            "name": instrument.name,
            "unit": instrument.unit,
            "description": instrument.about,
        }
        points: list[Json] = []
        for one in series:
            point: Json = {**times, "attributes": self._attributes(one.attributes)}
            if instrument.bounds:
                point |= {
                    "count": str(one.count),
                    "sum": one.total,
                    "min": one.least,
                    "max": one.most,
                    "bucketCounts": [str(count) for count in one.buckets],
                    "explicitBounds": list(instrument.bounds),
                }
            else:
                point["asDouble"] = one.total
            points.append(point)
        shape: Json = {"aggregationTemporality": CUMULATIVE, "dataPoints": points}
        if instrument.bounds:
            return {**head, "histogram": shape}
        return {**head, "sum": {**shape, "isMonotonic": True}}

    def _attributes(self, given: Mapping[str, Value]) -> list[Json]:
        return [{"key": key, "value": self._value(value)} for key, value in given.items()]

    def _value(self, value: Value) -> Json:
        match value:
            case bool():
                return {"boolValue": value}
            case int():
                return {"intValue": str(value)}
            case float():
                return {"doubleValue": value}
            case str():
                return {"stringValue": self._clean(value)}
            case _:
                return {"arrayValue": {"values": [self._value(one) for one in value]}}


def _nanos(milliseconds: int) -> str:
    return str(milliseconds * 1_000_000)
