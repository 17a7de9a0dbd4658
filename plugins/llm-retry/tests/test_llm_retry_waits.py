"""Waits before retries: how long, who may end them, and what is left when they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from dsh import catalog as ev
from dsh import user_message
from dsh.catalog import records
from dsh.testing import (
    ScriptedReplies,
    broken_laws,
    fails,
    open_test_house,
    says,
)
from dsh_plugins.llm_retry import llm_retry

if TYPE_CHECKING:
    from trio.testing import MockClock

    from dsh.hooks import Next
    from dsh.testing.model import Reply

NORMAL = records.NormalRetryPolicy(jitter_ratio=0)
ALWAYS = records.AlwaysRetryPolicy(jitter_ratio=0)


def model(*replies: Reply, policy: records.RetryPolicy = NORMAL) -> ScriptedReplies:
    return ScriptedReplies(replies, policy=policy)


@pytest.mark.holds("E12", "YR07", "case-038")
async def test_a_wait_of_days_ends_the_turn_and_names_the_wait() -> None:
    days = fails("RATE_LIMIT", asks_ms=1_382_400_000.0)
    async with open_test_house(model=model(days), plugins=[llm_retry]) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.provider_retry_after_ms == 1_382_400_000
        assert house.logged(handle, ev.llm.Retry) == []


@pytest.mark.holds("E12", "E14")
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_server_that_asks_for_half_a_minute_gets_it_unless_the_person_leaves(
    autojump_clock: MockClock, *, cancelled: bool
) -> None:
    adapter = model(fails("RATE_LIMIT", asks_ms=30_000.0), says("there"))
    async with open_test_house(model=adapter, plugins=[llm_retry]) as house:
        handle = await house.agent()
        began = trio.current_time()
        handle.agent.followup(user_message("go"))
        await trio.sleep(29)
        due = house.logged(handle, ev.llm.Retry)[0]
        assert due.delay_ms == 30_000
        if cancelled:
            handle.agent.cancel(records.UserCause())
        await handle.agent.when_idle()
        assert trio.current_time() - began == pytest.approx(29 if cancelled else 30)
        assert len(adapter.requests) == (1 if cancelled else 2)
        ended = records.AbortedTurnEnd(reason=records.UserCause())
        assert house.reason(handle) == (ended if cancelled else records.CompletedTurnEnd())


@pytest.mark.holds("E12", "YR07", "YR08")
@pytest.mark.parametrize(("asked", "waited"), [(2500.0, 2500.0), (60_001.0, 500.0)])
async def test_always_follows_a_short_wish_and_uses_its_own_wait_for_a_long_one(
    autojump_clock: MockClock, asked: float, waited: float
) -> None:
    limited = fails("RATE_LIMIT", asks_ms=asked)
    adapter = model(limited, says("ok"), policy=ALWAYS)
    async with open_test_house(model=adapter, plugins=[llm_retry]) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "ok"
        due = house.logged(handle, ev.llm.Retry)[0]
        assert (due.delay_ms, due.mode, due.max_retries) == (waited, "always", None)


@pytest.mark.holds("E14", "YR24", "YR25", "YR26")
@pytest.mark.parametrize("moment", ["waiting", "record", "started", "failing"])
async def test_a_cancel_wins_wherever_the_retry_is(autojump_clock: MockClock, moment: str) -> None:
    async with open_test_house(model=model(fails(), says("never")), plugins=[llm_retry]) as house:
        handle = await house.agent()

        def cancel(_event: object = None) -> None:
            handle.agent.cancel(records.UserCause())

        if moment == "record":
            house.ctx.on(ev.llm.RETRY)(lambda _: cancel())
        elif moment == "started":
            house.ctx.on(ev.llm.RETRY_STARTED)(lambda _: cancel())
        elif moment == "failing":

            async def at_once(
                _failed: ev.agent.RequestError, call_next: Next[ev.agent.Retry | None]
            ) -> ev.agent.Retry | None:
                cancel()
                return await call_next()

            house.ctx.on(ev.agent.REQUEST_ERROR, prepend=True)(at_once)
        handle.agent.followup(user_message("go"))
        if moment == "waiting":
            await trio.sleep(0.25)
            cancel()
        await handle.agent.when_idle()
        assert house.reason(handle) == records.AbortedTurnEnd(reason=records.UserCause())
        assert len(house.model.requests) == 1
        expected = {"waiting": (1, 0), "record": (1, 0), "started": (1, 1), "failing": (0, 0)}[
            moment
        ]
        due, started = house.logged(handle, ev.llm.Retry), house.logged(handle, ev.llm.RetryStarted)
        assert (len(due), len(started)) == expected
        assert broken_laws(house.session(handle)) == []


@pytest.mark.holds("E16", "YR19", "YR23")
async def test_unloading_ends_a_wait_at_once_and_the_failure_stands(
    autojump_clock: MockClock,
) -> None:
    policy = records.NormalRetryPolicy(initial_delay_ms=5000, jitter_ratio=0)
    async with open_test_house(model=model(fails(), says("never"), policy=policy)) as house:
        fiber = house.kernel.mount(llm_retry, slot=1)
        await fiber.ready()
        handle = await house.agent()
        handle.agent.followup(user_message("go"))
        await trio.sleep(0.1)
        began = trio.current_time()
        await fiber.dispose()
        assert trio.current_time() - began < 0.01
        await handle.agent.when_idle()
        ended = house.reason(handle)
        assert isinstance(ended, records.ErrorTurnEnd)
        assert ended.error.code == "SERVER"
        assert len(house.logged(handle, ev.llm.Retry)) == 1
        assert house.logged(handle, ev.llm.RetryStarted) == []


@pytest.mark.holds("E13", "YI12")
async def test_a_plugin_loaded_again_within_a_step_goes_on_counting(
    autojump_clock: MockClock,
) -> None:
    policy = records.NormalRetryPolicy(max_retries=2, jitter_ratio=0)
    adapter = model(*[fails()] * 4, policy=policy)
    async with open_test_house(model=adapter) as house:
        fiber = house.kernel.mount(llm_retry, slot=1)
        await fiber.ready()
        reloaded: list[int] = []

        async def reload(
            _ask: ev.agent.Request, call_next: Next[records.LlmCallConfig]
        ) -> records.LlmCallConfig:
            if len(adapter.requests) == 1 and not reloaded:
                reloaded.append(1)
                await fiber.dispose()
                await house.kernel.mount(llm_retry, slot=1).ready()
            return await call_next()

        house.ctx.on(ev.agent.REQUEST)(reload)
        handle = await house.agent()
        await handle.agent.ask(user_message("go"))
        due = house.logged(handle, ev.llm.Retry)
        assert [one.retry for one in due] == [1, 2]
        assert len({one.retry_id for one in due}) == 1
        assert len(adapter.requests) == 3
