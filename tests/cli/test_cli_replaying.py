"""The verdict over a replayed turn whose requests were all the same: its end, and its steps."""

from __future__ import annotations

import pytest

from dsh.catalog import records
from dsh.cli.sessions.replaying import verdict
from dsh.session import RecordedTurn

DONE = records.CompletedTurnEnd()
FAILED = records.ErrorTurnEnd(error=records.LlmFailure(message="no", code="SERVER"))


@pytest.mark.parametrize(
    ("end", "steps", "text"),
    [
        (DONE, 2, "the same, 0 requests"),
        (DONE, 1, "differs: 1 steps now, 2 were recorded"),
        (records.MaxTokensTurnEnd(), 2, "now, recorded was: "),
        (FAILED, 2, "now, recorded was: "),
    ],
)
def test_what_did_not_end_as_recorded_differs(
    end: records.TurnEndReason, steps: int, text: str
) -> None:
    turn = RecordedTurn(number=1, start=0, steps={1: (), 2: ()}, messages=(), end=DONE)
    told = verdict(turn, end, steps)
    assert text in told.text
    assert told.differs == (text != "the same, 0 requests")
