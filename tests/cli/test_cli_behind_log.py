"""The screen is never ahead of the log, however late the log is."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dsh.cli.screen.behind_log import BehindLog
from dsh.errors import StorageFailed
from dsh.testing import LogWriting, MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dsh.session import LogSink

pytestmark = pytest.mark.holds("CL45")


class Viewed:
    """A log that is written to a store, and a screen that shows its words."""

    def __init__(self, log: LogWriting, store: MemoryStore) -> None:
        self.log = log
        self.store = store
        self.screen: list[str] = []
        self.behind = BehindLog()
        self.behind.follow(log.session.writer)

    def word(self, text: str) -> None:
        """Append a word and show it, in one go as a listener does."""
        (seq,) = self.log.chunks(text)
        self.behind.act(seq, partial(self.screen.append, text))

    async def logged(self) -> int:
        return len((await self.store.read("s")).events)


@asynccontextmanager
async def viewed() -> AsyncGenerator[Viewed, None]:
    log, store = LogWriting(), MemoryStore()
    log.turn_start()
    log.step_start()
    sink: LogSink = await store.create(log.session.header)
    async with trio.open_nursery() as nursery:
        await log.session.writer.drain_into(sink)
        log.session.writer.attach(sink)
        nursery.start_soon(log.session.writer.run)
        await wait_all_tasks_blocked()
        yield Viewed(log, store)
        nursery.cancel_scope.cancel()


async def test_nothing_is_shown_before_the_store_has_it(autojump_clock: MockClock) -> None:
    async with viewed() as view:
        for number in range(20):
            view.word(f"w{number}")
            assert len(view.screen) <= await view.logged() - 2
            await trio.sleep(0.003)
        await trio.sleep(0.02)
        assert view.screen == [f"w{number}" for number in range(20)]


async def test_a_held_up_process_has_shown_nothing_that_a_kill_would_lose(
    autojump_clock: MockClock,
) -> None:
    """No task runs after the append, for as long as it may be: the screen waits with the log."""
    async with viewed() as view:
        view.word("a")
        view.word("b")
        assert view.screen == []
        assert view.log.session.writer.pending == 2
        await trio.sleep(0.02)
        assert view.screen == ["a", "b"]


async def test_a_barrier_shows_what_it_wrote(autojump_clock: MockClock) -> None:
    async with viewed() as view:
        view.word("a")
        await view.log.session.writer.barrier()
        assert view.screen == ["a"]


async def test_what_belongs_to_no_event_comes_after_what_waits(autojump_clock: MockClock) -> None:
    async with viewed() as view:
        view.behind.after(partial(view.screen.append, "-- at once --"))
        view.word("a")
        view.behind.after(partial(view.screen.append, "-- after a --"))
        view.word("b")
        assert view.screen == ["-- at once --"]
        await trio.sleep(0.02)
        assert view.screen == ["-- at once --", "a", "-- after a --", "b"]


async def test_a_store_that_refuses_hides_nothing(autojump_clock: MockClock) -> None:
    async with viewed() as view:
        view.store.failing = OSError(28, "No space left on device")
        view.word("a")
        await trio.sleep(0.02)
        assert view.screen == ["a"], "shown, and the next barrier ends the turn"
        view.word("b")
        assert view.screen == ["a", "b"]
        with pytest.raises(StorageFailed):
            await view.log.session.writer.barrier()
        view.store.failing = None
        view.word("c")
        await view.log.session.writer.barrier()
        view.word("d")
        assert view.screen == ["a", "b", "c"], "it takes rows again, so the screen waits again"


async def test_a_view_that_fails_harms_neither_the_write_nor_what_comes_after(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError(5, "a broken screen")

    async with viewed() as view:
        (seq,) = view.log.chunks("a")
        view.behind.act(seq, fail)
        view.word("b")
        await view.log.session.writer.barrier()
        view.word("c")
        await view.log.session.writer.barrier()
        assert view.screen == ["b", "c"]
        assert "a broken screen" in caplog.text
        assert await view.logged() == 5


def test_without_a_store_and_without_a_session_everything_is_shown_at_once() -> None:
    log, screen = LogWriting(), list[str]()
    behind = BehindLog()
    behind.act(7, partial(screen.append, "before"))
    log.session.writer.without_store()
    behind.follow(log.session.writer)
    (seq,) = log.chunks("a")
    behind.act(seq, partial(screen.append, "a"))
    assert screen == ["before", "a"]


async def test_release_shows_what_is_left(autojump_clock: MockClock) -> None:
    async with viewed() as view:
        view.word("a")
        view.behind.release()
        assert view.screen == ["a"]


async def test_a_question_waits_until_what_it_is_about_is_shown(autojump_clock: MockClock) -> None:
    async with viewed() as view:
        await view.behind.shown()
        view.word("a")
        before = trio.current_time()
        await view.behind.shown()
        assert view.screen == ["a"]
        assert 0 < trio.current_time() - before <= 0.02
