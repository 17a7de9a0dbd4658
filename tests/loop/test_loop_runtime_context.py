"""Runtime context in the history: sent when it changed, kept when it did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.prompt.runtime_context import CLEARED, HEADING, OWNER
from dsh.testing import TestHouse, open_test_house, says

if TYPE_CHECKING:
    from dsh.agent import AgentHandle
    from dsh.hooks import Next, live


def snapshots(house: TestHouse, handle: AgentHandle) -> list[str]:
    """The texts of all runtime-context messages that were admitted, in order."""
    return [
        block.text
        for event in house.session(handle).events
        if isinstance(event.data, ev.user.Message)
        and isinstance(event.data.message.source, records.PluginSource)
        and event.data.message.source.plugin == OWNER
        for block in event.data.message.content
        if isinstance(block, records.TextBlock)
    ]


def snapshot(*facts: str) -> str:
    return "\n\n".join((HEADING, *facts))


@pytest.mark.holds("H1", "H5", "LP13")
async def test_a_changed_context_is_one_message_at_the_end_and_the_prompt_stays() -> None:
    async with open_test_house(replies=[says(c) for c in "abc"]) as house:
        facts = ["sunny"]
        house.prompt.section(house.ctx, "persona", "You help.")
        house.prompt.context(house.ctx, "weather", lambda context: facts[0])
        handle = await house.agent()
        await handle.agent.ask(user_message("1"))
        await handle.agent.ask(user_message("2"))
        assert snapshots(house, handle) == [snapshot("weather:\nsunny")]
        facts[0] = "rain"
        await handle.agent.ask(user_message("3"))
        assert snapshots(house, handle)[1:] == [snapshot("weather:\nrain")]
        last = house.model.requests[-1].messages
        assert [m.role for m in last[-2:]] == ["user", "user"]
        assert last[-1].content == (records.TextBlock(text=snapshot("weather:\nrain")),)
        assert house.names(handle).count(ev.system.MESSAGE.name) == 1
        source = last[-1].source
        assert isinstance(source, records.PluginSource)
        assert source.form == "snapshot"
        assert source.sections == (records.ContextSnapshotSection(name="weather", text="rain"),)


@pytest.mark.holds("H1", "LP15")
async def test_a_context_that_ends_is_cleared_once() -> None:
    async with open_test_house(replies=[says(c) for c in "abcd"]) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("0"))
        assert snapshots(house, handle) == []
        facts = ["sunny"]
        house.prompt.context(house.ctx, "weather", lambda context: facts[0])
        await handle.agent.ask(user_message("1"))
        facts[0] = ""
        await handle.agent.ask(user_message("2"))
        await handle.agent.ask(user_message("3"))
        assert snapshots(house, handle) == [snapshot("weather:\nsunny"), CLEARED]


@pytest.mark.holds("H2", "NEW-14", "M23")
async def test_a_rejected_step_does_not_consume_the_update() -> None:
    async with open_test_house(replies=[says("a")]) as house:
        house.prompt.context(house.ctx, "weather", "sunny")
        handle = await house.agent()
        rejecting = [True]

        @house.ctx.on(ev.agent.PRE_STEP)
        async def guard(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            decision = await call_next()
            assert isinstance(decision, ev.agent.Enter)
            assert len(decision.messages) == 2
            return ev.agent.Reject() if rejecting else decision

        await handle.agent.ask(user_message("1"))
        assert snapshots(house, handle) == []
        rejecting.clear()
        await handle.agent.ask(user_message("2"))
        assert snapshots(house, handle) == [snapshot("weather:\nsunny")]


@pytest.mark.holds("H3", "LP14", "M23")
async def test_a_replaced_snapshot_is_sent_again_and_other_replacements_do_not_matter() -> None:
    async with open_test_house(replies=[says(c) for c in "abc"]) as house:
        house.prompt.context(house.ctx, "weather", "sunny")
        handle = await house.agent()
        await handle.agent.ask(user_message("1"))
        session = house.session(handle)

        def replace(index: int) -> None:
            seq = session.surface.nodes[index]
            session.append(
                ev.user.Message(message=user_message("summary")),
                surface=records.Replace(start_seq=seq, end_seq=seq),
                sources=(seq,),
            )

        replace(1)  # the prompt
        await handle.agent.ask(user_message("2"))
        assert len(snapshots(house, handle)) == 1
        replace(2)  # the snapshot
        await handle.agent.ask(user_message("3"))
        assert snapshots(house, handle) == [snapshot("weather:\nsunny")] * 2


@pytest.mark.holds("H4", "LP17")
async def test_a_malformed_snapshot_is_replaced_by_a_complete_one() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()
        source = records.PluginSource(plugin=OWNER, form="snapshot")
        blocks = (records.TextBlock(text="two"), records.TextBlock(text="blocks"))
        handle.agent.inject(user_message(blocks, source=source))
        await handle.agent.ask(user_message("1"))
        house.prompt.context(house.ctx, "weather", "sunny")
        await handle.agent.ask(user_message("2"))
        assert snapshots(house, handle)[-1] == snapshot("weather:\nsunny")


@pytest.mark.holds("H1")
async def test_context_alone_opens_no_step() -> None:
    async with open_test_house() as house:
        house.prompt.context(house.ctx, "weather", "sunny")
        handle = await house.agent()

        @house.ctx.on(ev.agent.INBOX_INSERTED)
        def withdraw(notice: ev.agent.InboxInserted) -> None:
            handle.agent.remove(notice.message.id)

        handle.agent.followup(user_message("gone at once"))
        await handle.agent.when_idle()
        ends = [
            e.data.reason.kind
            for e in house.session(handle).events
            if isinstance(e.data, ev.turn.End)
        ]
        assert ends == ["completed"]
        assert house.model.requests == []


@pytest.mark.holds("LP11")
async def test_a_listener_of_the_assembly_supplies_a_variable() -> None:
    from attrs import evolve

    async with open_test_house(replies=[says("a")]) as house:
        house.prompt.section(house.ctx, "persona", "I am {{model}}.")
        handle = await house.agent(options=records.AgentOptions())

        @house.ctx.on(ev.system_prompt.ASSEMBLE)
        async def supply(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            assembly = await call_next()
            values = {**dict(assembly.variables), "model": "supplied"}
            return evolve(assembly, variables=tuple(values.items()))

        @house.ctx.on(ev.agent.REQUEST)
        async def route(
            payload: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            return records.LlmCallConfig(provider="test", model="supplied")

        await handle.agent.ask(user_message("go"))
        first = house.model.requests[0].messages[0]
        assert first.content == (records.TextBlock(text="I am supplied."),)
