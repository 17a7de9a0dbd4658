"""The agents service: one factory, lookups, and notices that belong to their own agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import AGENTS, AgentFactory, AgentHandle, CreateAgent, ResumeAgent
from dsh.catalog import records
from dsh.errors import PluginError, ServiceConflict, ServiceMissing
from dsh.kernel import Context, core_of, plugin
from dsh.testing import open_test_house

if TYPE_CHECKING:
    from dsh.hooks import live


class Refusing(AgentFactory):
    @override
    async def create(self, wish: CreateAgent) -> AgentHandle:
        raise LookupError(wish.session_id)

    @override
    async def resume(self, wish: ResumeAgent) -> AgentHandle:
        raise LookupError(wish.session_id)


@pytest.mark.holds("GR17")
async def test_without_a_loop_creating_says_what_to_add() -> None:
    async with open_test_house() as house:
        await house.loop.dispose()
        with pytest.raises(ServiceMissing, match="add the row `agent-loop`"):
            await house.agents.create()


@pytest.mark.holds("GR18")
async def test_a_second_factory_is_refused_and_the_place_is_free_after_the_first() -> None:
    async with open_test_house() as house:
        with pytest.raises(ServiceConflict, match="another loop does already"):
            house.agents.serve(house.ctx, Refusing())
        await house.loop.dispose()

        @plugin(name="other-loop")
        async def other_loop(ctx: Context) -> None:
            agents = core_of(ctx).get(AGENTS)
            assert agents is not None
            agents.serve(ctx, Refusing())

        fiber = house.kernel.mount(other_loop)
        await fiber.ready()
        with pytest.raises(LookupError, match="mine"):
            await house.agents.create("mine")
        with pytest.raises(LookupError, match="stored"):
            await house.agents.resume("stored")
        await fiber.dispose()
        with pytest.raises(ServiceMissing):
            await house.agents.create()


@pytest.mark.holds("GR06", "A9")
async def test_entered_agents_are_found_and_gone_with_their_handle() -> None:
    async with open_test_house() as house:
        one = await house.agent("one")
        two = await house.agent("two")
        assert house.agents.live() == (one.agent, two.agent)
        assert house.agents.get("two") is two.agent
        assert not hasattr(house.agents.get("two"), "aclose")
        await one.aclose()
        assert house.agents.live() == (two.agent,)


@pytest.mark.holds("GR10", "GR13", "A7")
async def test_notices_of_the_end_reach_every_listener() -> None:
    async with open_test_house() as house:
        heard: list[str] = []

        def fail(notice: ev.agent.Disposed) -> None:
            heard.append("first")
            raise RuntimeError

        house.ctx.on(ev.agent.DISPOSED)(fail)
        house.ctx.on(ev.agent.DISPOSED)(lambda notice: heard.append("second"))
        handle = await house.agent()
        await handle.aclose()
        assert heard == ["first", "second"]


@pytest.mark.holds("GR15", "GR14", "SL31")
async def test_a_payload_of_another_agent_is_refused_through_an_agents_context() -> None:
    async with open_test_house() as house:
        contexts: list[Context] = []

        async def setup(ctx: Context, agent: live.Agent) -> None:
            contexts.append(ctx)

        await house.agent("one", setup=setup)
        two = await house.agent("two")
        with pytest.raises(PluginError, match="context of the payload's own agent"):
            core_of(contexts[0]).emit(ev.agent.Status(agent=two.agent, status="running"))


@pytest.mark.holds("GR16", "G1")
def test_the_causes_are_a_closed_union() -> None:
    import typing

    members = typing.get_args(records.CancelCause)
    kinds = {member.kind for member in members}
    assert kinds == {"user", "parent", "hook", "disposed"}
