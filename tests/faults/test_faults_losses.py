"""The judge of the kills: what was told and is not in the log is a loss, and it says which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from attrs import evolve

from dsh import catalog as ev
from dsh.catalog.records import LlmFailure
from dsh.session import derive
from dsh.testing import LogWriting, RecordedRequest
from dsh.testing.logs import header
from dsh.testing.losses import Found, Kills, screen_losses
from dsh.wire import StoredLog, encode_line

if TYPE_CHECKING:
    from collections.abc import Sequence


def writing() -> LogWriting:
    """A turn in the middle of its second step."""
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.user("go")
    log.reply("marking", calls=("c1",))
    log.call("c1")
    log.result("c1")
    log.step_end()
    log.step_start()
    log.chunks("w0. ", "w1. ", "w2. ")
    return log


def stored(log: LogWriting, count: int | None = None) -> StoredLog:
    return StoredLog(header=header(), events=tuple(log.session.events)[:count])


def request(*texts: str) -> RecordedRequest:
    body = orjson.dumps({"messages": [{"role": "user", "content": text} for text in texts]})
    return RecordedRequest(method="POST", path="/", headers={}, body=body, connection=1)


def found(
    log: LogWriting,
    *,
    effects: Sequence[bytes] = (b"c1",),
    shown: bytes = b"w0. w1. w2. \n",
    requests: Sequence[RecordedRequest] | None = None,
) -> Found:
    sent = (request("go"), request("go", "marking", "done"))
    return Found(
        client=[encode_line(event) for event in log.session.events],
        effects=effects,
        shown=shown,
        requests=sent if requests is None else requests,
    )


def told(given: Found, log: StoredLog) -> str:
    return "; ".join(given.missing_in(log, Kills()))


def test_a_log_that_explains_everything_has_no_losses() -> None:
    log = writing()
    assert len(derive(log.session.events)) == 3
    assert told(found(log), stored(log)) == ""
    again = (request("go"), request("go"), request("go", "marking", "done"))
    assert told(found(log, requests=again), stored(log)) == "", "a request that was tried again"


def test_every_kind_of_loss_is_told() -> None:
    log = writing()
    last = log.session.next_seq - 1
    text = told(found(log), stored(log, last))
    assert f"the client saw seq {last}" in text
    assert "b'w0. w1. w2. ' was shown and is not in the log, whose text ends b'w0. w1. '" in text
    assert "was shown" in told(found(log, shown=b"w0. w1. w2. w3"), stored(log)), "one byte more"
    assert "was shown" in told(found(log, shown=b"w0. w2. "), stored(log)), "another text"
    assert "call b'c9' ran" in told(found(log, effects=[b"c9"]), stored(log))
    assert "call b'c1' ran" in told(found(log), stored(log, 4))
    other = (request("go"), request("go", "something else"))
    assert "request 2 left" in told(found(log, requests=other), stored(log))
    assert found(log).without_log() == [f"no log, but {last + 1 + 1 + 2 + 3} things were told"]


def test_a_changed_event_is_a_loss_too() -> None:
    log, other = writing(), writing()
    changed = evolve(other.session.events[2], time=77)
    events = (*other.session.events[:2], changed, *other.session.events[3:])
    text = told(found(log), StoredLog(header=header(), events=events))
    assert text == "the client saw seq 2, which the log has not like that"


def conversation(log: LogWriting) -> list[str]:
    """What `dsh chat` had shown of it."""
    log.session.append(
        ev.llm.Retry(
            retry_id="r", turn=1, step=2, provider="p", mode="normal", policy_key="{}", retry=1,
            delay_ms=1, failure=LlmFailure(message="503", code="SERVER"),
        )
    )  # fmt: skip
    log.turn_end()
    return [
        "dsh · model · /work · /help",
        "> go",
        "marking",
        "  bash       echo c1 >> /tmp/effects; echo marked 1.          1 line        0.0 s",
        "             marked 1.",
        'SERVER (503), try 2 of 6 in 0.4 s [llm-retry]: "503"',
        "w0. w1. w2.",
        "-- turn 1 done · 2 steps · 0.5 s --",
        "> go on w9, I type",
    ]


def test_a_screen_that_the_log_explains_has_no_losses() -> None:
    log = writing()
    screen = conversation(log)
    assert screen_losses(screen, log.session.events) == []
    again = [*screen[:-1], "w0. w1.", screen[-1]]
    assert screen_losses(again, log.session.events) == [], "killed in the middle of a redraw"
    running = ["  bash       echo c1 >> /tmp/effects; echo marked 1.", "             marked 1."]
    assert screen_losses(running, log.session.events[:8]) == [], (
        "what a command writes is no result"
    )


def test_everything_on_a_screen_that_is_not_in_the_log_is_a_loss() -> None:
    log = writing()
    screen = conversation(log)
    assert screen_losses(["> go on", *screen], log.session.events) == [
        "prompt 'go on' was shown and is not in the log"
    ]
    assert screen_losses(["w2. w3."], log.session.events) == [
        "word 'w3.' was shown and is not in the log"
    ]
    lost = [loss.removesuffix(" was shown and is not in the log")
            for loss in screen_losses(screen, ())]  # fmt: skip
    assert lost == [
        "prompt 'go'", "call c1", "the end of call c1", "try 2", "the end of turn 1",
        "word 'w0.'", "word 'w1.'", "word 'w2.'",
    ]  # fmt: skip
