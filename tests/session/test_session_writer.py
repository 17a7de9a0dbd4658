"""The write path: rows within 20 ms, syncs at barriers, failures kept for a barrier."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dsh.errors import InvariantError, SessionClosed, StorageFailed
from dsh.testing import LogWriting, MemoryStore
from dsh.testing.logs import header
from dsh.wire import StoredEvent, encode_payload

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from dsh.catalog import records
    from dsh.session import LogSink


class Sink:
    """A store's handle that notes what it is asked, and fails or waits when told."""

    def __init__(self, session_id: str = "s") -> None:
        self.header: records.SessionHeader = header(session_id)
        self.rows: list[StoredEvent] = []
        self.batches: list[tuple[float, int]] = []
        self.syncs: list[tuple[float, int]] = []
        self.encoded: list[bytes | None] = []
        self.failing: Exception | None = None
        self.sync_failing: Exception | None = None
        self.slow = 0.0
        self.closed = 0

    @property
    def next_seq(self) -> int:
        return len(self.rows)

    async def append(
        self, events: Sequence[StoredEvent], *, encoded: Sequence[bytes | None] | None = None
    ) -> None:
        if self.failing is not None:
            raise self.failing
        assert events[0].seq == len(self.rows)
        self.rows += events
        self.encoded += encoded or ()
        self.batches.append((trio.current_time(), len(events)))
        if self.slow:
            await trio.sleep(self.slow)

    async def flush(self) -> None:
        covered = len(self.rows)
        await trio.sleep(self.slow)
        if self.sync_failing is not None:
            raise self.sync_failing
        self.syncs.append((trio.current_time(), covered))

    async def aclose(self) -> None:
        self.closed += 1


@asynccontextmanager
async def running(log: LogWriting, sink: Sink) -> AsyncGenerator[trio.Nursery, None]:
    async with trio.open_nursery() as nursery:
        await log.session.writer.drain_into(sink)
        log.session.writer.attach(sink)
        nursery.start_soon(log.session.writer.run)
        await wait_all_tasks_blocked()
        yield nursery
        nursery.cancel_scope.cancel()


async def test_what_gathers_before_a_store_is_there_is_drained_without_a_rest(
    autojump_clock: MockClock,
) -> None:
    log, sink = LogWriting(), Sink()
    log.turn_start()
    log.step_start()
    assert log.session.writer.pending == 2
    await log.session.writer.drain_into(sink)
    assert log.session.writer.pending == 0
    log.session.writer.attach(sink)
    assert [event.seq for event in sink.rows] == [0, 1]


async def test_the_encoded_payload_is_reused(autojump_clock: MockClock) -> None:
    log, sink = LogWriting(), Sink()
    log.turn_start()
    await log.session.writer.drain_into(sink)
    payload = log.session.events[0].data
    assert sink.encoded == [encode_payload(payload)]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_store_that_has_the_log_gets_only_the_rest(autojump_clock: MockClock) -> None:
    log, sink = LogWriting(), Sink()
    log.turn_start()
    log.step_start()
    sink.rows = list(log.session.events)
    log.user()
    await log.session.writer.drain_into(sink)
    assert sink.batches[0][1] == 1
    assert [event.seq for event in sink.rows] == [0, 1, 2]


async def test_a_handle_of_another_session_is_refused(autojump_clock: MockClock) -> None:
    log = LogWriting()
    with pytest.raises(InvariantError, match="other"):
        await log.session.writer.drain_into(Sink("other"))


async def test_rows_are_written_within_20_ms_and_together(autojump_clock: MockClock) -> None:
    log, sink = LogWriting(), Sink()
    async with running(log, sink):
        appended = trio.current_time()
        for _ in range(6):
            log.chunks("x")
            await trio.sleep(0.001)
        await trio.sleep(0.1)
        (first, count), *_ = sink.batches
        assert count >= 5
        assert first - appended <= 0.020
        assert log.session.writer.pending == 0
        log.turn_start()
        appended = trio.current_time()
        await trio.sleep(0.1)
        assert sink.batches[-1][0] - appended <= 0.020


async def test_while_rows_are_written_a_sync_follows_within_200_ms(
    autojump_clock: MockClock,
) -> None:
    log, sink = LogWriting(), Sink()
    async with running(log, sink):
        start = trio.current_time()
        for _ in range(100):
            log.chunks("x")
            await trio.sleep(0.01)
        await trio.sleep(0.3)
        assert 4 <= len(sink.syncs) <= 7
        assert sink.syncs[-1][1] == 100
        assert sink.syncs[0][0] - start <= 0.25
        idle = len(sink.syncs)
        await trio.sleep(60)
        assert len(sink.syncs) == idle


async def test_a_barrier_writes_and_syncs_everything_before_it(autojump_clock: MockClock) -> None:
    log, sink = LogWriting(), Sink()
    async with running(log, sink):
        log.chunks("a", "b")
        await log.session.writer.barrier()
        assert sink.syncs[-1][1] == 2
        count = len(sink.syncs)
        await log.session.writer.barrier()
        assert len(sink.syncs) == count, "nothing new: no second sync"


async def test_a_barrier_during_a_sync_waits_for_one_that_covers_it(
    autojump_clock: MockClock,
) -> None:
    log, sink = LogWriting(), Sink()
    sink.slow = 0.5
    async with running(log, sink) as nursery:
        log.chunks("a")
        nursery.start_soon(log.session.writer.barrier)
        await trio.sleep(0.6)
        log.chunks("b")
        await log.session.writer.barrier()
        assert sink.syncs[-1][1] == 2


async def test_appends_during_a_slow_write_are_neither_lost_nor_doubled(
    autojump_clock: MockClock,
) -> None:
    log, sink = LogWriting(), Sink()
    sink.slow = 0.05
    async with running(log, sink):
        for _ in range(50):
            log.chunks("x")
            await trio.sleep(0.003)
        await log.session.writer.barrier()
        assert [event.seq for event in sink.rows] == list(range(50))


async def test_a_cancelled_barrier_loses_nothing(autojump_clock: MockClock) -> None:
    log, sink = LogWriting(), Sink()
    sink.slow = 1.0
    async with running(log, sink):
        log.chunks("a")
        with trio.move_on_after(0.5) as scope:
            await log.session.writer.barrier()
        assert scope.cancelled_caught
        log.chunks("b")
        sink.slow = 0
        await log.session.writer.barrier()
        assert [event.seq for event in sink.rows] == [0, 1]
        assert sink.syncs[-1][1] == 2


class TestFailures:
    async def test_a_failed_write_stays_until_a_barrier_raised_it(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
    ) -> None:
        log, sink = LogWriting(), Sink()
        async with running(log, sink):
            sink.failing = OSError(28, "No space left on device")
            log.chunks("a", "b")
            await trio.sleep(1)
            assert log.session.writer.pending == 2
            assert caplog.text.count("could not be written") == 1
            with pytest.raises(StorageFailed, match="No space left") as refused:
                await log.session.writer.barrier()
            assert "2 events are kept" in refused.value.message
            sink.failing = None
            log.chunks("c")
            await log.session.writer.barrier()
            assert [event.seq for event in sink.rows] == [0, 1, 2]

    async def test_it_is_raised_even_if_the_disk_came_back(self, autojump_clock: MockClock) -> None:
        log, sink = LogWriting(), Sink()
        async with running(log, sink):
            sink.failing = OSError(5, "Input/output error")
            log.chunks("a")
            await trio.sleep(1)
            sink.failing = None
            with pytest.raises(StorageFailed, match="all is stored now"):
                await log.session.writer.barrier()
            await log.session.writer.barrier()
            assert len(sink.rows) == 1

    async def test_new_events_make_the_writer_try_again(self, autojump_clock: MockClock) -> None:
        log, sink = LogWriting(), Sink()
        async with running(log, sink):
            sink.failing = OSError(5, "Input/output error")
            log.chunks("a")
            await trio.sleep(1)
            sink.failing = None
            log.chunks("b")
            await trio.sleep(0.05)
            assert len(sink.rows) == 2

    async def test_a_failed_background_sync_is_raised_too(self, autojump_clock: MockClock) -> None:
        log, sink = LogWriting(), Sink()
        async with running(log, sink):
            sink.sync_failing = OSError(5, "Input/output error")
            log.chunks("a")
            await trio.sleep(1)
            sink.sync_failing = None
            with pytest.raises(StorageFailed, match="Input/output"):
                await log.session.writer.barrier()
            assert sink.syncs[-1][1] == 1


class TestClosing:
    async def test_closing_stores_the_rest_and_gives_the_handle_back(
        self, autojump_clock: MockClock
    ) -> None:
        log, sink = LogWriting(), Sink()
        writer = log.session.writer
        await writer.drain_into(sink)
        writer.attach(sink)
        log.chunks("a", "b")
        await writer.aclose()
        await writer.aclose()
        assert (len(sink.rows), sink.syncs[-1][1], sink.closed) == (2, 2, 1)
        with pytest.raises(SessionClosed):
            log.chunks("c")

    async def test_a_cancelled_caller_still_closes_completely(
        self, autojump_clock: MockClock
    ) -> None:
        log, sink = LogWriting(), Sink()
        sink.slow = 1.0
        async with running(log, sink):
            log.chunks("a")
            with trio.move_on_after(0.1):
                await log.session.writer.aclose()
            assert (len(sink.rows), sink.closed) == (1, 1)

    async def test_a_failing_store_is_reported_and_closed_all_the_same(
        self, autojump_clock: MockClock
    ) -> None:
        log, sink = LogWriting(), Sink()
        writer = log.session.writer
        await writer.drain_into(sink)
        writer.attach(sink)
        log.chunks("a")
        sink.failing = OSError(28, "No space left on device")
        with pytest.raises(StorageFailed, match="No space"):
            await writer.aclose()
        assert sink.closed == 1

    async def test_closing_without_a_store_is_quiet(self, autojump_clock: MockClock) -> None:
        log = LogWriting()
        log.chunks("a")
        await log.session.writer.aclose()
        assert log.session.closed

    async def test_the_writers_task_ends_with_the_writer(self, autojump_clock: MockClock) -> None:
        log, sink = LogWriting(), Sink()
        async with trio.open_nursery() as nursery:
            log.session.writer.attach(sink)
            nursery.start_soon(log.session.writer.run)
            log.chunks("a")
            await trio.sleep(0.1)
            await log.session.writer.aclose()


async def test_without_a_store_nothing_gathers(autojump_clock: MockClock) -> None:
    log = LogWriting()
    log.chunks("a")
    log.session.writer.without_store()
    log.chunks("b")
    assert log.session.writer.pending == 0
    await log.session.writer.barrier()
    with pytest.raises(InvariantError):
        log.session.writer.attach(Sink())
    log = LogWriting()
    log.session.writer.attach(Sink())
    with pytest.raises(InvariantError):
        log.session.writer.without_store()


async def test_the_handle_of_a_store_is_a_sink(autojump_clock: MockClock) -> None:
    sink: LogSink = await MemoryStore().create(header("x"))
    assert sink.next_seq == 0
