"""A house that closes: its agents end first, with every plugin still there, and then it unloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.kernel import Context, Plugin, plugin
from dsh.session import interrupted_closers
from dsh.testing import MemoryStore, call, calls, open_test_house, says, stalls
from dsh.tools import define_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.hooks import Logged, Next, live
    from dsh.tools import Tool

DISPOSED = records.AbortedTurnEnd(reason=records.DisposedCause())


@frozen
class NoArgs:
    pass


def tool(body: Callable[[], Awaitable[object]]) -> Tool:
    """The tool `t`, which answers when `body` has ended."""

    async def execute(_args: NoArgs, _run: live.ToolRun) -> str:
        await body()
        return "done"

    return define_tool(name="t", description="t", args=NoArgs, output=str, execute=execute)


def leaver(name: str, trail: list[str]) -> Plugin:
    """A plugin that notes when it leaves, and each end of an agent before that."""

    @plugin(name=name)
    async def apply(ctx: Context) -> None:
        ctx.on_unload(lambda: trail.append(f"{name} leaves"))

    return apply


def watcher(trail: list[str]) -> Plugin:
    """The newest plugin, so the first to leave; it has a part in the end of every agent."""

    @plugin(name="watcher")
    async def apply(ctx: Context) -> None:
        @ctx.on(ev.tools.POST_EXECUTE)
        async def after(
            payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
        ) -> ev.tools.PostExecuteDecision:
            await trio.lowlevel.checkpoint()
            trail.append("a result is looked at")
            return await call_next()

        @ctx.on(ev.turn.END)
        def turn_ended(event: Logged[ev.turn.End]) -> None:
            assert event.data.reason == DISPOSED
            trail.append(f"the turn of {event.session.id} ends")

        async def last_word(agent: live.Agent) -> None:
            await trio.lowlevel.checkpoint()
            agent.inject(user_message("where I was"))
            trail.append(f"{agent.id} has a last word")

        ctx.on_drain(last_word)

        @ctx.on(ev.agent.DISPOSED)
        def gone(notice: ev.agent.Disposed) -> None:
            closed = "closed" if notice.agent.session.closed else "open"
            trail.append(f"{notice.agent.id} is gone, its log {closed}")

        ctx.on_unload(lambda: trail.append("watcher leaves"))

    return apply


async def events_of(store: MemoryStore, session_id: str) -> list[object]:
    return [event.data for event in (await store.read(session_id)).events]


async def whole(store: MemoryStore, session_id: str) -> bool:
    """Whether the stored log needs no repair, and may be opened."""
    handle = await store.open(session_id, "write")
    await handle.aclose()
    return not interrupted_closers((await store.read(session_id)).events)


async def leave(how: str, outside: trio.CancelScope) -> None:
    """Leave the block that this is called in."""
    if how == "cancelled":
        outside.cancel()
        await trio.lowlevel.checkpoint()
    if how == "raised":
        raise LookupError(how)


@pytest.mark.holds("A38", "G8", "A12", "A17")
@pytest.mark.parametrize("how", ["left", "cancelled", "raised"])
async def test_agents_end_and_close_their_logs_before_the_first_plugin_leaves(how: str) -> None:
    trail: list[str] = []
    store = MemoryStore()
    with trio.CancelScope() as outside:
        try:
            async with open_test_house(
                replies=[calls(call("t")), stalls()],
                tools=[tool(trio.sleep_forever)],
                plugins=[leaver("first", trail), leaver("second", trail), watcher(trail)],
                store=store,
            ) as house:
                parent = await house.agent("parent")
                parent.agent.followup(user_message("go"))
                await wait_all_tasks_blocked()
                child = await house.agent("child", parent=parent.agent)
                child.agent.followup(user_message("go"))
                await house.agent("idle")
                await wait_all_tasks_blocked()
                await leave(how, outside)
        except* LookupError:
            assert how == "raised"
    ends, leaving = trail[:-3], trail[-3:]
    assert leaving == ["watcher leaves", "second leaves", "first leaves"]
    for agent, turn in (("parent", True), ("child", True), ("idle", False)):
        own = [line for line in ends if agent in line.split()]
        assert own == [
            *([f"the turn of {agent} ends"] if turn else []),
            f"{agent} has a last word",
            f"{agent} is gone, its log closed",
        ]
    assert ends.index("child is gone, its log closed") < ends.index("parent has a last word")
    assert ends.index("a result is looked at") < ends.index("the turn of parent ends")
    for agent in ("parent", "child", "idle"):
        assert await whole(store, agent)
        assert isinstance((await events_of(store, agent))[-1], ev.agent.InboxSpliced)


async def deaf(release: trio.Event) -> None:
    """Ignore cancellation, as nothing should."""
    with trio.CancelScope(shield=True):
        await release.wait()


def deaf_listener(release: trio.Event) -> Plugin:
    """A plugin that never answers for the agent `hung`, whatever is cancelled."""

    @plugin(name="deaf-listener")
    async def apply(ctx: Context) -> None:
        @ctx.on(ev.agent.PRE_STEP)
        async def never(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            if step.agent.id == "hung":
                await deaf(release)
            return await call_next()

    return apply


@pytest.mark.holds("A38", "KN38")
@pytest.mark.parametrize("where", ["listener", "tool"])
async def test_an_agent_that_cannot_be_ended_is_named_and_the_plugins_leave_without_it(
    where: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trail: list[str] = []
    told: list[tuple[float, tuple[str, ...]]] = []
    release = trio.Event()
    store = MemoryStore()

    def held(lines: tuple[str, ...]) -> None:
        told.append((trio.current_time(), lines))
        assert trail[-2:] == ["second leaves", "first leaves"]
        release.set()

    slow = says("fine") if where == "listener" else calls(call("t"))
    async with open_test_house(
        replies=[slow, stalls()],
        tools=[tool(lambda: deaf(release))],
        plugins=[
            leaver("first", trail),
            *([deaf_listener(release)] if where == "listener" else []),
            leaver("second", trail),
        ],
        store=store,
        held=held,
    ) as house:
        house.ctx.on(ev.agent.DISPOSED)(lambda notice: trail.append(f"{notice.agent.id} is gone"))
        hung = await house.agent("hung")
        hung.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        other = await house.agent("other")
        other.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        begun = trio.current_time()
    assert trail[0] == "other is gone"  # nobody waits for the one that hangs
    assert await whole(store, "other")
    ((when, lines),) = told
    assert when - begun <= 12.0
    culprit = "test_loop_closing.py:"
    assert any("ignores cancellation" in line and culprit in line for line in lines)
    logged = [record.getMessage() for record in caplog.records]
    assert any("not ended in time: 'hung';" in line for line in logged), logged
    named = next(line for line in logged if "not done after 7.5 s, held up by " in line)
    assert culprit in named
    assert ("its listener of 'agent/pre-step'" in named) == (where == "listener")


@pytest.mark.holds("A38")
async def test_an_agent_that_is_slow_to_end_is_waited_for(autojump_clock: MockClock) -> None:
    trail: list[str] = []
    store = MemoryStore()
    release = trio.Event()
    async with (
        trio.open_nursery() as nursery,
        open_test_house(
            replies=[calls(call("t"))],
            tools=[tool(lambda: deaf(release))],
            plugins=[watcher(trail)],
            store=store,
        ) as house,
    ):
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()

        async def let_go() -> None:
            await trio.sleep(5)
            assert trail == []
            release.set()

        nursery.start_soon(let_go)
    assert trail == [
        "a result is looked at",
        "the turn of s ends",
        "s has a last word",
        "s is gone, its log closed",
        "watcher leaves",
    ]
    assert await whole(store, "s")


@pytest.mark.holds("A12", "A38")
def test_ctrl_c_during_the_last_words_hangs_nobody_and_the_log_is_closed() -> None:
    trail: list[str] = []
    store = MemoryStore()

    async def interrupted() -> None:
        async with open_test_house(plugins=[leaver("first", trail)], store=store) as house:

            async def struck(_agent: live.Agent) -> None:
                raise KeyboardInterrupt

            house.ctx.on_drain(struck)
            handle = await house.agent()
            handle.agent.inject(user_message("for later"))
            await handle.aclose()
            trail.append("closed")

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(interrupted, clock=MockClock(autojump_threshold=0))
    assert caught.value.split(KeyboardInterrupt)[1] is None
    assert trail == ["closed", "first leaves"]
    assert trio.run(whole, store, "s")
