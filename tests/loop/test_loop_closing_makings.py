"""A house that closes while an agent is being made: nothing comes of it, and nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.errors import AgentClosed
from dsh.kernel import Context, Plugin, plugin
from dsh.seams.persistence import SessionPersistence
from dsh.session import interrupted_closers
from dsh.testing import MemoryStore, TestHouse, open_test_house, says, stalls
from dsh.testing.house import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trio.testing import MockClock

    from dsh.agent import AgentHandle
    from dsh.catalog import records
    from dsh.hooks import Logged, live
    from dsh.seams.persistence import SessionSummary, StoredLog, WriteHandle


def leaver(trail: list[str]) -> Plugin:
    """A plugin that notes when it leaves."""

    @plugin(name="first")
    async def apply(ctx: Context) -> None:
        ctx.on_unload(lambda: trail.append("first leaves"))

    return apply


async def events_of(store: MemoryStore, session_id: str) -> list[object]:
    return [event.data for event in (await store.read(session_id)).events]


class Slow(SessionPersistence):
    """A store whose doors open when `gate` is set; `deaf`: whatever is cancelled meanwhile."""

    def __init__(self, disk: MemoryStore) -> None:
        self._disk: Final = disk
        self.gate: trio.Event | None = None
        self.deaf = False

    async def _passed(self) -> None:
        if self.gate is not None:
            with trio.CancelScope(shield=self.deaf):
                await self.gate.wait()

    @override
    async def create(self, header: records.SessionHeader) -> WriteHandle:
        await self._passed()
        return await self._disk.create(header)

    @override
    async def open(self, session_id: str, mode: Literal["write"]) -> WriteHandle:
        await self._passed()
        return await self._disk.open(session_id, mode)

    @override
    async def read(self, session_id: str, *, from_seq: int = 0) -> StoredLog:
        return await self._disk.read(session_id, from_seq=from_seq)

    @override
    async def list(self) -> Sequence[SessionSummary]:
        return await self._disk.list()

    @override
    async def remove(self, session_id: str) -> None:
        await self._disk.remove(session_id)


Make = Literal["create", "resume", "fork"]


async def made(
    house: TestHouse, how: Make, setup: Callable[[Context, live.Agent], Awaitable[None]]
) -> AgentHandle:
    """The agent `new`, or `stored`, in one of the three ways."""
    match how:
        case "create":
            return await house.agent("new", setup=setup)
        case "resume":
            return await house.agents.resume("stored", options=OPTIONS, setup=setup)
        case "fork":
            source = house.agents.get("source")
            assert source is not None
            return await house.agents.fork(source, session_id="new", setup=setup)


@pytest.mark.holds("A38", "A10", "RS15")
@pytest.mark.parametrize("how", ["create", "resume", "fork"])
@pytest.mark.parametrize("where", ["store", "store, whatever is cancelled", "setup"])
async def test_a_making_that_the_end_overtakes_leaves_nothing_and_ends_before_any_plugin(
    how: Make, where: str
) -> None:
    trail: list[str] = []
    disk = MemoryStore()
    store = Slow(disk)
    async with open_test_house(replies=[says("hi")] * 2, store=disk) as house:
        for name in ("stored", "source"):
            await (await house.agent(name)).agent.ask(user_message("go"))
    before = await events_of(disk, "stored")
    begun = trio.Event()

    async def setup(_ctx: Context, _agent: live.Agent) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            trail.append(f"{how} ends")

    async with (
        trio.open_nursery() as nursery,
        open_test_house(plugins=[leaver(trail)], store=store) as house,
    ):
        told = list[str]()
        house.ctx.on(ev.agent.CREATED)(lambda notice: told.append(notice.agent.id))
        await house.agents.resume("source", options=OPTIONS)
        if where != "setup":
            store.gate = trio.Event()
            store.deaf = where != "store"

        async def make() -> None:
            with pytest.raises(AgentClosed, match="the agent loop is not active"):
                await made(house, how, setup)
            if where != "setup":
                trail.append(f"{how} ends")

        nursery.start_soon(make)
        await wait_all_tasks_blocked()
        assert begun.is_set() == (where == "setup")
        if store.deaf and store.gate is not None:
            gate = store.gate

            async def arrive() -> None:
                await wait_all_tasks_blocked()
                assert trail == []
                gate.set()

            nursery.start_soon(arrive)
    assert trail == [f"{how} ends", "first leaves"]
    assert told == ["source"]
    for name in ("stored", "source"):
        await (await disk.open(name, "write")).aclose()  # nobody has it open any more
    assert await events_of(disk, "stored") == before
    assert {summary.id for summary in await disk.list()} == {"stored", "source"}
    for name in ("stored", "source"):
        assert not interrupted_closers((await disk.read(name)).events)


@pytest.mark.holds("A38")
async def test_a_making_that_ignores_cancellation_is_named_and_comes_to_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trail: list[str] = []
    release = trio.Event()

    async def setup(_ctx: Context, _agent: live.Agent) -> None:
        with trio.CancelScope(shield=True):
            await release.wait()

    async with (
        trio.open_nursery() as nursery,
        open_test_house(plugins=[leaver(trail)]) as house,
    ):

        async def make() -> None:
            with pytest.raises(AgentClosed):
                await house.agent("late", setup=setup)
            trail.append("refused")

        nursery.start_soon(make)
        await wait_all_tasks_blocked()

        async def let_go() -> None:
            await trio.sleep(60)
            release.set()

        nursery.start_soon(let_go)
    assert trail == ["first leaves", "refused"]
    assert any("in time: 'late';" in record.getMessage() for record in caplog.records)


@pytest.mark.holds("A38")
async def test_no_agent_is_made_while_the_house_closes() -> None:
    refused: list[str] = []
    async with trio.open_nursery() as nursery, open_test_house(replies=[stalls()]) as house:

        async def another() -> None:
            with pytest.raises(AgentClosed, match="the agent loop is not active"):
                await house.agent("another")
            refused.append("another")

        @house.ctx.on(ev.turn.END)
        def ended(event: Logged[ev.turn.End]) -> None:
            nursery.start_soon(another)

        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
    assert refused == ["another"]
