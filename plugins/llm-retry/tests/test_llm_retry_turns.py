"""Retries in the real loop: what is tried again, what the log says, and who may stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh import Context, plugin, user_message
from dsh import catalog as ev
from dsh.catalog import records
from dsh.testing import (
    MemoryStore,
    ScriptedReplies,
    broken_laws,
    call,
    calls,
    fails,
    open_test_house,
    says,
)
from dsh_plugins.llm_retry import llm_retry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import TypeAlias

    from trio.testing import MockClock

    from dsh.hooks import Next
    from dsh.hooks.live import LlmRequest
    from dsh.kernel import Plugin
    from dsh.testing.model import Reply

    RecoverFn: TypeAlias = Callable[
        [ev.agent.RequestError, Next[ev.agent.Retry | None]], Awaitable[ev.agent.Retry | None]
    ]

NORMAL = records.NormalRetryPolicy(jitter_ratio=0)
ALWAYS = records.AlwaysRetryPolicy(jitter_ratio=0)
BUSY = records.LlmFailure(message="busy", code="SERVER", status=503, request_id="r-1")


def model(*replies: Reply, policy: records.RetryPolicy = NORMAL) -> ScriptedReplies:
    return ScriptedReplies(replies, policy=policy)


@pytest.mark.holds("E14", "YR01", "YR02", "YR03", "YR14", "YR16", "YL01", "YI02", "YI09")
@pytest.mark.parametrize("code", NORMAL.retryable_codes)
async def test_a_passing_failure_is_tried_again_and_the_log_says_so_first(
    autojump_clock: MockClock, code: str
) -> None:
    adapter = model(fails(code), says("whole"))
    seen: list[float] = []
    async with open_test_house(model=adapter, plugins=[llm_retry]) as house:
        handle = await house.agent()
        house.ctx.on(ev.llm.RETRY)(lambda _event: seen.append(trio.current_time()))
        house.ctx.on(ev.llm.RETRY_STARTED)(lambda _event: seen.append(trio.current_time()))
        outcome = await handle.agent.ask(user_message("go"))
        assert (outcome.reason, outcome.text) == (records.CompletedTurnEnd(), "whole")
        (due,) = house.logged(handle, ev.llm.Retry)
        (started,) = house.logged(handle, ev.llm.RetryStarted)
        assert due.failure.code == code
        assert (due.provider, due.plugin, due.mode) == ("test", "llm-retry", "normal")
        assert (due.retry, due.max_retries, due.delay_ms) == (1, 5, 500)
        assert (started.retry_id, started.retry) == (due.retry_id, 1)
        assert seen[1] - seen[0] == pytest.approx(0.5)
        assert [m.role for m in adapter.requests[1].messages] == ["user"]
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("YR05", "YI06", "YI08", "YT06", "E13")
async def test_the_budget_of_a_step_ends_and_the_failure_stands(autojump_clock: MockClock) -> None:
    async with open_test_house(
        model=model(*[fails()] * 6, says("never")), plugins=[llm_retry]
    ) as house:
        handle = await house.agent()
        began = trio.current_time()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == "SERVER"
        assert trio.current_time() - began == pytest.approx(0.5 + 1 + 2 + 4 + 8)
        due = house.logged(handle, ev.llm.Retry)
        assert [one.retry for one in due] == [1, 2, 3, 4, 5]
        assert len({one.retry_id for one in due}) == 1
        assert len(house.model.requests) == 6


@pytest.mark.holds("YI07", "E13")
async def test_a_new_step_begins_with_a_full_budget(autojump_clock: MockClock) -> None:
    adapter = model(fails(), calls(call("none")), fails(), says("done"))
    async with open_test_house(model=adapter, plugins=[llm_retry]) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "done"
        due = house.logged(handle, ev.llm.Retry)
        assert [(one.step, one.retry) for one in due] == [(1, 1), (2, 1)]
        assert due[0].retry_id != due[1].retry_id


@pytest.mark.holds("YR11", "YR12", "YR13", "E13")
async def test_each_provider_has_its_own_policy_and_budget_in_one_step(
    autojump_clock: MockClock,
) -> None:
    small = records.NormalRetryPolicy(max_retries=1, jitter_ratio=0)
    first, second = model(fails(), fails(), policy=small), model(fails(), says("there"))
    async with open_test_house(model=first, plugins=[llm_retry]) as house:
        house.llm.register(house.ctx, second, ("other",))
        failures: list[str] = []

        async def route(
            _ask: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            config = await call_next()
            provider = "other" if len(failures) >= 2 else "test"
            return records.LlmCallConfig(provider=provider, model=config.model)

        async def fall_over(
            failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            failures.append(failed.provider)
            decision = await call_next()
            return ev.agent.Retry() if decision is None and len(failures) == 2 else decision

        house.ctx.on(ev.agent.REQUEST)(route)
        house.ctx.on(ev.agent.REQUEST_ERROR, prepend=True)(fall_over)
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "there"
        due = house.logged(handle, ev.llm.Retry)
        assert [(one.provider, one.retry, one.max_retries) for one in due] == [
            ("test", 1, 1),
            ("other", 1, 5),
        ]


@pytest.mark.holds("E15", "YR09", "YR10")
@pytest.mark.parametrize("served", [True, False])
async def test_what_no_policy_covers_goes_to_the_others_at_once(*, served: bool) -> None:
    async with open_test_house(model=model(fails("AUTH")), plugins=[llm_retry]) as house:
        asked: list[records.RetryPolicy | None] = []

        async def others(
            failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            asked.append(failed.retry_policy)
            return await call_next()

        house.ctx.on(ev.agent.REQUEST_ERROR)(others)
        options = records.AgentOptions(provider="test" if served else "nobody", model="m")
        handle = await house.agent(options=options)
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == ("AUTH" if served else "NO_ADAPTER")
        assert asked == [NORMAL if served else None]
        assert house.logged(handle, ev.llm.Retry) == []


@pytest.mark.holds("YR15", "E15")
async def test_always_goes_on_until_the_turn_is_cancelled(autojump_clock: MockClock) -> None:
    async def fail(request: LlmRequest) -> AsyncGenerator[records.StreamChunk, None]:
        adapter.replies.append(fail)
        yield records.FinishChunk(reason=records.ErrorFinish(failure=BUSY))

    adapter = model(policy=ALWAYS)
    adapter.replies.append(fail)
    async with open_test_house(model=adapter, plugins=[llm_retry]) as house:
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await trio.sleep(300)
        handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()
        assert len(adapter.requests) > 30
        assert house.reason(handle) == records.AbortedTurnEnd(reason=records.UserCause())


@pytest.mark.holds("E15", "YR17", "YR18")
@pytest.mark.parametrize("downstream", ["retries", "declines", "raises"])
async def test_always_asks_the_others_first(
    autojump_clock: MockClock, downstream: str, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = model(fails("AUTH"), says("ok"), policy=ALWAYS)
    async with open_test_house(model=adapter, plugins=[llm_retry]) as house:

        async def others(
            _failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            if downstream == "raises":
                raise ValueError("no idea")
            return ev.agent.Retry() if downstream == "retries" else await call_next()

        # After the plugin: a registration of the root context comes first of all slots.
        await house.kernel.mount(plugin_of(others), slot=9).ready()
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "ok"
        asked = len(house.logged(handle, ev.llm.RetryStarted))
        assert asked == (0 if downstream == "retries" else 1)
        assert ("no idea" in caplog.text) == (downstream == "raises")


def plugin_of(listener: RecoverFn) -> Plugin:
    """A plugin whose one listener this is."""

    @plugin(name="others")
    async def others(ctx: Context) -> None:
        ctx.on(ev.agent.REQUEST_ERROR)(listener)

    return others


@pytest.mark.holds("E15", "E16", "YR21", "YR22", "YR20")
@pytest.mark.parametrize("end", ["cancel", "unload"])
async def test_recovery_by_others_is_waited_for(autojump_clock: MockClock, end: str) -> None:
    left: list[str] = []
    adapter = model(fails(), says("never"), policy=ALWAYS)
    async with open_test_house(model=adapter) as house:
        fiber = house.kernel.mount(llm_retry, slot=1)
        await fiber.ready()

        async def slow(
            _failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
        ) -> ev.agent.Retry | None:
            try:
                await trio.sleep(3)
                return await call_next()
            finally:
                left.append("recovery")

        await house.kernel.mount(plugin_of(slow), slot=9).ready()
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await wait_all_tasks_blocked()
        if end == "cancel":
            handle.agent.cancel(records.UserCause())
            await handle.agent.when_idle()
        else:
            await fiber.dispose()
        assert left == ["recovery"]
        await handle.agent.when_idle()
        assert len(adapter.requests) == 1


@pytest.mark.holds("YP01", "E14")
async def test_the_records_are_stored_and_no_message_comes_of_them(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    plugins = [llm_retry]
    async with open_test_house(model=model(fails(), says("ok")), plugins=plugins, store=store) as a:
        handle = await a.agent()
        await handle.agent.ask(user_message("go"))
        before = a.logged(handle, ev.llm.Retry), a.logged(handle, ev.llm.RetryStarted)
        roles = [message.role for message in a.session(handle).derive_messages()]
        await handle.aclose()
    async with open_test_house(replies=[says("more")], plugins=plugins, store=store) as house:
        again = await house.agents.resume("s")
        due = house.logged(again, ev.llm.Retry)
        assert (due, house.logged(again, ev.llm.RetryStarted)) == before
        assert len(due) == 1
        derived = house.session(again).derive_messages()
        assert [message.role for message in derived] == roles == ["user", "assistant"]
