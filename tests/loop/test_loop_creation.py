"""Creation: one transaction, rolled back whole, with nothing visible before its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import CreateAgent, user_message
from dsh.catalog import records
from dsh.errors import (
    AgentError,
    InvalidAppend,
    SessionExists,
)
from dsh.testing import (
    MemoryStore,
    open_test_house,
    says,
)

if TYPE_CHECKING:
    from dsh.agent import AgentHandle, Commit
    from dsh.hooks import live
    from dsh.kernel import Context


@pytest.mark.holds("A1", "A2", "SL08", "SL09", "IN15", "RS03", "RS08")
async def test_an_agent_appears_whole_and_in_order() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        told = house.lifecycle()
        order: list[str] = []

        async def setup(ctx: Context, agent: live.Agent) -> Commit:
            house.prompt.section(ctx, "persona", "Composed.")
            await trio.lowlevel.checkpoint()
            assert house.nothing_is_left()
            assert told == []
            order.append("setup")
            return lambda: order.append("commit")

        def created(notice: ev.session.Created) -> None:
            assert house.agents.get("s") is not None
            order.append("created")

        house.ctx.on(ev.session.CREATED)(created)
        handle = await house.agent(setup=setup)
        assert order == ["setup", "commit", "created"]
        assert told == ["session/created", "agent/created", "start startup"]
        assert handle.agent.id == "s"
        assert house.agents.get("s") is handle.agent
        await handle.agent.ask(user_message("go"))
        assert house.model.requests[0].messages[0].role == "system"
        await handle.aclose()
        assert told[3:] == ["agent/disposed", "session/disposed"]
        assert house.nothing_is_left()


@pytest.mark.holds("A3", "NEW-2")
async def test_a_wake_during_setup_runs_only_after_publication() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        told = house.lifecycle()

        async def setup(ctx: Context, agent: live.Agent) -> None:
            agent.followup(user_message("early", id="early"))
            await wait_all_tasks_blocked()
            assert agent.turn == 0
            assert told == []

        handle = await house.agent(setup=setup)
        await handle.agent.when_idle()
        assert handle.agent.turn == 1
        assert "start startup" in told


@pytest.mark.holds("A3", "NEW-2", "A4")
async def test_a_wake_of_a_failed_setup_never_runs() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        agents: list[live.Agent] = []

        async def setup(ctx: Context, agent: live.Agent) -> None:
            agents.append(agent)
            agent.followup(user_message("early"))
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await house.agent(setup=setup)
        await wait_all_tasks_blocked()
        assert house.model.requests == []
        assert agents[0].turn == 0


class BoomError(Exception):
    pass


@pytest.mark.holds("A4", "SL03", "SL25", "SL27", "SL28", "RS02", "RS11", "RS12", "SL17", "M18")
@pytest.mark.parametrize("where", ["setup", "commit", "session/created", "agent/created"])
async def test_whatever_fails_before_the_handle_rolls_everything_back(where: str) -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a")], store=store) as house:
        told = house.lifecycle()
        boom = BoomError(where)
        unwound: list[str] = []
        armed = [True]

        async def setup(ctx: Context, agent: live.Agent) -> Commit:
            ctx.effect(lambda: lambda: unwound.append("scope"), label="marker")
            agent.inject(user_message("logged in setup"))
            if where == "setup":
                raise boom

            def commit() -> None:
                if where == "commit":
                    raise boom

            return commit

        def fail(notice: object) -> None:
            if armed:
                raise boom

        if where == "session/created":
            house.ctx.on(ev.session.CREATED)(fail)
        if where == "agent/created":
            house.ctx.on(ev.agent.CREATED)(fail)
        with pytest.raises(BoomError) as caught:
            await house.agent(setup=setup)
        assert caught.value is boom
        assert unwound == ["scope"]
        assert house.nothing_is_left()
        assert await store.list() == ()
        paired = {
            "setup": [],
            "commit": [],
            "session/created": ["session/created", "session/disposed"],
            "agent/created": [
                "session/created",
                "agent/created",
                "agent/disposed",
                "session/disposed",
            ],
        }
        assert told == paired[where]
        armed.clear()
        handle = await house.agent()
        assert house.agents.get("s") is handle.agent


@pytest.mark.holds("A7", "IN17", "CR10", "M29")
async def test_failing_observers_of_start_and_status_change_nothing() -> None:
    async with open_test_house(replies=[says("a")]) as house:

        def fail(notice: object) -> None:
            raise RuntimeError("observer")

        house.ctx.on(ev.agent.SESSION_START)(fail)
        house.ctx.on(ev.agent.STATUS)(fail)
        house.ctx.on(ev.agent.DISPOSED)(fail)
        house.ctx.on(ev.session.DISPOSED)(fail)
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        await handle.aclose()
        assert house.nothing_is_left()


@pytest.mark.holds("IN16")
async def test_a_start_listeners_injection_is_in_the_first_request() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        house.ctx.on(ev.agent.SESSION_START)(lambda n: n.agent.inject(user_message("injected")))
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        content = [m.content for m in house.model.requests[0].messages]
        assert content[0] == (records.TextBlock(text="injected"),)


@pytest.mark.holds("A14", "RS04")
async def test_a_live_id_is_refused_and_racing_creations_have_one_winner() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        with pytest.raises(SessionExists, match="'s' is live"):
            await house.agent()
        with pytest.raises(SessionExists):
            await house.agents.resume("s")
        assert house.agents.live() == (handle.agent,)
        results: list[object] = []

        async def race() -> None:
            try:
                results.append(await house.agent("raced"))
            except SessionExists as error:
                results.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(race)
        assert sum(isinstance(result, SessionExists) for result in results) == 2
        assert house.agents.get("raced") is not None
        assert len(house.sessions.live()) == 2


@pytest.mark.holds("A18", "LP01")
@pytest.mark.parametrize("cap", [0, -1, True, 1.5, 2**53])
async def test_a_bad_option_is_refused_before_anything_exists(cap: int) -> None:
    async with open_test_house() as house:
        told = house.lifecycle()
        with pytest.raises(AgentError, match="maxTokens"):
            await house.agent(options=records.AgentOptions(max_tokens=cap))
        assert house.nothing_is_left()
        assert told == []


@pytest.mark.holds("A19", "SL26")
async def test_a_bad_seed_or_cwd_publishes_nothing() -> None:
    async with open_test_house(replies=[says("a")], store=MemoryStore()) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        events = tuple(house.session(handle).events)
        with pytest.raises(InvalidAppend):
            await house.agents.make(CreateAgent(session_id="gap", seed=events[1:]))
        with pytest.raises(InvalidAppend, match="not absolute"):
            await house.agent("relative", cwd="work")
        assert house.nothing_is_left("gap")
        assert house.nothing_is_left("relative")
        assert [summary.id for summary in await house.store.list()] == ["s"]  # type: ignore[union-attr]


@pytest.mark.holds("A8", "SL01", "RS20", "RS23", "SL11")
async def test_a_caller_that_is_cancelled_before_the_handle_gets_nothing() -> None:
    store = MemoryStore()
    async with open_test_house(store=store) as house:
        with trio.CancelScope() as scope:
            scope.cancel()
            await house.agent()
        assert scope.cancelled_caught
        assert house.nothing_is_left()

        async def hang(ctx: Context, agent: live.Agent) -> None:
            agent.inject(user_message("logged"))
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: house.agent(setup=hang))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert house.nothing_is_left()
        assert await store.list() == ()
        handles: list[AgentHandle] = []
        with trio.CancelScope() as scope:
            handles.append(await house.agent())
        scope.cancel()
        await wait_all_tasks_blocked()
        assert house.agents.get("s") is handles[0].agent
