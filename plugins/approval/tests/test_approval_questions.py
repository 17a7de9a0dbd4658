"""Questions in the real loop: who is asked, what is logged, what a cancellation makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest
import trio
import trio.testing
from attrs import field, frozen, mutable

from dsh import catalog as ev
from dsh import define_tool, user_message
from dsh.catalog import records
from dsh.testing import TestHouse, always_pre, call, calls, open_test_house, says
from dsh_plugins.approval import approval
from dsh_plugins.approval.catalog import ApprovalConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dsh import Next
    from dsh.agent import AgentHandle
    from dsh.hooks import live
    from dsh.testing import ScriptEntry
    from dsh.tools import Tool

    Reply: TypeAlias = Callable[[ev.approval.Request], Awaitable[records.ApprovalOutcome]]


@frozen
class Nothing:
    """No arguments."""


@mutable
class Desk:
    """A tool that notes its runs, and a policy that asks about every call."""

    ran: list[str] = field(factory=list)
    asked: list[ev.approval.Request] = field(factory=list)

    def tool(self) -> Tool:
        async def work(_args: Nothing, run: live.ToolRun) -> str:
            self.ran.append(run.call_id)
            return "done"

        return define_tool(
            name="work",
            description="Works",
            args=Nothing,
            output=str,
            execute=work,
            execution_mode="parallel",
        )

    async def furnish(
        self, house: TestHouse, reply: Reply | None, *, policy: records.ApprovalPolicy = "ask"
    ) -> None:
        await house.kernel.mount(approval, ApprovalConfig(policy=policy)).ready()
        always_pre(house.ctx, ev.tools.Ask(reason="it may hurt"))
        if reply is None:
            return

        @house.ctx.on(ev.approval.REQUEST)
        async def answer(
            question: ev.approval.Request, _call_next: Next[records.ApprovalOutcome]
        ) -> records.ApprovalOutcome:
            self.asked.append(question)
            return await reply(question)


def two() -> list[ScriptEntry]:
    """A message with two calls, and the one after it."""
    return [calls(call("work", call_id="a"), call("work", call_id="b")), says("ready")]


def audit(house: TestHouse, handle: AgentHandle) -> list[str]:
    """`asked` and the outcomes in their order; each decision must close the question before it."""
    found: list[str] = []
    open_id: str | None = None
    for event in house.session(handle).events:
        match event.data:
            case ev.approval.Asked(id=open_id):
                found.append("asked")
            case ev.approval.Decided(id=closed, outcome=outcome):
                assert closed == open_id
                found.append(outcome)
            case _:
                pass
    return found


def results(house: TestHouse, handle: AgentHandle) -> list[str]:
    """The texts of the tool results, in their order."""
    return [
        "".join(b.text for b in event.data.message.content if isinstance(b, records.TextBlock))
        for event in house.session(handle).events
        if isinstance(event.data, ev.tool.Result)
    ]


async def yes(_question: ev.approval.Request) -> records.ApprovalOutcome:
    return "allowed-once"


async def run(
    replies: Sequence[ScriptEntry],
    reply: Reply | None,
    check: Callable[[TestHouse, AgentHandle, Desk, live.TurnOutcome], None],
    *,
    policy: records.ApprovalPolicy = "ask",
) -> None:
    desk = Desk()
    async with open_test_house(replies=replies, tools=[desk.tool()]) as house:
        await desk.furnish(house, reply, policy=policy)
        handle = await house.agent()
        check(house, handle, desk, await handle.agent.ask(user_message("go")))


@pytest.mark.holds("XT33")
async def test_each_grant_runs_one_call_and_leaves_a_pair_in_the_log() -> None:
    def check(house: TestHouse, handle: AgentHandle, desk: Desk, _end: live.TurnOutcome) -> None:
        assert desk.ran == ["a", "b"]
        assert audit(house, handle) == ["asked", "allowed-once"] * 2
        assert [question.call_id for question in desk.asked] == ["a", "b"]
        assert desk.asked[0].reason == "it may hurt"
        assert desk.asked[0].asked_by is not None
        assert desk.asked[0].arguments == {}

    await run(two(), yes, check)


@pytest.mark.holds("XT34", "XT37")
@pytest.mark.parametrize("mode", ["no", "nobody", "raises", "junk"])
async def test_everything_but_a_grant_refuses_in_words_of_its_own(mode: str) -> None:
    async def reply(_question: ev.approval.Request) -> records.ApprovalOutcome:
        if mode == "raises":
            raise OSError("the terminal is gone")
        return "rejected" if mode == "no" else "sure"  # type: ignore[return-value]

    def check(house: TestHouse, handle: AgentHandle, desk: Desk, end: live.TurnOutcome) -> None:
        words, outcome = {
            "no": ("the user rejected this call", "rejected"),
            "nobody": ("nobody is there to answer", "unavailable"),
            "raises": ("could not be had: OSError: the terminal is gone", "unavailable"),
            "junk": ("answer of kernel was none: 'sure'", "unavailable"),
        }[mode]
        assert desk.ran == []
        assert audit(house, handle) == ["asked", outcome] * 2
        text = results(house, handle)[0]
        assert words in text, text
        assert end.text == "ready"

    await run(two(), None if mode == "nobody" else reply, check)


@pytest.mark.parametrize("where", ["config", "log"])
async def test_the_policy_never_refuses_before_any_answerer(where: str) -> None:
    desk = Desk()
    async with open_test_house(replies=two(), tools=[desk.tool()]) as house:
        await desk.furnish(house, yes, policy="never" if where == "config" else "ask")
        handle = await house.agent()
        if where == "log":
            for policy in ("never", "ask", "never"):
                handle.agent.session.append(ev.approval.Policy(policy=policy))
        await handle.agent.ask(user_message("go"))
        assert (desk.ran, desk.asked, audit(house, handle)) == ([], [], [])
        assert "approval policy is `never`" in results(house, handle)[0]


async def test_the_last_policy_of_the_log_counts_more_than_the_configuration() -> None:
    desk = Desk()
    async with open_test_house(replies=two(), tools=[desk.tool()]) as house:
        await desk.furnish(house, yes, policy="never")
        handle = await house.agent()
        handle.agent.session.append(ev.approval.Policy(policy="ask"))
        await handle.agent.ask(user_message("go"))
        assert desk.ran == ["a", "b"]


@pytest.mark.holds("case-072")
@pytest.mark.parametrize("late", ["never", "same-tick", "after"])
async def test_a_cancel_while_a_question_is_open_runs_nothing_and_asks_no_more(late: str) -> None:
    async def reply(question: ev.approval.Request) -> records.ApprovalOutcome:
        question.agent.cancel(records.UserCause())
        if late == "never":
            await trio.sleep_forever()
        if late == "after":
            try:
                await trio.sleep_forever()
            finally:
                return "allowed-once"  # noqa: B012 - what a careless answerer does
        return "allowed-once"

    desk = Desk()
    replies = [*two(), *two()]
    replies[1] = says("next")
    async with open_test_house(replies=replies, tools=[desk.tool()]) as house:
        await desk.furnish(house, reply)
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.AbortedTurnEnd(reason=records.UserCause())
        assert audit(house, handle) == ["asked", "cancelled"]
        assert (desk.ran, len(desk.asked)) == ([], 1)
        assert len(results(house, handle)) == 2
        assert (await handle.agent.ask(user_message("again"))).text == "next"


@pytest.mark.holds("case-072")
async def test_a_cancel_before_the_question_exists_asks_nobody() -> None:
    desk = Desk()
    async with open_test_house(replies=two(), tools=[desk.tool()]) as house:
        await desk.furnish(house, yes)

        @house.ctx.on(ev.tools.PRE_EXECUTE, prepend=True)
        async def slow(
            event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
        ) -> ev.tools.PreExecuteDecision:
            assert event.exec.agent is not None
            event.exec.agent.cancel(records.UserCause())
            return await call_next()

        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        assert (desk.ran, desk.asked, audit(house, handle)) == ([], [], [])
        assert len(results(house, handle)) == 2


async def test_questions_of_two_agents_are_shown_one_at_a_time_in_their_order() -> None:
    desk, open_now, most, gate = Desk(), 0, 0, trio.Event()

    async def reply(_question: ev.approval.Request) -> records.ApprovalOutcome:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await gate.wait()
        open_now -= 1
        return "allowed-once"

    async with open_test_house(tools=[desk.tool()]) as house:
        await desk.furnish(house, reply)
        house.model.replies.extend([calls(call("work")), calls(call("work")), says("x"), says("y")])
        first, second = await house.agent("first"), await house.agent("second")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.agent.ask, user_message("go"))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(second.agent.ask, user_message("go"))
            await trio.testing.wait_all_tasks_blocked()
            assert [question.agent.id for question in desk.asked] == ["first"]
            # The one that waits is not in the log yet: it was put to nobody.
            assert audit(house, second) == []
            gate.set()
        assert [question.agent.id for question in desk.asked] == ["first", "second"]
        assert most == 1
        # The first was put before the other one was known.
        assert [(one.position, one.total) for one in desk.asked] == [(1, 1), (2, 2)]
        assert audit(house, second) == ["asked", "allowed-once"]


async def test_a_question_says_which_one_it_is_and_how_many_wait() -> None:
    desk, gate = Desk(), trio.Event()

    async def reply(_question: ev.approval.Request) -> records.ApprovalOutcome:
        await gate.wait()
        return "allowed-once"

    async with open_test_house(tools=[desk.tool()]) as house:
        await desk.furnish(house, reply)
        house.model.replies.extend([calls(call("work")) for _ in range(3)])
        house.model.replies.extend([says("done"), says("done"), calls(call("work")), says("done")])
        handles = [await house.agent(name) for name in ("a", "b", "c", "d")]
        async with trio.open_nursery() as nursery:
            for handle in handles[:3]:
                nursery.start_soon(handle.agent.ask, user_message("go"))
                await trio.testing.wait_all_tasks_blocked()
            handles[1].agent.cancel(records.UserCause())  # a question that is withdrawn counts not
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
        await handles[3].agent.ask(user_message("go"))  # after a pause the count begins anew
        told = [(one.agent.id, one.position, one.total) for one in desk.asked]
        assert told == [("a", 1, 1), ("c", 2, 2), ("d", 1, 1)]


async def test_a_waiting_question_is_withdrawn_with_its_turn() -> None:
    desk, gate = Desk(), trio.Event()

    async def reply(_question: ev.approval.Request) -> records.ApprovalOutcome:
        await gate.wait()
        return "allowed-once"

    async with open_test_house(tools=[desk.tool()]) as house:
        await desk.furnish(house, reply)
        house.model.replies.extend([calls(call("work")), calls(call("work")), says("x")])
        first, second = await house.agent("first"), await house.agent("second")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.agent.ask, user_message("go"))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(second.agent.ask, user_message("go"))
            await trio.testing.wait_all_tasks_blocked()
            second.agent.cancel(records.UserCause())
            await second.agent.when_idle()
            gate.set()
        assert audit(house, second) == []
        assert len(desk.asked) == 1
        assert results(house, second) == ["Error: tool call aborted before dispatch"]


async def test_a_question_outside_a_turn_is_refused_and_not_logged() -> None:
    desk = Desk()
    async with open_test_house(tools=[desk.tool()]) as house:
        await desk.furnish(house, yes)
        handle = await house.agent()
        from dsh.testing import ManualSignal
        from dsh.tools import CallInput

        given = CallInput(
            call_id="c", name="work", arguments={}, signal=ManualSignal(), agent=handle.agent
        )
        finished = await house.tools.execute(given)
        assert "no turn is open" in str(finished.result)
        assert (desk.asked, audit(house, handle)) == ([], [])
