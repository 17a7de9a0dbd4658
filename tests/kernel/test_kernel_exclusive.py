"""The lock of the hot path: one at a time, in order, and cheap when it is free."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dsh.kernel import Exclusive


async def test_tasks_enter_one_at_a_time_in_the_order_of_asking() -> None:
    lock = Exclusive()
    inside: list[int] = []

    async def work(number: int) -> None:
        async with lock:
            inside.append(number)
            await trio.lowlevel.checkpoint()
            assert inside[-1] == number

    async with trio.open_nursery() as nursery, lock:
        for number in range(4):
            nursery.start_soon(work, number)
            await wait_all_tasks_blocked()
        assert inside == []
    assert inside == [0, 1, 2, 3]


async def test_a_free_lock_lets_nobody_else_run() -> None:
    lock = Exclusive()
    ran: list[str] = []

    async def other() -> None:
        ran.append("other")
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async with lock:
            pass
        assert ran == []


async def test_a_cancelled_task_is_refused_and_one_that_waits_gives_up_its_place() -> None:
    lock = Exclusive()
    entered: list[str] = []

    async def waiting(scope: trio.CancelScope, name: str) -> None:
        with scope:
            async with lock:
                entered.append(name)

    gives_up = trio.CancelScope()
    async with trio.open_nursery() as nursery, lock:
        nursery.start_soon(waiting, gives_up, "first")
        await wait_all_tasks_blocked()
        nursery.start_soon(waiting, trio.CancelScope(), "second")
        await wait_all_tasks_blocked()
        gives_up.cancel()
        await wait_all_tasks_blocked()
    assert entered == ["second"]
    with trio.CancelScope() as cancelled:
        cancelled.cancel()
        async with lock:
            entered.append("cancelled")
    assert cancelled.cancelled_caught
    assert entered == ["second"]


async def test_a_failure_inside_gives_the_lock_back() -> None:
    lock = Exclusive()
    with pytest.raises(ZeroDivisionError):
        async with lock:
            _ = 1 // 0
    with trio.fail_after(1):
        async with lock:
            pass
