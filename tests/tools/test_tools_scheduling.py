"""Any calls, modes, durations, failures and cancels: the laws of a batch hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.hooks.live import ToolSuccess
from dsh.testing import open_tool_room
from dsh.tools import define_tool

if TYPE_CHECKING:
    from dsh import Next
    from dsh.hooks.live import ToolRun
    from dsh.testing import ToolRoom


@attrs.frozen
class Job:
    """What one body does. Times are in seconds of a mock clock."""

    mode: str = "parallel"
    seconds: float = 0.0
    end: str = "ok"


JOBS = st.builds(
    Job,
    mode=st.sampled_from(["parallel", "parallel", "exclusive", "raise"]),
    seconds=st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    end=st.sampled_from(["ok", "ok", "raise", "swallow", "shield", "deny", "unknown"]),
)


@attrs.define
class Watch:
    """Who runs now, and every law that was broken."""

    limit: int
    now: dict[str, str] = attrs.field(factory=dict)
    broken: list[str] = attrs.field(factory=list)

    def enter(self, call_id: str, mode: str) -> None:
        if self.now and ("exclusive" in self.now.values() or mode != "parallel"):
            self.broken.append(f"{call_id} ({mode}) overlaps {self.now}")
        self.now[call_id] = "parallel" if mode == "parallel" else "exclusive"
        if len(self.now) > self.limit:
            self.broken.append(f"{len(self.now)} overlap, {self.limit} may")


async def scenario(jobs: list[Job], limit: int, cancel_at: float | None, outer: bool) -> None:  # noqa: FBT001
    async with open_tool_room() as room:
        watch = Watch(limit)
        await register(room, watch)
        blocks = [
            ev.records.ToolCallBlock(
                id=f"c{number}",
                name="unknown" if job.end == "unknown" else "job",
                arguments=json.dumps(attrs.asdict(job)),
            )
            for number, job in enumerate(jobs)
        ]
        room.host.cap = limit
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                if cancel_at is not None:
                    nursery.start_soon(cancel, room, scope if outer else None, cancel_at)
                await room.batch(*blocks)
                nursery.cancel_scope.cancel()
        check(room, watch, jobs)


async def cancel(room: ToolRoom, scope: trio.CancelScope | None, at: float) -> None:
    await trio.sleep(at)
    if scope is not None:
        scope.cancel()
    else:
        room.signal.cancel()


async def register(room: ToolRoom, watch: Watch) -> None:
    ctx = await room.plugin("jobs")

    async def body(job: Job, run: ToolRun) -> str:
        watch.enter(run.call_id, job.mode)
        try:
            run.defer_context(
                ev.records.UserMessage(
                    id=run.call_id, content=(), source=ev.records.PluginSource(plugin="jobs")
                )
            )
            with trio.CancelScope(shield=job.end == "shield"):
                await trio.sleep(job.seconds)
            if job.end == "raise":
                raise ValueError(run.call_id)
        except trio.Cancelled:
            if job.end != "swallow":
                raise
        finally:
            del watch.now[run.call_id]
        return run.call_id

    def mode(job: Job) -> str:
        if job.mode == "raise":
            raise ValueError
        return job.mode

    tool = define_tool(
        name="job",
        description="",
        args=Job,
        output=str,
        execute=body,
        execution_mode=mode,  # type: ignore[arg-type]
    )
    room.tools.register(ctx, tool)

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        arguments = event.exec.arguments
        if isinstance(arguments, dict) and arguments.get("end") == "deny":
            return ev.tools.Deny(reason="denied")
        return await call_next()


def check(room: ToolRoom, watch: Watch, jobs: list[Job]) -> None:
    expected = [f"c{number}" for number in range(len(jobs))]
    assert watch.broken == []
    assert watch.now == {}
    assert [committed.call_id for committed in room.host.results] == expected
    calls = [line.removeprefix("call ") for line in room.host.log if line.startswith("call ")]
    assert calls == expected
    for committed in room.host.results:
        assert room.host.log[committed.seq] == f"call {committed.call_id}"
        assert committed.seq < room.host.log.index(f"result {committed.call_id}")
    told = [message.id for message in room.host.contexts]
    assert told == sorted(told, key=expected.index)
    for committed, job in zip(room.host.results, jobs, strict=True):
        if isinstance(committed.result, ToolSuccess):
            assert job.end in ("ok", "swallow", "shield")
            assert committed.call_id in told


@pytest.mark.holds("F3", "F4", "F5", "F7", "F8", "TC03", "TC04", "TC18")
@settings(max_examples=200, deadline=None)
@given(
    jobs=st.lists(JOBS, max_size=8),
    limit=st.integers(1, 4),
    cancel_at=st.none() | st.sampled_from([0.0, 0.5, 1.5, 2.5, 4.5]),
    outer=st.booleans(),
)
def test_the_laws_of_a_batch(
    jobs: list[Job],
    limit: int,
    cancel_at: float | None,
    outer: bool,  # noqa: FBT001
) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(scenario, jobs, limit, cancel_at, outer, clock=clock)
