"""What it costs to ask and to tell: each mode of dispatch, by the number of its listeners.

What comes in: nothing. What goes out: a row for each mode, in microseconds of CPU, beside a bare
await of an async function. The listeners do nothing but pass on.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final, cast

import trio

from dsh import Context, Logged, Next, plugin
from dsh import catalog as ev
from dsh.kernel import core_of, open_kernel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from dsh.hooks import live
    from dsh.kernel import CoreContext, Plugin

__all__ = ["COUNTS", "dispatch_rows"]

COUNTS: Final = (0, 1, 5, 20)


class _Scopeless:
    """Stands in for the agent of a payload: dispatch reads its scope, and nothing else."""

    scope = None


def _listening(count: int) -> Plugin:
    """A plugin with `count` listeners of each mode that is measured."""

    @plugin(name="listening")
    async def listening(ctx: Context) -> None:
        async def ask(
            _step: ev.agent.PreStep, call_next: Next[ev.agent.PreStepDecision]
        ) -> ev.agent.PreStepDecision:
            return await call_next()

        async def vote(_stopping: ev.agent.TurnStopping) -> ev.agent.KeepGoing | None:
            return None

        def told(_status: ev.agent.Status) -> None: ...

        def logged(_event: Logged[ev.turn.Start]) -> None: ...

        for _ in range(count):
            ctx.on(ev.agent.PRE_STEP)(ask)
            ctx.on(ev.agent.TURN_STOPPING)(vote)
            ctx.on(ev.agent.STATUS)(told)
            ctx.on(ev.turn.START)(logged)

    return listening


async def _timed(repeats: int, times: int, once: Callable[[], Awaitable[object] | None]) -> float:
    """The median of microseconds of CPU that one `once()` takes."""
    taken: list[float] = []
    for _ in range(repeats):
        begun = time.process_time()
        for _ in range(times):
            pending = once()
            if pending is not None:
                await pending
        taken.append(1e6 * (time.process_time() - begun) / times)
    return statistics.median(taken)


def _questions(ctx: CoreContext) -> dict[str, Callable[[], Awaitable[object] | None]]:
    agent = cast("live.Agent", _Scopeless())
    signal = cast("live.TurnSignal", None)
    step = ev.agent.PreStep(agent=agent, messages=(), turn=1, step=1, signal=signal)
    stopping = ev.agent.TurnStopping(agent=agent, turn=1, signal=signal)
    status = ev.agent.Status(agent=agent, status="idle")
    committed = Logged(0, 0, ev.turn.Start(turn=1), cast("live.Session", _Scopeless()))
    answer = ev.agent.Enter(messages=())

    async def default() -> ev.agent.PreStepDecision:
        return answer

    return {
        "waterfall": lambda: ctx.waterfall(ev.agent.PRE_STEP)(step, default),
        "waterfall, by": lambda: ctx.waterfall_by(ev.agent.PRE_STEP)(step, default),
        "serial": lambda: ctx.serial(ev.agent.TURN_STOPPING)(stopping),
        "emit": lambda: ctx.emit(status),
        "log event": lambda: ctx.publish(committed),
    }


async def _measure(repeats: int, times: int) -> dict[str, dict[str, float]]:
    async def bare() -> None: ...

    alone = await _timed(repeats, times, bare)
    found: dict[str, dict[str, float]] = {}
    for count in COUNTS:
        async with open_kernel() as kernel:
            await kernel.mount(_listening(count)).ready()
            for mode, once in _questions(core_of(kernel.root)).items():
                taken = await _timed(repeats, times, once)
                found.setdefault(mode, {})[str(count)] = round(taken, 2)
    return {"bare await": {"0": round(alone, 2)}, **found}


def dispatch_rows(*, repeats: int, times: int) -> Iterator[dict[str, object]]:
    """A row for each mode; its keys are the numbers of listeners."""
    for mode, taken in trio.run(_measure, repeats, times).items():
        yield {"row": f"dispatch: {mode}", "unit": "us CPU", **taken}
