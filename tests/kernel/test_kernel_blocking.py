"""Blocking the thread: whoever does it is named, with the line, once everything goes on."""

from __future__ import annotations

import time

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from dsh.hooks import Emit, Next, Notice, Waterfall
from dsh.kernel import Context, open_kernel, plugin


@frozen
class Told(Notice):
    n: int = 0


TOLD: Emit[Told] = Emit("test/blocking-told", Told, errors="contain", scope_of=None, owner="core")
ASK: Waterfall[Told, int] = Waterfall(
    "test/blocking-ask", Told, answers=(int,), errors="propagate", scope_of=None, owner="core"
)


def block() -> None:
    """What no plugin should do: the subject of these tests, so it really blocks."""
    time.sleep(0.2)


@plugin(name="sync")
async def sync_blocker(ctx: Context) -> None:
    @ctx.on(TOLD)
    def hold(_told: Told) -> None:
        block()


@plugin(name="async")
async def async_blocker(ctx: Context) -> None:
    @ctx.on(ASK)
    async def hold(_told: Told, call_next: Next[int]) -> int:
        await trio.lowlevel.checkpoint()
        block()
        return await call_next()


@plugin(name="background")
async def task_blocker(ctx: Context) -> None:
    async def work() -> None:
        block()

    ctx.spawn(work, label="work")


@plugin(name="early")
async def apply_blocker(ctx: Context) -> None:
    block()


async def settle() -> None:
    """Let the watching thread see that the block is over, and its report arrive."""
    for _ in range(3):
        await trio.to_thread.run_sync(time.sleep, 0.02)
        await wait_all_tasks_blocked()


@pytest.mark.holds("KN34", "case-067")
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("sync", "its listener of 'test/blocking-told'"),
        ("async", "its listener of 'test/blocking-ask'"),
        ("background", "in block at"),
        ("early", "its apply"),
    ],
)
async def test_whoever_blocks_the_thread_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    monkeypatch.setattr("dsh.kernel.blocking.TICK", 0.02)
    chosen = {
        "sync": sync_blocker, "async": async_blocker, "background": task_blocker,
        "early": apply_blocker,
    }[name]  # fmt: skip

    async def one() -> int:
        return 1

    async with open_kernel() as kernel:
        await kernel.mount(chosen).ready()
        kernel.root.emit(Told())
        await kernel.root.waterfall(ASK)(Told(), one)
        await settle()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"plugin {name!r}, in ")
    assert part in line
    assert "test_kernel_blocking.py:" in line
    assert "blocked the thread for 0.1" in line or "blocked the thread for 0.2" in line
    assert caplog.records[0].name == f"dsh.plugin.{name}"


@pytest.mark.holds("KN34")
async def test_waiting_is_not_blocking(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh.kernel.blocking.TICK", 0.02)

    @plugin(name="patient")
    async def patient(ctx: Context) -> None:
        @ctx.on(ASK)
        async def wait(_told: Told, call_next: Next[int]) -> int:
            await trio.to_thread.run_sync(block)
            return await call_next()

    async def one() -> int:
        return 1

    async with open_kernel() as kernel:
        await kernel.mount(patient).ready()
        await kernel.root.waterfall(ASK)(Told(), one)
        await settle()
    assert caplog.records == []
