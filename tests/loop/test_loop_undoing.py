"""What is left, and who is told, when the end of an agent or of its making goes wrong."""

from __future__ import annotations

from typing import cast

import pytest

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.errors import AgentClosed
from dsh.kernel import Context, plugin
from dsh.testing import MemoryStore, open_test_house, says


@pytest.mark.holds("A12", "A17")
@pytest.mark.parametrize("how", ["handle", "owner", "loop"])
async def test_what_fails_as_a_sub_agent_ends_is_told_to_whoever_ends_its_parent(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    async with open_test_house(store=store) as house:

        @plugin(name="owner")
        async def owner(ctx: Context) -> None:
            owners.append(ctx)

        owners: list[Context] = []
        fiber = house.kernel.mount(owner)
        await fiber.ready()
        parent = await house.agent("parent", owner=owners[0])
        child = await house.agent("child", parent=parent.agent)
        for handle in (parent, child):
            handle.agent.inject(user_message("unwritten"))
        store.failing = OSError("disk full")
        told: list[str] = []
        if how == "handle":
            with pytest.raises(ExceptionGroup, match="closing agent 'parent' failed") as caught:
                await parent.aclose()
            told += map(str, caught.value.exceptions)
        else:
            await (fiber if how == "owner" else house.loop).dispose()
            (record,) = [r for r in caplog.records if r.name != "dsh.session"]
            assert record.exc_info is not None
            group = record.exc_info[1]
            assert isinstance(group, ExceptionGroup)
            several = cast("ExceptionGroup[Exception]", group)
            told += map(str, several.exceptions)
        assert len(told) == 2
        assert all("disk full" in text for text in told)
        store.failing = None
    assert house.agents.live() == ()


@pytest.mark.holds("A4")
async def test_a_creation_that_is_vetoed_after_something_was_logged_leaves_no_trace() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("hi")], store=store) as house:
        told: list[str] = []
        house.ctx.on(ev.session.DISPOSED)(lambda _: told.append("session"))
        house.ctx.on(ev.agent.DISPOSED)(lambda _: told.append("agent"))
        house.ctx.on(ev.agent.CREATED)(lambda n: n.agent.inject(user_message("early")))

        def veto(_notice: ev.agent.Created) -> None:
            raise LookupError("no key")

        refusing = house.ctx.on(ev.agent.CREATED)(veto)
        with pytest.raises(LookupError, match="no key"):
            await house.agent()
        assert await store.list() == ()
        assert (house.agents.get("s"), house.sessions.get("s")) == (None, None)
        assert sorted(told) == ["agent", "session"]
        await refusing.aclose()
        outcome = await (await house.agent()).agent.ask(user_message("go"))
        assert outcome.text == "hi"


@pytest.mark.holds("A17")
async def test_an_agent_that_is_gone_takes_no_sub_agents() -> None:
    async with open_test_house() as house:
        gone = await house.agent("gone")
        await gone.aclose()
        with pytest.raises(AgentClosed, match="'gone' is closing, or gone, and takes no sub"):
            await house.agent("child", parent=gone.agent)
        assert house.agents.live() == ()


@pytest.mark.holds("A4")
async def test_what_fails_as_a_making_is_undone_is_logged_and_the_cause_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()

    async with open_test_house(store=store) as house:

        @house.ctx.on(ev.agent.CREATED)
        def veto(notice: ev.agent.Created) -> None:
            notice.agent.inject(user_message("unwritten"))
            store.failing = OSError("disk full")
            raise LookupError("no key")

        with pytest.raises(LookupError, match="no key"):
            await house.agent()
        store.failing = None
        lines = [record.getMessage() for record in caplog.records]
        assert any("agent 's' was not made" in line and "disk full" in line for line in lines), (
            lines
        )
        assert (house.agents.get("s"), house.sessions.get("s")) == (None, None)
