"""Inside a publication nothing appends; what listeners ask for is done when it has finished."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from dsh.errors import ReentrantAppend
from dsh.testing import LogWriting

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import AnyDurable, Logged
    from dsh.session import Session


async def nothing() -> None:
    """A flush that nobody listens to."""


def live(log: LogWriting, listener: Callable[[Logged[AnyDurable]], None]) -> Session:
    """The session of `log`, published to `listener`."""
    log.session.go_live(scope=None, publish=listener, flush=nothing)
    return log.session


def test_listeners_run_after_the_commit_and_before_append_returns() -> None:
    log = LogWriting()
    seen: list[tuple[int, int, bool]] = []
    session = log.session

    def listener(event: Logged[AnyDurable]) -> None:
        assert session.events[event.seq].data is event.data
        seen.append((event.seq, session.next_seq, session.publishing))

    live(log, listener)
    log.turn_start()
    assert seen == [(0, 1, True)]
    assert not session.publishing


@pytest.mark.holds("B16")
def test_an_append_from_a_listener_is_refused_and_the_outer_one_unharmed() -> None:
    log = LogWriting()
    refused: list[ReentrantAppend] = []

    def listener(_event: Logged[AnyDurable]) -> None:
        with pytest.raises(ReentrantAppend) as error:
            log.step_end()
        refused.append(error.value)

    live(log, listener)
    assert log.turn_start() == 0
    assert log.session.next_seq == 1
    assert "steer, followup or inject" in refused[0].message
    assert "step/end" in refused[0].message


@pytest.mark.holds("B16")
def test_deliveries_wait_for_the_end_of_the_publication_in_call_order() -> None:
    log = LogWriting()
    order: list[str] = []

    def listener(event: Logged[AnyDurable]) -> None:
        if event.seq:
            return
        log.session.after_publication(lambda: order.append(f"one at {log.session.next_seq}"))
        log.session.after_publication(lambda: order.append(f"user {log.user()}"))
        log.session.after_publication(lambda: order.append("three"))
        order.append("listener")

    live(log, listener)
    log.turn_start()
    assert order == ["listener", "one at 1", "user 1", "three"]


@pytest.mark.holds("B16")
def test_what_a_delivery_asks_for_comes_after_those_that_wait() -> None:
    log = LogWriting()
    order: list[str] = []

    def listener(event: Logged[AnyDurable]) -> None:
        if event.seq == 0:
            log.session.after_publication(lambda: order.append(f"first {log.user()}"))
            log.session.after_publication(lambda: order.append("second"))
        elif event.seq == 1:
            log.session.after_publication(lambda: order.append("third"))

    live(log, listener)
    log.turn_start()
    assert order == ["first 1", "second", "third"]


@pytest.mark.holds("B16")
def test_a_batch_holds_deliveries_until_its_end() -> None:
    log = LogWriting()
    order: list[str] = []

    def listener(event: Logged[AnyDurable]) -> None:
        order.append(f"saw {event.seq}")
        log.session.after_publication(lambda: order.append(f"delivered {event.seq}"))

    session = live(log, listener)
    with session.batch():
        log.turn_start()
        with session.batch():
            log.step_start()
        log.user()
        assert order == ["saw 0", "saw 1", "saw 2"]
    assert order[3:] == ["delivered 0", "delivered 1", "delivered 2"]


def test_a_batch_that_raises_still_delivers() -> None:
    log = LogWriting()
    done: list[int] = []
    session = live(log, lambda event: session.after_publication(lambda: done.append(event.seq)))

    def stop() -> None:
        with session.batch():
            log.turn_start()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert done == [0]


def test_outside_of_any_publication_a_delivery_runs_at_once() -> None:
    log = LogWriting()
    done: list[int] = []
    log.session.after_publication(lambda: done.append(1))
    assert done == [1]


def test_a_failing_delivery_is_logged_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = LogWriting()
    done: list[int] = []

    def fail() -> None:
        raise RuntimeError("nobody is left to hear this")

    def listener(_event: Logged[AnyDurable]) -> None:
        log.session.after_publication(fail)
        log.session.after_publication(lambda: done.append(1))

    live(log, listener)
    with caplog.at_level(logging.WARNING):
        log.turn_start()
    assert done == [1]
    assert "queued delivery failed" in caplog.text
