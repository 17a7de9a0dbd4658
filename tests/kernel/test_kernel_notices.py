"""Notices, votes, barriers and the feed of the log: order, policies, containment."""

from __future__ import annotations

from typing import cast

import pytest
import trio
from attrs import frozen

from dsh.errors import BadAnswer, BadListener, PluginError
from dsh.hooks import (
    CoreNotice,
    Emit,
    ErrorPolicy,
    Serial,
)
from dsh.kernel import Context, Plugin, core_of, open_kernel, plugin
from dsh.testing.kernel_parts import BARRIER, FACT, TOLD, Barrier, Told


@frozen
class Vetoed(CoreNotice):
    n: int = 0


@frozen
class Strict(CoreNotice):
    n: int = 0


@frozen
class Poll:
    n: int = 0


VETOED: Emit[Vetoed] = Emit("test/vetoed", Vetoed, errors="veto", scope_of=None, owner="core")
STRICT: Emit[Strict] = Emit("test/strict", Strict, errors="propagate", scope_of=None, owner="core")


def poll(errors: ErrorPolicy) -> Serial[Poll, int]:
    return Serial(
        f"test/poll-{errors}", Poll, answers=(int,), errors=errors, scope_of=None, owner="core"
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.name}: {record.getMessage()}" for record in caplog.records]


@pytest.mark.holds("KN23", "case-067")
async def test_contained_notice_goes_on_and_names_plugin_event_and_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[int] = []

    @plugin(name="bad")
    async def bad(ctx: Context) -> None:
        @ctx.on(TOLD)
        def breaks(_told: Told) -> None:
            raise RuntimeError("boom")

    async with open_kernel() as kernel:
        await kernel.mount(bad).ready()
        kernel.root.on(TOLD)(lambda told: heard.append(told.n))
        kernel.mount(_hearing(heard), slot=5)
        await kernel.settled()
        kernel.root.emit(Told(4))
    assert heard == [4, 40]
    (line,) = warnings(caplog)
    for word in ("dsh.plugin.bad", "'test/told'", "test_kernel_notices.py:", "boom"):
        assert word in line


def _hearing(heard: list[int]) -> Plugin:
    @plugin(name="hears")
    async def hears(ctx: Context) -> None:
        ctx.on(TOLD)(lambda told: heard.append(told.n * 10))

    return hears


@pytest.mark.holds("KN32")
async def test_veto_raises_the_first_failure_and_stops() -> None:
    async with open_kernel() as kernel:
        heard: list[int] = []
        boom = ValueError("no")

        @kernel.root.on(VETOED)
        def refuses(_notice: Vetoed) -> None:
            raise boom

        kernel.root.on(VETOED)(lambda notice: heard.append(notice.n))
        with pytest.raises(ValueError, match="no") as caught:
            kernel.root.emit(Vetoed(1))
        assert caught.value is boom
        assert heard == []


@pytest.mark.holds("KN32")
async def test_propagate_runs_all_then_raises_one_or_a_group() -> None:
    async with open_kernel() as kernel:
        heard: list[int] = []
        boom = ValueError("no")

        def refuses(_notice: Strict) -> None:
            raise boom

        one = kernel.root.on(STRICT)(refuses)
        kernel.root.on(STRICT)(lambda notice: heard.append(notice.n))
        with pytest.raises(ValueError, match="no") as caught:
            kernel.root.emit(Strict(1))
        assert caught.value is boom
        kernel.root.on(STRICT)(refuses)
        with pytest.raises(ExceptionGroup) as group:
            kernel.root.emit(Strict(2))
        assert group.value.exceptions == (boom, boom)
        assert heard == [1, 2]
        one.dispose()


async def test_an_async_function_on_a_notice_or_log_event_is_refused_at_registration() -> None:
    async with open_kernel() as kernel:

        async def waits(_payload: object) -> None: ...

        with pytest.raises(BadListener) as notice:
            kernel.root.on(TOLD)(waits)  # type: ignore[arg-type]
        with pytest.raises(BadListener) as fact:
            kernel.root.on(FACT)(waits)  # type: ignore[arg-type]
        for error, name in ((notice.value, TOLD.name), (fact.value, FACT.name)):
            for word in ("async", "ctx.observe", name, "test_kernel_notices.py:"):
                assert word in str(error)


async def test_a_lambda_that_returns_a_coroutine_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_kernel() as kernel:

        async def waits(_told: Told) -> None: ...

        kernel.root.on(TOLD)(lambda _told: waits(Told(1)))  # type: ignore[arg-type]
        kernel.root.emit(Told())
    (line,) = warnings(caplog)
    assert "coroutine" in line
    assert "ctx.observe" in line


async def test_only_core_contexts_emit_core_notices() -> None:
    refused: list[str] = []

    @plugin(name="cheeky")
    async def cheeky(ctx: Context) -> None:
        with pytest.raises(PluginError) as caught:
            ctx.emit(Vetoed())  # type: ignore[arg-type]
        refused.append(str(caught.value))
        core_of(ctx).emit(Vetoed())

    async with open_kernel() as kernel:
        await kernel.mount(cheeky).ready()
    assert "'cheeky'" in refused[0]
    assert "'test/vetoed'" in refused[0]


@pytest.mark.holds("KN32")
async def test_serial_runs_every_listener_and_keeps_the_votes() -> None:
    token = poll("propagate")
    async with open_kernel() as kernel:
        trail: list[str] = []

        @kernel.root.on(token)
        async def first(poll: Poll) -> int | None:
            trail.append("first")
            return poll.n

        @kernel.root.on(token)
        async def second(_poll: Poll) -> int | None:
            trail.append("second")
            return None

        @kernel.root.on(token)
        async def third(poll: Poll) -> int | None:
            trail.append("third")
            return poll.n + 1

        assert await kernel.root.serial(token)(Poll(0)) == (0, 1)
        assert trail == ["first", "second", "third"]
        assert first.dispose()
        assert await kernel.root.serial(token)(Poll(5)) == (6,)


@pytest.mark.parametrize(
    ("errors", "answers", "raised"),
    [("contain", (2,), None), ("veto", None, ValueError), ("propagate", None, ValueError)],
)
async def test_serial_failure_policies(
    errors: ErrorPolicy, answers: tuple[int, ...] | None, raised: type[Exception] | None
) -> None:
    token = poll(errors)
    async with open_kernel() as kernel:
        ran: list[str] = []

        @kernel.root.on(token)
        async def breaks(_poll: Poll) -> int | None:
            raise ValueError("boom")

        @kernel.root.on(token)
        async def votes(_poll: Poll) -> int | None:
            ran.append("votes")
            return 2

        if raised is None:
            assert await kernel.root.serial(token)(Poll()) == answers
        else:
            with pytest.raises(raised):
                await kernel.root.serial(token)(Poll())
        assert ran == ([] if errors == "veto" else ["votes"])


async def test_serial_answers_are_checked() -> None:
    token = poll("propagate")
    async with open_kernel() as kernel:

        async def wrong(_poll: Poll) -> int | None:
            return cast("int", "2")

        kernel.root.on(token)(wrong)
        with pytest.raises(BadAnswer, match=r"answered str to 'test/poll-propagate'.*allowed: int"):
            await kernel.root.serial(token)(Poll())


@pytest.mark.holds("KN33")
async def test_parallel_runs_all_to_the_end_and_raises_the_failures_together() -> None:
    async with open_kernel() as kernel:
        done: list[str] = []
        go = trio.Event()

        @kernel.root.on(BARRIER)
        async def breaks(_barrier: Barrier) -> None:
            raise ValueError("early")

        @kernel.root.on(BARRIER)
        async def slow(_barrier: Barrier) -> None:
            await go.wait()
            done.append("slow")

        @kernel.root.on(BARRIER)
        async def frees(_barrier: Barrier) -> None:
            await trio.testing.wait_all_tasks_blocked()
            go.set()
            raise KeyError("late")

        with pytest.raises(ExceptionGroup) as caught:
            await kernel.root.parallel(Barrier())
        assert sorted(type(e).__name__ for e in caught.value.exceptions) == [
            "KeyError",
            "ValueError",
        ]
        assert done == ["slow"]


async def test_parallel_of_one_listener_raises_a_group_too_and_nobody_is_fine() -> None:
    async with open_kernel() as kernel:
        await kernel.root.parallel(Barrier())

        @kernel.root.on(BARRIER)
        async def breaks(_barrier: Barrier) -> None:
            raise ValueError

        with pytest.raises(ExceptionGroup):
            await kernel.root.parallel(Barrier())
