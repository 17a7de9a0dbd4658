"""After the body: review, final content, observers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from dsh import catalog as ev
from dsh.catalog.config import ToolsConfig
from dsh.errors import ToolError
from dsh.hooks.live import ToolFailed, ToolRun, ToolSuccess
from dsh.testing import (
    EchoArgs,
    always_pre,
    always_review,
    context_of,
    echo,
    echo_tool,
    open_tool_room,
    text_blocks,
    told,
    wrap_execute,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh import Next
    from dsh.hooks.live import ToolExecution, ToolResult
    from dsh.testing import ToolRoom


def texts(result: ToolResult) -> list[str]:
    return [message.id for message in result.contexts]


@pytest.mark.holds("XT15", "XT40")
async def test_content_replaced_keeps_the_value(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    always_review(ctx, ev.tools.Accept(content=text_blocks("short")))
    result = (await room.run("echo")).result
    assert isinstance(result, ToolSuccess)
    assert (result.value, result.content) == ("x", text_blocks("short"))


@pytest.mark.holds("XT15", "XT18")
async def test_value_replaced_is_checked_and_rendered_again(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    always_review(ctx, ev.tools.Accept(value="new"))
    result = (await room.run("echo")).result
    assert isinstance(result, ToolSuccess)
    assert (result.value, result.content, result.contexts) == ("new", text_blocks("new"), ())


@pytest.mark.holds("XT16", "XT20", "XT21")
@pytest.mark.parametrize(
    ("decision", "fails", "words"),
    [
        (ev.tools.Accept(content=text_blocks("a"), value="b"), False, "both content and value"),
        (ev.tools.Accept(value=5), False, "contract forbids"),
        (ev.tools.Accept(value="v"), True, "gave a value to a failed result"),
        (ev.tools.Accept(content=({"type": "text"},)), False, "cannot be logged"),  # type: ignore[arg-type]
    ],
)
async def test_an_impossible_review_is_a_failure(
    room: ToolRoom,
    decision: ev.tools.PostExecuteDecision,
    fails: bool,  # noqa: FBT001
    words: str,
) -> None:
    ctx = await room.plugin("p")

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        if fails:
            raise ValueError("body")
        return "ok"

    room.tools.register(ctx, echo_tool(body))
    always_review(ctx, decision)
    finished = await room.run("echo")
    assert isinstance(finished.result, ToolFailed)
    assert words in told(finished).text


@pytest.mark.holds("XT22")
async def test_a_value_cannot_be_replaced_when_its_tool_is_gone(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    held = room.tools.register(ctx, echo_tool(echo))

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        _event: ev.tools.PostExecute, _call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        held.dispose()
        return ev.tools.Accept(value="new")

    assert told(await room.run("echo")).code == "INVALID_TOOL_OUTPUT"


@pytest.mark.holds("XT17", "XT41", "XT44", "XT47")
async def test_a_block_drops_the_value_and_what_the_body_deferred(room: ToolRoom) -> None:
    ctx = await room.plugin("censor")

    async def body(_args: EchoArgs, run: ToolRun) -> str:
        run.defer_context(context_of("body"))
        run.conclude_turn()
        return "secret"

    room.tools.register(ctx, echo_tool(body))
    always_review(
        ctx,
        ev.tools.Block(
            feedback=text_blocks("not that"), additional_contexts=(context_of("decision"),)
        ),
    )
    finished = await room.run("echo")
    assert finished.result == ToolFailed(
        message="not that", content=text_blocks("not that"), contexts=(context_of("decision"),)
    )
    assert finished.decided_by == "censor"


@pytest.mark.holds("XT19")
async def test_a_block_without_text_has_a_message_all_the_same(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    always_review(ctx, ev.tools.Block(feedback=()))
    finished = await room.run("echo")
    assert told(finished).text == "Error: the result was blocked by a policy"


@pytest.mark.holds("XT76")
async def test_a_reviewer_that_raises_makes_the_result_an_error(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        _event: ev.tools.PostExecute, _call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        raise ToolError("review", code="R")

    assert told(await room.run("echo")).code == "R"


@pytest.mark.holds("F7", "XT45", "XT46", "XT73")
async def test_contexts_come_from_body_wrapper_and_review_in_this_order(room: ToolRoom) -> None:
    ctx = await room.plugin("p")

    async def body(_args: EchoArgs, run: ToolRun) -> str:
        run.defer_context(context_of("body"))
        return ""

    room.tools.register(ctx, echo_tool(body))

    async def add(call_next: Next[ToolResult]) -> ToolResult:
        return attrs.evolve(await call_next(), contexts=(context_of("wrapper"),))

    wrap_execute(ctx, add)
    always_review(ctx, ev.tools.Accept(additional_contexts=(context_of("review"),)))
    assert texts((await room.run("echo")).result) == ["body", "wrapper", "review"]


async def test_a_run_is_dead_after_its_body(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    kept: list[ToolRun] = []

    async def body(_args: EchoArgs, run: ToolRun) -> str:
        kept.append(run)
        return ""

    room.tools.register(ctx, echo_tool(body))

    async def late(call_next: Next[ToolResult]) -> ToolResult:
        result = await call_next()
        kept[0].defer_context(context_of("late"))
        kept[0].conclude_turn()
        return result

    wrap_execute(ctx, late)
    result = (await room.run("echo")).result
    assert isinstance(result, ToolSuccess)
    assert (result.contexts, result.concludes_turn) == ((), False)


@pytest.mark.holds("F17", "XT42", "XT43")
async def test_the_final_content_is_made_once_on_every_outcome(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    seen: list[str] = []

    def finalize(
        _call: ToolExecution, result: ToolResult
    ) -> Sequence[ev.records.ContentBlock] | None:
        seen.append(type(result).__name__)
        return text_blocks("final") if isinstance(result, ToolSuccess) else None

    room.tools.register(ctx, echo_tool(echo, finalize=finalize))
    assert told(await room.run("echo")).text == "final"
    always_pre(ctx, ev.tools.Deny(reason="no"))
    assert told(await room.run("echo")).text == "Error: no"
    room.signal.cancel()
    assert told(await room.run("echo")).code == "ABORTED_BEFORE_DISPATCH"
    assert seen == ["ToolSuccess", "ToolFailed", "ToolFailed"]


@pytest.mark.holds("XT09")
async def test_a_final_transform_that_raises_is_an_error_and_not_called_twice(
    room: ToolRoom,
) -> None:
    ctx = await room.plugin("p")
    calls: list[int] = []

    def finalize(_call: ToolExecution, _result: ToolResult) -> None:
        calls.append(1)
        raise ValueError("oops")

    room.tools.register(ctx, echo_tool(echo, finalize=finalize))
    finished = await room.run("echo")
    assert isinstance(finished.result, ToolFailed)
    assert "oops" in told(finished).text
    assert len(calls) == 1


@pytest.mark.holds("F18", "XS01", "XS26", "XT68")
async def test_observers_get_the_frozen_outcome_once_and_cannot_change_it(
    room: ToolRoom, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    seen: list[ToolResult] = []

    @ctx.on(ev.tools.RESULT)
    def breaks(event: ev.tools.Result) -> None:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            event.result.content = ()  # type: ignore[misc]
        raise ValueError("observer")

    ctx.on(ev.tools.RESULT)(lambda event: seen.append(event.result))
    with caplog.at_level(logging.WARNING):
        finished = await room.run("echo")
    assert seen == [finished.result]
    assert isinstance(finished.result, ToolSuccess)


async def test_a_review_that_hangs_is_cut_and_the_result_kept(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_tool_room(ToolsConfig(finish_timeout_ms=3000)) as room:
        ctx = await room.plugin("p")
        room.tools.register(ctx, echo_tool(echo))

        @ctx.on(ev.tools.POST_EXECUTE)
        async def post(
            _event: ev.tools.PostExecute, _call_next: Next[ev.tools.PostExecuteDecision]
        ) -> ev.tools.PostExecuteDecision:
            await trio.sleep_forever()
            raise AssertionError

        start = trio.current_time()
        with caplog.at_level(logging.WARNING, "dsh.plugin.tools"):
            assert told(await room.run("echo")).text == "x"
        assert trio.current_time() - start == pytest.approx(3)
        assert "longer than 3 s" in caplog.text
