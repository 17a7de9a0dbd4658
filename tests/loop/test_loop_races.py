"""Races that a naive loop loses: each made deterministic by events, none by a sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import AgentClosed, InvariantError, SessionBusy, SessionExists
from dsh.kernel import Context, plugin
from dsh.llm import ResolvedModel
from dsh.loop.agent import LoopAgent
from dsh.loop.turn import Opening, Turn
from dsh.testing import (
    LogWriting,
    MemoryStore,
    ScriptedReplies,
    broken_laws,
    open_test_house,
    says,
    stalls,
)
from dsh.testing.house import OPTIONS

if TYPE_CHECKING:
    from dsh.hooks import Logged, Next, live
    from dsh.seams.persistence import WriteHandle


@pytest.mark.holds("D3", "M10")
async def test_an_adapter_swapped_after_preparation_does_not_serve_the_prepared_call() -> None:
    old = ScriptedReplies([says("old")], resolved=ResolvedModel(max_tokens=1))
    new = ScriptedReplies([says("new")], resolved=ResolvedModel(max_tokens=2))
    async with open_test_house() as house:
        registration = house.llm.register(house.ctx, old, ("swapped",))
        options = records.AgentOptions(provider="swapped", model="m")
        handle = await house.agent(options=options)

        @house.ctx.on(ev.request.HEADER)
        def swap(event: Logged[ev.request.Header]) -> None:
            if registration.active:
                registration.dispose()
                house.llm.register(house.ctx, new, ("swapped",))

        first = await handle.agent.ask(user_message("one"))
        second = await handle.agent.ask(user_message("two"))
        assert (first.text, second.text) == ("old", "new")
        headers = [
            event.data.header.config.max_tokens
            for event in house.session(handle).events
            if isinstance(event.data, ev.request.Header)
        ]
        assert headers == [1, 2]


@pytest.mark.holds("A21", "A22", "A14", "M19")
async def test_two_resumes_of_one_log_repair_it_once() -> None:
    store = MemoryStore()
    log = LogWriting(session_id="s")
    log.turn_start()
    log.step_start()
    write = await store.create(log.session.header)
    await write.append(tuple(log.session.events))
    await write.aclose()
    async with open_test_house(replies=[says("a")], store=store) as house:
        results: list[object] = []

        async def resume() -> None:
            try:
                results.append(await house.agents.resume("s", options=OPTIONS))
            except (SessionBusy, SessionExists) as error:
                results.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(resume)
            nursery.start_soon(resume)
        assert sum(isinstance(r, SessionBusy | SessionExists) for r in results) == 1
        with pytest.raises(SessionExists):
            await house.agents.resume("s")
        live = house.agents.get("s")
        assert live is not None
        names = house.names(live)
        assert names.count(ev.turn.END.name) == 1
        assert broken_laws(house.session(live)) == []


@pytest.mark.holds("C29", "CE17")
async def test_a_turn_is_run_by_its_driver_only() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        agent = handle.agent
        assert isinstance(agent, LoopAgent)
        from dsh.agent import ActivitySignal

        turn = Turn(agent.kit, ActivitySignal(), Opening((), None))
        with pytest.raises(InvariantError, match="only its driver opens turns"):
            await turn.run()
        assert house.names(handle) == []
        assert agent.turn == 0


@pytest.mark.holds("D5", "RR08", "G5", "M6")
async def test_disposal_waits_for_a_capability_lookup_that_it_has_cancelled() -> None:
    order: list[str] = []

    async with open_test_house() as house:
        handle = await house.agent()
        session = house.session(handle)

        async def lookup(provider: str, model: str) -> ResolvedModel:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
                order.append("lookup over")
            raise AssertionError

        house.model.resolve_model = lookup  # type: ignore[method-assign]
        house.ctx.on(ev.agent.DISPOSED)(lambda n: order.append("disposed"))
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        await handle.aclose()
        assert order == ["lookup over", "disposed"]
        names = [event.type for event in session.events]
        assert names[-3:] == [ev.step.START.name, ev.step.END.name, ev.turn.END.name]


@pytest.mark.holds("C4")
async def test_a_cancel_between_assembly_and_pre_step_asks_nobody_any_more() -> None:
    async with open_test_house() as house:
        handle = await house.agent()
        asked: list[str] = []

        @house.ctx.on(ev.system_prompt.ASSEMBLE)
        async def assemble(
            payload: ev.system_prompt.Assemble, call_next: Next[live.PromptAssembly]
        ) -> live.PromptAssembly:
            assembly = await call_next()
            handle.agent.cancel(records.UserCause())
            return assembly

        @house.ctx.on(ev.agent.PRE_STEP)
        async def pre(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            asked.append("pre-step")
            return await call_next()

        outcome = await handle.agent.ask(user_message("go"))
        assert outcome.reason == records.AbortedTurnEnd(reason=records.UserCause())
        assert asked == []


@pytest.mark.holds("A11", "SL02", "SL15", "M18")
async def test_an_unload_that_lands_while_the_agent_is_minted_finds_its_way_back() -> None:
    async with open_test_house() as house:
        owners: list[Context] = []

        @plugin(name="owner")
        async def owner(ctx: Context) -> None:
            owners.append(ctx)

        fiber = house.kernel.mount(owner)
        await fiber.ready()
        errors: list[str] = []

        async def create() -> None:
            try:
                await house.agent(owner=owners[0])
            except AgentClosed as error:
                errors.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            nursery.start_soon(fiber.dispose)
        await wait_all_tasks_blocked()
        assert len(errors) in {0, 1}
        assert house.agents.live() == ()
        assert house.sessions.live() == ()
        assert [f.path for f in house.kernel.fibers if "agent s" in f.path] == []


@pytest.mark.holds("A35", "RS28", "CF15")
async def test_a_declared_resume_that_fails_after_the_teardown_is_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from dsh.catalog.config import AgentLoopConfig, ConfiguredAgent

    async def fail_late(session_id: str, mode: Literal["write"]) -> WriteHandle:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("the load failed late")

    store = MemoryStore()
    store.open = fail_late  # type: ignore[method-assign]

    failures: list[object] = []

    @plugin(name="watch")
    async def watch(ctx: Context) -> None:
        ctx.on(ev.agent_loop.CONFIG_START_FAILED)(failures.append)

    config = AgentLoopConfig(agents=(ConfiguredAgent(id="main", session_id="x"),))
    async with open_test_house(store=store, plugins=[watch]) as house:
        await house.loop.update(config)
        await wait_all_tasks_blocked()
        await house.loop.dispose()
        assert failures == []
        assert [r for r in caplog.records if "was not started" in r.getMessage()] == []


@pytest.mark.holds("G1", "M21")
async def test_the_logged_cause_is_the_given_one_and_nothing_else() -> None:
    cause = records.HookCause(reason="limit reached")
    async with open_test_house(replies=[stalls()]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        handle.agent.cancel(cause)
        await handle.agent.when_idle()
        end = house.session(handle).events[-1].data
        assert isinstance(end, ev.turn.End)
        assert end.reason == records.AbortedTurnEnd(reason=cause)


@pytest.mark.holds("LP25", "B15")
async def test_a_context_that_cannot_be_stored_fails_its_turn_and_not_the_queue() -> None:
    from attrs import frozen

    from dsh.testing import call, calls
    from dsh.tools import define_tool

    @frozen
    class NoArgs:
        pass

    async def body(args: NoArgs, run: live.ToolRun) -> str:
        run.defer_context(user_message("lone \ud800 surrogate"))
        return "x"

    tool = define_tool(name="t", description="t", args=NoArgs, output=str, execute=body)
    async with open_test_house(
        replies=[calls(call("t")), says("b"), says("c")], tools=[tool]
    ) as house:
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        assert handle.agent.pending("next-step") == ()
        assert broken_laws(house.session(handle)) == []
        outcome = await handle.agent.ask(user_message("again"))
        assert isinstance(outcome.reason, records.CompletedTurnEnd)


@pytest.mark.holds("C22", "B14")
@pytest.mark.parametrize("waking", [True, False])
async def test_what_comes_with_the_turns_end_runs_if_it_wakes_and_else_waits(
    *, waking: bool
) -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()

        @house.ctx.on(ev.turn.END)
        def late(event: Logged[ev.turn.End]) -> None:
            if event.data.turn == 1:
                message = user_message("late", id="late")
                handle.agent.send(message, target="next-step", wakeup=waking)

        await handle.agent.ask(user_message("go"))
        await handle.agent.when_idle()
        assert handle.agent.turn == (2 if waking else 1)
        pending = [message.id for message in handle.agent.pending("next-step")]
        assert pending == ([] if waking else ["late"])


@pytest.mark.holds("G1", "A10")
async def test_a_cancellation_around_the_drivers_is_an_end_like_any_other() -> None:
    order: list[str] = []

    async with open_test_house(replies=[stalls()]) as house:
        handle = await house.agent()
        session = house.session(handle)
        house.ctx.on(ev.agent.DISPOSED)(lambda notice: order.append("disposed"))

        @house.ctx.on(ev.agent.PRE_STEP)
        async def strike(
            step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            task = trio.lowlevel.current_task()
            assert task.parent_nursery is not None
            task.parent_nursery.cancel_scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                order.append(f"struck by {step.signal.cause}")
            raise AssertionError

        with trio.fail_after(2):
            handle.agent.followup(user_message("go"))
            await handle.agent.when_idle()
            await wait_all_tasks_blocked()
        assert order == ["struck by DisposedCause()", "disposed"]
        assert session.events[-1].data == ev.turn.End(
            turn=1, reason=records.AbortedTurnEnd(reason=records.DisposedCause())
        )
        assert broken_laws(session) == []
