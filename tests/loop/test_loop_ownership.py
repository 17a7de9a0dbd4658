"""Owners, parents and the loop: who ends an agent, in which order, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.errors import (
    AgentClosed,
    InactiveEffect,
    ServiceMissing,
    SessionClosed,
)
from dsh.kernel import Context, plugin
from dsh.testing import (
    MemoryStore,
    open_test_house,
    says,
    stalls,
)
from dsh.testing.house import OPTIONS

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import live


@pytest.mark.holds("A9", "SL33", "SL34", "SL35", "RS10")
async def test_owner_and_handle_share_one_teardown() -> None:
    async with open_test_house() as house:
        told = house.lifecycle()
        handles: list[AgentHandle] = []
        contexts: list[Context] = []

        @plugin(name="owner")
        async def owner(ctx: Context) -> None:
            contexts.append(ctx)
            handles.append(await house.agent("owned", owner=ctx))
            handles.append(await house.agent("closed", owner=ctx))

        fiber = house.kernel.mount(owner)
        await fiber.ready()
        await handles[1].aclose()
        labels = [effect.label for effect in fiber.activation.effects]
        assert "agent 'owned'" in labels
        assert "agent 'closed'" not in labels
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fiber.dispose)
            nursery.start_soon(handles[0].aclose)
            nursery.start_soon(handles[0].aclose)
        assert house.nothing_is_left("owned")
        assert told.count("agent/disposed") == 2
        await handles[0].aclose()


@pytest.mark.holds("SL12", "RS13", "SL15")
async def test_an_owner_that_unloads_during_setup_gets_no_agent() -> None:
    async with open_test_house() as house:
        told = house.lifecycle()
        outcome: list[object] = []
        late = trio.Event()

        @plugin(name="owner")
        async def owner(ctx: Context) -> None:
            owners.append(ctx)

        owners: list[Context] = []
        fiber = house.kernel.mount(owner)
        await fiber.ready()

        async def setup(ctx: Context, agent: live.Agent) -> None:
            late.set()
            await trio.sleep_forever()

        async def create() -> None:
            try:
                outcome.append(await house.agent(setup=setup, owner=owners[0]))
            except AgentClosed as error:
                outcome.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            await late.wait()
            await fiber.dispose()
        [error] = outcome
        assert isinstance(error, AgentClosed)
        assert "owner 'owner' was unloaded" in str(error)
        assert house.nothing_is_left()
        assert told == []


@pytest.mark.holds("A5", "SL16", "SL22", "SL23", "SL24", "SS54")
@pytest.mark.parametrize("edge", ["session", "agent", "start"])
@pytest.mark.parametrize("who", ["owner", "loop"])
async def test_a_listener_that_begins_a_teardown_turns_the_creation_into_a_rejection(
    edge: str, who: str
) -> None:
    async with open_test_house() as house:
        told = house.lifecycle()

        @plugin(name="owner")
        async def owner(ctx: Context) -> None:
            owners.append(ctx)

        owners: list[Context] = []
        fiber = house.kernel.mount(owner)
        await fiber.ready()
        token = {
            "session": ev.session.CREATED,
            "agent": ev.agent.CREATED,
            "start": ev.agent.SESSION_START,
        }[edge]
        doomed = fiber if who == "owner" else house.loop
        house.ctx.on(token)(lambda notice: doomed.request_dispose())  # type: ignore[arg-type]
        with pytest.raises(AgentClosed):
            await house.agent(owner=owners[0])
        assert house.nothing_is_left()
        assert told.count("session/created") == told.count("session/disposed") == 1
        assert told.count("agent/created") == told.count("agent/disposed")
        assert ("agent/created" in told) == (edge != "session")
        assert ("start startup" in told) == (edge == "start")


@pytest.mark.holds("A6", "GR12")
async def test_a_detach_asked_for_by_a_creation_listener_waits_for_its_siblings() -> None:
    class Renamed:
        """A live agent under another id; only what the registry looks at."""

        def __init__(self, inner: live.Agent) -> None:
            self.id = "copy"
            self.session = self
            self.scope = inner.scope
            self.parent = None

    async with open_test_house() as house:
        seen: list[str] = []
        handle = await house.agent("real")
        entry = house.agents.enter(Renamed(handle.agent))  # type: ignore[arg-type]

        def first(notice: ev.agent.Created) -> None:
            entry.detach()
            seen.append(f"first {house.agents.get('copy') is not None}")

        house.ctx.on(ev.agent.CREATED)(first)
        house.ctx.on(ev.agent.CREATED)(
            lambda notice: seen.append(f"second {house.agents.get('copy') is not None}")
        )
        house.ctx.on(ev.agent.DISPOSED)(lambda n: seen.append(f"disposed {n.agent.id}"))
        entry.announce()
        assert seen == ["first True", "second True", "disposed copy"]
        assert house.agents.get("copy") is None
        entry.detach()
        assert len(seen) == 3


@pytest.mark.holds("A13", "M18")
async def test_a_stale_handle_never_removes_a_successor() -> None:
    async with open_test_house() as house:
        told = house.lifecycle()
        handle = await house.agent()
        await handle.aclose()
        again = await house.agent()
        await handle.aclose()
        assert house.agents.get("s") is again.agent
        assert house.sessions.get("s") is again.agent.session
        assert told.count("agent/disposed") == 1


@pytest.mark.holds("A12", "A15", "SL06", "SL30")
async def test_the_order_of_the_end() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[stalls()], store=store) as house:
        order: list[str] = []
        contexts: list[Context] = []

        async def setup(ctx: Context, agent: live.Agent) -> None:
            contexts.append(ctx)
            ctx.effect(lambda: lambda: order.append(f"scope {closed()}"), label="marker")

        handle = await house.agent(setup=setup)
        session = house.session(handle)

        def closed() -> bool:
            return session.closed

        async def last_words(agent: live.Agent) -> None:
            order.append(f"drain {agent.status} {session.closed}")
            agent.inject(user_message("last words"))

        house.ctx.on_drain(last_words)
        house.ctx.on(ev.turn.END)(lambda e: order.append("turn/end"))
        house.ctx.on(ev.agent.DISPOSED)(
            lambda n: order.append(f"agent {house.sessions.get('s') is not None}")
        )
        house.ctx.on(ev.session.DISPOSED)(lambda n: order.append("session"))
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        await handle.aclose()
        assert order == [
            "turn/end",
            "drain idle False",
            "scope True",
            "agent True",
            "session",
        ]
        stored = await store.read("s")
        assert stored.events[-1].type == ev.agent.INBOX_SPLICED.name
        with pytest.raises(SessionClosed, match="closed"):
            session.append(ev.turn.Start(turn=9))
        with pytest.raises(InactiveEffect):
            contexts[0].on(ev.turn.START)(lambda event: None)


@pytest.mark.holds("A12")
async def test_every_stage_of_the_end_runs_though_one_before_it_failed() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a")], store=store) as house:
        told = house.lifecycle()
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        handle.agent.inject(user_message("unwritten"))
        store.failing = OSError("disk full")
        with pytest.raises(Exception, match="disk full"):
            await handle.aclose()
        assert house.nothing_is_left()
        assert told[-2:] == ["agent/disposed", "session/disposed"]
        store.failing = None
        again = await house.agents.resume("s", options=OPTIONS)
        assert again.agent.turn == 1


@pytest.mark.holds("A10", "SL13", "SL18", "SL19", "AI05")
async def test_unloading_the_loop_ends_every_agent_and_every_making() -> None:
    async with open_test_house(replies=[stalls(), stalls()]) as house:
        told = house.lifecycle()
        handles = [await house.agent(f"a{n}") for n in range(2)]
        for handle in handles:
            handle.agent.followup(user_message("go"))
        errors: list[AgentClosed] = []

        async def setup(ctx: Context, agent: live.Agent) -> None:
            await trio.sleep_forever()

        async def create() -> None:
            with pytest.raises(AgentClosed, match="the agent loop is not active") as caught:
                await house.agent("making", setup=setup)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            await wait_all_tasks_blocked()
            await house.loop.dispose()
        assert len(errors) == 1
        assert house.agents.live() == ()
        assert house.sessions.live() == ()
        assert told.count("agent/disposed") == 2
        with pytest.raises(ServiceMissing, match="row `agent-loop`"):
            await house.agent("late")
        with pytest.raises(AgentClosed):
            handles[0].agent.followup(user_message("late"))


@pytest.mark.holds("A17", "SL05", "GR08")
async def test_sub_agents_end_before_their_parent() -> None:
    async with open_test_house() as house:
        ended: list[str] = []
        house.ctx.on(ev.agent.DISPOSED)(lambda n: ended.append(n.agent.id))
        parent = await house.agent("parent")
        child = await house.agent("child", parent=parent.agent)
        grandchild = await house.agent("grandchild", parent=child.agent)
        assert house.agents.roots() == (parent.agent,)
        assert house.agents.children(parent.agent) == (child.agent,)
        assert grandchild.agent.parent is child.agent
        await parent.aclose()
        assert ended == ["grandchild", "child", "parent"]


@pytest.mark.holds("SL04", "SL07")
async def test_scoped_listeners_hear_only_their_own_agent() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        heard: list[tuple[str, str]] = []

        async def setup(ctx: Context, agent: live.Agent) -> None:
            assert ctx.scope is agent.scope
            ctx.on(ev.turn.START)(lambda event: heard.append((agent.id, event.session.id)))

        one = await house.agent("one", setup=setup)
        two = await house.agent("two", setup=setup)
        await one.agent.ask(user_message("go"))
        await two.agent.ask(user_message("go"))
        assert heard == [("one", "one"), ("two", "two")]
        assert house.ctx.scope is None
