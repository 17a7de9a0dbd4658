"""What a new session is made of is read once, and who observes it can veto nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked
from typing_extensions import override

from dsh import catalog as ev
from dsh.kernel import open_kernel
from dsh.session import SESSIONS, sessions_plugin
from dsh.testing import LogWriting, open_test_house
from dsh.testing.logs import header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh.wire import StoredEvent


class Fickle(list["StoredEvent"]):
    """A list that gives its events once, and nothing after that."""

    @override
    def __iter__(self) -> Iterator[StoredEvent]:
        while self:
            yield self.pop(0)


@pytest.mark.holds("SS24")
async def test_a_seed_is_read_once() -> None:
    log = LogWriting()
    log.whole_turn("hi", "hello")
    events = tuple(log.session.events)
    async with open_kernel() as kernel:
        await kernel.mount(sessions_plugin).ready()
        given = Fickle(events)
        session = kernel.root.require(SESSIONS).prepare(header(), seed=given)
    assert len(given) == 0
    assert tuple(session.events[:-1]) == events
    assert session.events[-1].type == ev.session.END_SEED.name


@pytest.mark.holds("SS69")
async def test_an_observer_of_created_that_fails_is_reported_and_rolls_nothing_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_test_house() as house:

        @house.ctx.observe(ev.session.CREATED)
        async def late(notice: ev.session.Created) -> None:
            raise LookupError(f"no shelf for {notice.session.id}")

        handle = await house.agent()
        await wait_all_tasks_blocked()
        assert house.agents.get("s") is handle.agent
        assert house.sessions.get("s") is handle.agent.session
        assert any("no shelf for s" in record.getMessage() for record in caplog.records)
