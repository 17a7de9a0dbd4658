"""Forks of live agents: at every closed boundary, beside a turn that runs, whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import InvariantError, SessionError, SessionExists, SessionNotFound
from dsh.hooks import live  # noqa: TC001  the schema of a tool reads its annotations
from dsh.session import closed_boundary, verify
from dsh.testing import MemoryStore, broken_laws, call, calls, open_test_house, says, stalls
from dsh.tools import define_tool
from dsh.wire import encode_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.kernel import Context
    from dsh.wire import StoredEvent


@frozen
class NoArgs:
    """Nothing to say it with."""


async def say_it(_args: NoArgs, _run: live.ToolRun) -> str:
    return "said"


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


@pytest.mark.holds("I8", "I9")
async def test_a_live_agent_is_forked_at_every_closed_boundary_and_goes_on() -> None:
    echo = define_tool(name="echo", description="say it", args=NoArgs, output=str, execute=say_it)
    store = MemoryStore()
    replies = [calls(call("echo")), says("one"), says("two")]
    async with open_test_house(replies=replies, tools=[echo], store=store) as house:
        parent = await house.agent()
        await parent.agent.ask(user_message("first"))
        await parent.agent.ask(user_message("second"))
        parent.agent.inject(user_message("for the parent", id="parents"))
        log = house.session(parent).events
        before = lines(log)
        forked = refused = 0
        for boundary in range(len(log)):
            closed = closed_boundary(log[: boundary + 1]) == boundary
            child_id = f"child-{boundary}"
            if not closed:
                with pytest.raises(SessionError) as error:
                    await house.agents.fork(parent.agent, session_id=child_id, boundary=boundary)
                assert error.value.code == "OPEN_TURN"
                assert house.agents.get(child_id) is None
                refused += 1
                continue
            house.model.replies.append(says(f"child {boundary}"))
            child = await house.agents.fork(parent.agent, session_id=child_id, boundary=boundary)
            header = house.session(child).header
            assert (header.parent_session, header.seed_length) == ("s", boundary + 1)
            assert header.cwd == "/work"
            assert child.agent.options == parent.agent.options
            assert child.agent.pending("next-step") == ()
            turns = sum(isinstance(one.data, ev.turn.Start) for one in log[: boundary + 1])
            outcome = await child.agent.ask(user_message("on"))
            assert (outcome.turn, outcome.text) == (turns + 1, f"child {boundary}")
            await child.aclose()
            stored = await store.read(child_id)
            assert lines(stored.events)[: boundary + 1] == before[: boundary + 1]
            assert verify(stored) == ()
            forked += 1
        assert lines(house.session(parent).events) == before
        assert forked >= 4
        assert refused > 10
        with pytest.raises(SessionError) as bad:
            await house.agents.fork(parent.agent, boundary=len(log))
        assert bad.value.code == "INVALID_BOUNDARY"


@pytest.mark.holds("I8")
async def test_a_fork_beside_a_running_turn_begins_before_it() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("one"), stalls()], store=store) as house:
        parent = await house.agent()
        await parent.agent.ask(user_message("first"))
        parent.agent.followup(user_message("second"))
        await wait_all_tasks_blocked()
        assert parent.agent.status == "running"
        house.model.replies.append(says("elsewhere"))
        child = await house.agents.fork(parent.agent)
        assert parent.agent.status == "running"
        assert (await child.agent.ask(user_message("on"))).turn == 2
        said = [message.content for message in house.session(child).derive_messages()]
        assert (records.TextBlock(text="second"),) not in said
        parent.agent.cancel(records.UserCause())
        await parent.agent.when_idle()
        assert broken_laws(house.session(child)) == []


@pytest.mark.holds("I8", "A4")
async def test_a_fork_that_fails_leaves_nothing_and_the_parent_as_it_was() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("one"), says("two")], store=store) as house:
        parent = await house.agent()
        await parent.agent.ask(user_message("first"))
        with pytest.raises(SessionExists):
            await house.agents.fork(parent.agent, session_id="s")

        async def broken(_ctx: Context, _agent: live.Agent) -> None:
            raise InvariantError("not today")

        with pytest.raises(InvariantError, match="not today"):
            await house.agents.fork(parent.agent, session_id="child", setup=broken)
        assert house.agents.get("child") is None
        with pytest.raises(SessionNotFound):
            await store.read("child")
        assert (await parent.agent.ask(user_message("second"))).text == "two"
        await parent.aclose()
        with pytest.raises(SessionError):
            await house.agents.fork(parent.agent)
