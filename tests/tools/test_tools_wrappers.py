"""Listeners around the body: their results pass the same contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from typing_extensions import override

from dsh import catalog as ev
from dsh.errors import ToolError
from dsh.hooks.live import ToolFailed, ToolRun, ToolSuccess
from dsh.testing import (
    EchoArgs,
    always_review,
    context_of,
    echo,
    echo_tool,
    told,
    wrap_execute,
)

if TYPE_CHECKING:
    from dsh import Next
    from dsh.hooks.live import ToolResult
    from dsh.testing import ToolRoom


def texts(result: ToolResult) -> list[str]:
    return [message.id for message in result.contexts]


def success(value: object, *, text: str = "", contexts: tuple[str, ...] = ()) -> ToolSuccess:
    return ToolSuccess(
        value=value,  # type: ignore[arg-type]
        content=(ev.records.TextBlock(text=text),),
        contexts=tuple(context_of(one) for one in contexts),
    )


@pytest.mark.holds("XT71", "XT07")
async def test_a_wrapper_may_answer_without_the_body_through_the_contract(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    ran: list[str] = []

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        ran.append("body")
        return ""

    room.tools.register(ctx, echo_tool(body))

    async def cached(_call_next: Next[ToolResult]) -> ToolResult:
        return success("from the cache", text="not what the contract renders")

    wrap_execute(ctx, cached)
    assert told(await room.run("echo")).text == "from the cache"
    assert ran == []


@pytest.mark.parametrize("value", [5, {"a": 1}, float("nan"), object()])
async def test_a_wrappers_value_that_breaks_the_contract_is_a_failure(
    room: ToolRoom, value: object
) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))

    async def wrong(_call_next: Next[ToolResult]) -> ToolResult:
        return success(value)

    wrap_execute(ctx, wrong)
    assert told(await room.run("echo")).code == "INVALID_TOOL_OUTPUT"


@pytest.mark.holds("XT23")
async def test_a_wrappers_failure_is_normalised(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))

    async def late(_call_next: Next[ToolResult]) -> ToolResult:
        return ToolFailed(message="too slow", content=())

    wrap_execute(ctx, late)
    assert told(await room.run("echo")).text == "Error: too slow"


@pytest.mark.holds("XT24")
async def test_a_tool_that_went_away_has_no_contract_for_a_wrappers_value(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    held = room.tools.register(ctx, echo_tool(echo))

    async def drop(_call_next: Next[ToolResult]) -> ToolResult:
        held.dispose()
        return success("x", contexts=("kept",))

    wrap_execute(ctx, drop)
    finished = await room.run("echo")
    assert told(finished).code == "INVALID_TOOL_OUTPUT"
    assert texts(finished.result) == ["kept"]


async def test_a_tool_that_went_away_before_the_body_is_unknown(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    held = room.tools.register(ctx, echo_tool(echo))

    async def drop(call_next: Next[ToolResult]) -> ToolResult:
        held.dispose()
        return await call_next()

    wrap_execute(ctx, drop)
    assert told(await room.run("echo")).code == "UNKNOWN_TOOL"


@pytest.mark.holds("XT53", "F14")
async def test_a_cancel_on_the_way_to_the_body_is_seen_before_the_body(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    ran: list[str] = []

    async def body(args: EchoArgs, _run: ToolRun) -> str:
        ran.append(args.text)
        return args.text

    room.tools.register(ctx, echo_tool(body))

    async def outer(call_next: Next[ToolResult]) -> ToolResult:
        return await call_next()

    async def inner(call_next: Next[ToolResult]) -> ToolResult:
        room.signal.cancel()
        return await call_next()

    wrap_execute(ctx, outer)
    wrap_execute(ctx, inner)
    finished = await room.run("echo")
    assert told(finished).code == "ABORTED_BEFORE_DISPATCH"
    assert ran == []


@pytest.mark.holds("XT74")
async def test_a_wrapper_that_raises_fails_the_call_and_skips_the_review(room: ToolRoom) -> None:
    ctx = await room.plugin("p")

    async def body(_args: EchoArgs, run: ToolRun) -> str:
        run.defer_context(context_of("deferred"))
        return ""

    room.tools.register(ctx, echo_tool(body))

    async def broken(call_next: Next[ToolResult]) -> ToolResult:
        await call_next()
        raise ToolError("wrapper", code="W")

    wrap_execute(ctx, broken)
    always_review(ctx, ev.tools.Block(feedback=()))
    finished = await room.run("echo")
    assert (told(finished).text, told(finished).code) == ("Error: wrapper", "W")
    assert texts(finished.result) == ["deferred"]


@pytest.mark.holds("XT67")
async def test_wrappers_see_a_raising_body_as_a_failed_result(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    seen: list[ToolResult] = []

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        raise ValueError("x")

    room.tools.register(ctx, echo_tool(body))

    async def look(call_next: Next[ToolResult]) -> ToolResult:
        seen.append(await call_next())
        return seen[-1]

    wrap_execute(ctx, look)
    await room.run("echo")
    assert isinstance(seen[0], ToolFailed)


async def test_a_wrapper_may_run_the_body_again_and_the_last_attempt_counts(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    attempts: list[int] = []

    async def body(_args: EchoArgs, run: ToolRun) -> str:
        attempts.append(1)
        run.defer_context(context_of(f"attempt {len(attempts)}"))
        if len(attempts) < 2:
            raise ValueError("flaky")
        return "done"

    room.tools.register(ctx, echo_tool(body))

    async def again(call_next: Next[ToolResult]) -> ToolResult:
        first = await call_next()
        return first if isinstance(first, ToolSuccess) else await call_next()

    wrap_execute(ctx, again)
    finished = await room.run("echo")
    assert told(finished).text == "done"
    assert texts(finished.result) == ["attempt 2"]


@pytest.mark.holds("XT54")
async def test_a_wrapper_whose_own_scope_is_cancelled_already_starts_no_body(
    room: ToolRoom,
) -> None:
    ctx = await room.plugin("p")
    ran: list[str] = []
    answered: list[ToolResult] = []

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        ran.append("body")
        return ""

    room.tools.register(ctx, echo_tool(body))

    async def too_late(call_next: Next[ToolResult]) -> ToolResult:
        with trio.CancelScope() as scope:
            scope.cancel()
            answered.append(await call_next())
        return answered[0]

    wrap_execute(ctx, too_late)
    finished = told(await room.run("echo"))
    assert finished.code == "ABORTED_BEFORE_DISPATCH"
    assert ran == []
    assert not room.signal.cancelled


@pytest.mark.holds("XT61", "XT70")
@pytest.mark.parametrize("wrappers", [1, 2])
async def test_the_cancel_of_the_turn_reaches_a_body_through_the_scopes_of_its_wrappers(
    room: ToolRoom, wrappers: int
) -> None:
    ctx = await room.plugin("p")
    ended: list[str] = []

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("body")
        raise AssertionError

    async def limited(call_next: Next[ToolResult]) -> ToolResult:
        with trio.CancelScope():
            return await call_next()
        raise AssertionError  # the cancel is the turn's, and passes

    room.tools.register(ctx, echo_tool(body))
    for _ in range(wrappers):
        wrap_execute(ctx, limited)
    results: list[str | None] = []

    async def run() -> None:
        results.append(told(await room.run("echo")).code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        room.signal.cancel()
    assert results == ["ABORTED"]
    assert ended == ["body"]


@pytest.mark.holds("XT62")
async def test_the_scope_of_a_wrapper_ends_with_it_and_the_review_has_the_signal_of_the_turn(
    room: ToolRoom,
) -> None:
    ctx = await room.plugin("p")
    reviewed: list[object] = []

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        await trio.sleep_forever()
        raise AssertionError

    async def short(call_next: Next[ToolResult]) -> ToolResult:
        with trio.CancelScope() as scope:
            scope.deadline = trio.current_time()
            return await call_next()
        return success("cut short")

    room.tools.register(ctx, echo_tool(body))
    wrap_execute(ctx, short)

    @ctx.on(ev.tools.POST_EXECUTE)
    async def review(
        payload: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        await trio.lowlevel.checkpoint()
        reviewed.append(payload.exec.signal)
        return await call_next()

    assert told(await room.run("echo")).text == "cut short"
    assert reviewed == [room.signal]
    assert not room.signal.cancelled


@pytest.mark.holds("XS22")
@pytest.mark.parametrize("broken", [False, True])
async def test_an_error_that_says_something_else_each_time_is_read_once(
    room: ToolRoom,
    broken: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    ctx = await room.plugin("p")
    reads: list[str] = []

    class Fickle(ToolError):
        def __init__(self) -> None:
            Exception.__init__(self)

        @override
        def __str__(self) -> str:
            reads.append("text")
            return f"said {reads.count('text')} times"

        @override
        def __getattribute__(self, name: str) -> object:
            if name != "code":
                return super().__getattribute__(name)
            reads.append("code")
            if broken:
                raise ValueError("no code today")
            return f"CODE_{reads.count('code')}\ud800"

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        raise Fickle

    room.tools.register(ctx, echo_tool(body))
    finished = told(await room.run("echo"))
    assert finished.text == "Error: said 1 times"
    assert finished.code == ("INTERNAL" if broken else "CODE_1\\ud800")
    assert sorted(reads) == ["code", "text"]
