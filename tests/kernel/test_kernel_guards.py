"""Waterfall guards: when `call_next` may be called, and what may be answered."""

from __future__ import annotations

import logging
from functools import partial
from typing import cast

import pytest
import trio

from dsh.errors import BadAnswer, BadListener, WaterfallMisuse
from dsh.hooks import Next, Waterfall
from dsh.kernel import open_kernel
from dsh.testing.kernel_parts import ASK, RERUN, Ask, No, Yes, yes_by_default


def refusal(error: BaseException, *words: str) -> None:
    for word in ("'kernel'", "'test/", "test_kernel_guards.py:", *words):
        assert word in str(error), f"{word!r} is not in {error}"


@pytest.mark.holds("KN19", "case-067")
async def test_call_next_twice_is_misuse() -> None:
    async with open_kernel() as kernel:

        @kernel.root.on(ASK)
        async def twice(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            await call_next()
            return await call_next()

        with pytest.raises(WaterfallMisuse) as caught:
            await kernel.root.waterfall(ASK)(Ask(), yes_by_default)
        refusal(caught.value, "twice", "at most once")


async def test_call_next_after_a_failure_below_is_twice_too() -> None:
    async with open_kernel() as kernel:
        runs: list[int] = []

        @kernel.root.on(ASK)
        async def retries(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            try:
                return await call_next()
            except ValueError:
                return await call_next()

        async def fails() -> Yes | No:
            runs.append(1)
            raise ValueError

        with pytest.raises(WaterfallMisuse):
            await kernel.root.waterfall(ASK)(Ask(), fails)
        assert runs == [1]


@pytest.mark.holds("KN19")
async def test_call_next_after_return_is_misuse_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_kernel() as kernel:
        kept: list[Next[Yes | No]] = []

        @kernel.root.on(ASK)
        async def keeps(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            kept.append(call_next)
            return Yes("kept")

        assert await kernel.root.waterfall(ASK)(Ask(), yes_by_default) == Yes("kept")
        with caplog.at_level(logging.WARNING), pytest.raises(WaterfallMisuse) as caught:
            await kept[0]()
        refusal(caught.value, "after its listener returned")
        assert [record.name for record in caplog.records] == ["dsh.plugin.kernel"]


async def test_call_next_made_in_time_but_awaited_late_is_misuse() -> None:
    async with open_kernel() as kernel:
        kept: list[object] = []

        @kernel.root.on(ASK)
        async def keeps(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            kept.append(call_next())
            return Yes("kept")

        await kernel.root.waterfall(ASK)(Ask(), yes_by_default)
        with pytest.raises(WaterfallMisuse, match="after its listener returned"):
            await kept[0]  # type: ignore[misc]


@pytest.mark.holds("KN19")
@pytest.mark.parametrize("token", [ASK, RERUN], ids=["once", "rerun"])
async def test_concurrent_call_next_is_misuse_even_where_rerun_is_allowed(
    token: Waterfall[Ask, object],
) -> None:
    async with open_kernel() as kernel:
        seen: list[WaterfallMisuse] = []
        answers: list[object] = []

        @kernel.root.on(token)
        async def forks(_ask: Ask, call_next: Next[object]) -> object:
            async def second() -> None:
                with pytest.raises(WaterfallMisuse) as caught:
                    await call_next()
                seen.append(caught.value)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(second)
                answers.append(await call_next())
            return answers[0]

        async def slow() -> object:
            await trio.testing.wait_all_tasks_blocked()
            return 1 if token is RERUN else Yes()

        await kernel.root.waterfall(token)(Ask(), slow)
        refusal(seen[0], "while an earlier call_next() was still running")


async def test_rerun_runs_the_whole_rest_again() -> None:
    async with open_kernel() as kernel:
        trail: list[str] = []

        @kernel.root.on(RERUN)
        async def retries(_ask: Ask, call_next: Next[int]) -> int:
            for _ in range(2):
                try:
                    return await call_next()
                except ValueError:
                    trail.append("again")
            return await call_next()

        @kernel.root.on(RERUN)
        async def below(_ask: Ask, call_next: Next[int]) -> int:
            trail.append("below")
            return await call_next()

        async def flaky() -> int:
            trail.append("default")
            if len(trail) < 6:
                raise ValueError
            return 3

        assert await kernel.root.waterfall(RERUN)(Ask(), flaky) == 3
        assert trail == ["below", "default", "again"] * 2 + ["below", "default"]


@pytest.mark.holds("KN20", "case-067")
async def test_answers_are_checked_by_class() -> None:
    async with open_kernel() as kernel:

        async def wrong(_ask: Ask, call_next: Next[object]) -> object:
            return "yes"

        async def forgets(_ask: Ask, call_next: Next[object]) -> object:
            await call_next()
            return None

        async def unawaited(_ask: Ask, call_next: Next[object]) -> object:
            return call_next()

        for listener, words in (
            (wrong, ("str", "Yes or No")),
            (forgets, ("None", "is a `return` missing?")),
            (unawaited, ("coroutine", "is an `await` missing")),
        ):
            handle = kernel.root.on(cast("Waterfall[Ask, object]", ASK))(listener)
            with pytest.raises(BadAnswer) as caught:
                await kernel.root.waterfall(ASK)(Ask(), yes_by_default)
            refusal(caught.value, *words)
            handle.dispose()


async def test_a_subclass_of_an_answer_and_a_lambda_are_accepted() -> None:
    class Sure(Yes):
        pass

    async with open_kernel() as kernel:
        sure = Sure("sure")

        async def answer(word: str, _ask: Ask, _call_next: Next[Yes | No]) -> Yes | No:
            return sure

        one = kernel.root.on(ASK)(lambda ask, call_next: answer("x", ask, call_next))
        assert await kernel.root.waterfall(ASK)(Ask(), yes_by_default) is sure
        one.dispose()
        kernel.root.on(ASK)(partial(answer, "x"))
        assert await kernel.root.waterfall(ASK)(Ask(), yes_by_default) is sure


async def test_a_plain_function_where_an_async_one_is_due_is_named() -> None:
    async with open_kernel() as kernel:

        def plain(_ask: Ask, _call_next: Next[Yes | No]) -> Yes:
            return Yes()

        kernel.root.on(ASK)(plain)  # type: ignore[arg-type]
        with pytest.raises(BadAnswer) as caught:
            await kernel.root.waterfall(ASK)(Ask(), yes_by_default)
        refusal(caught.value, "make it `async def`")


@pytest.mark.holds("KN21")
async def test_arity_is_checked_at_registration() -> None:
    async with open_kernel() as kernel:

        async def short(_ask: Ask) -> Yes:
            return Yes()

        with pytest.raises(BadListener) as caught:
            kernel.root.on(ASK)(short)  # type: ignore[arg-type]
        refusal(caught.value, "(payload, call_next)")
        assert kernel.listeners() == []


async def test_a_token_made_by_hand_is_refused() -> None:
    async with open_kernel() as kernel:
        twin: Waterfall[Ask, Yes | No] = Waterfall(
            "test/ask", Ask, answers=(), errors="propagate", scope_of=None, owner="me"
        )

        async def listener(_ask: Ask, call_next: Next[Yes | No]) -> Yes | No:
            return await call_next()

        kernel.root.on(ASK)(listener)
        with pytest.raises(BadListener, match="not the catalog's"):
            kernel.root.on(twin)(listener)
        assert len(kernel.listeners()) == 1
