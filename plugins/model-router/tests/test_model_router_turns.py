"""Routing in the real loop: by step, after failures, and back again."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh import user_message
from dsh.catalog import records
from dsh.llm import ScriptEntry
from dsh.testing import (
    ScriptedReplies,
    TestHouse,
    broken_laws,
    call,
    calls,
    open_test_house,
    says,
)
from dsh_plugins.llm_retry import llm_retry
from dsh_plugins.model_router import model_router
from dsh_plugins.model_router.catalog import FallbackRoute, ModelRouterConfig, StepRoute

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trio.testing import MockClock

STRONG = StepRoute(first=1, last=1, provider="strong", model="s-1", reasoning_effort="high")
SPARES = (
    FallbackRoute(provider="spare", model="b-1"),
    FallbackRoute(provider="nobody", model="c-1"),
    FallbackRoute(provider="strong", model="s-1"),
)


def fails(code: str) -> ScriptEntry:
    return ScriptEntry(error=records.LlmFailure(message="no", code=code))


@asynccontextmanager
async def running(
    config: ModelRouterConfig, **models: ScriptedReplies
) -> AsyncGenerator[TestHouse]:
    main = models.pop("main")
    async with open_test_house(model=main, plugins=[llm_retry]) as house:
        for name, model in models.items():
            house.llm.register(house.ctx, model, (name,))
        await house.kernel.mount(model_router, config, slot=9).ready()
        yield house


async def test_each_step_goes_to_its_model_and_the_others_to_the_agent_s_own() -> None:
    main = ScriptedReplies([calls(call("none")), says("one"), says("two")])
    strong = ScriptedReplies([calls(call("none")), says("three")])
    async with running(ModelRouterConfig(steps=(STRONG,)), main=main, strong=strong) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "one"
        assert [request.reasoning_effort for request in strong.requests] == ["high"]
        assert [request.model for request in main.requests] == ["model-1", "model-1"]
        assert main.requests[0].reasoning_effort is None
        # Each turn counts its steps anew.
        assert (await handle.agent.ask(user_message("again"))).text == "three"
        assert broken_laws(house.session(handle)) == []


@pytest.mark.parametrize("code", ["AUTH", "QUOTA", "SERVER"])
async def test_a_fallback_takes_over_for_the_turn_once_the_retries_are_used_up(
    autojump_clock: MockClock, code: str
) -> None:
    policy = records.NormalRetryPolicy(max_retries=1, retryable_codes=("SERVER",))
    main = ScriptedReplies([fails(code), fails(code), says("healthy")], policy=policy)
    spare = ScriptedReplies([calls(call("none")), says("done")])
    async with running(ModelRouterConfig(fallbacks=SPARES), main=main, spare=spare) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "done"
        assert len(main.requests) == (2 if code == "SERVER" else 1)
        assert [request.model for request in spare.requests] == ["b-1", "b-1"]
        main.replies[:] = [says("healthy")]
        assert (await handle.agent.ask(user_message("again"))).text == "healthy"
        assert broken_laws(house.session(handle)) == []


async def test_the_next_one_steps_in_when_a_fallback_fails_and_then_the_failure_stands() -> None:
    main, spare = ScriptedReplies([fails("AUTH")]), ScriptedReplies([fails("AUTH")])
    strong = ScriptedReplies([fails("QUOTA")])
    async with running(
        ModelRouterConfig(fallbacks=SPARES), main=main, spare=spare, strong=strong
    ) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert outcome.reason.error.code == "QUOTA"
        session = house.session(handle)
        routes = [
            e.data.header.config.provider
            for e in session.events
            if isinstance(e.data, ev.request.Header)
        ]
        assert routes == ["test", "spare", "nobody", "strong"]


@pytest.mark.parametrize("code", ["CONTEXT_WINDOW_EXCEEDED", "INVALID_REQUEST", "CONTENT_FILTER"])
async def test_what_another_model_would_refuse_too_is_left_alone(code: str) -> None:
    main, spare = ScriptedReplies([fails(code)]), ScriptedReplies([says("never")])
    async with running(ModelRouterConfig(fallbacks=SPARES), main=main, spare=spare) as house:
        handle = await house.agent()
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
        assert spare.requests == []


async def test_without_rules_nothing_changes() -> None:
    main = ScriptedReplies([says("a"), fails("AUTH")])
    async with running(ModelRouterConfig(), main=main) as house:
        handle = await house.agent()
        assert (await handle.agent.ask(user_message("go"))).text == "a"
        outcome = await handle.agent.ask(user_message("go"))
        assert isinstance(outcome.reason, records.ErrorTurnEnd)
