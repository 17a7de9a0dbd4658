"""Events of the session's log as log records."""

from __future__ import annotations

import orjson
import pytest

from dsh import catalog as ev
from dsh.testing import LogWriting
from dsh_plugins.telemetry.journal import record_of
from dsh_plugins.telemetry.otlp import Encoder
from dsh_plugins.tool_metrics.catalog import tool_metrics


def written(event: ev.session.Event, *, content: bool) -> dict[str, object]:
    record = record_of(event, None, content=content)
    body = Encoder({}, "1", lambda text: text, content=content).logs([record])
    (made,) = orjson.loads(body)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    return dict(made)


@pytest.mark.holds("TE3")
def test_an_event_of_an_extension_is_a_record_like_any_other() -> None:
    log = LogWriting()
    logged = log.session.append(tool_metrics.Turn(turn=1, tools=()))
    event = ev.session.Event(session=log.session, event=logged)
    assert "body" not in written(event, content=False)
    made = written(event, content=True)
    assert made["eventName"] == "tool-metrics/turn"
    assert made["body"] == {"stringValue": '{"turn":1,"tools":[]}'}
