"""One call through the pipeline: its stages, their order, and what never reaches a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.hooks import FrozenDict
from dsh.hooks.live import ToolRun, ToolSuccess
from dsh.testing import (
    EchoArgs,
    echo,
    echo_tool,
    told,
)

if TYPE_CHECKING:
    from dsh import Context, Next
    from dsh.hooks.live import ToolExecution, ToolResult
    from dsh.testing import ToolRoom


@pytest.mark.holds("F11", "XT48", "XT49", "XS19")
async def test_the_stages_run_in_their_order_on_one_token_and_one_value(room: ToolRoom) -> None:
    order: list[str] = []
    seen: list[tuple[object, object]] = []
    ctx = await room.plugin("p")
    listen_everywhere(room, ctx, order, seen)
    finished = await room.run("echo", {"text": "hi"})
    assert order == [
        "pre", "guard", "execute in", "body", "execute out", "post", "finalize", "result",
    ]  # fmt: skip
    assert finished.result == ToolSuccess(
        value="hi", content=(ev.records.TextBlock(text="hi"),), meta=None
    )
    tokens = {id(token) for token, _ in seen}
    values = {id(value) for _, value in seen}
    assert len(tokens) == len(values) == 1


def listen_everywhere(
    room: ToolRoom, ctx: Context, order: list[str], seen: list[tuple[object, object]]
) -> None:
    async def body(args: EchoArgs, run: ToolRun) -> str:
        order.append("body")
        seen.append((run.token, run.arguments))
        return args.text

    def finalize(call: ToolExecution, result: ToolResult) -> None:
        order.append("finalize")
        seen.append((call.token, call.arguments))
        assert isinstance(result, ToolSuccess)

    room.tools.register(ctx, echo_tool(body, finalize=finalize))

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        order.append("pre")
        seen.append((event.exec.token, event.exec.arguments))
        return await call_next()

    def guard(call: ToolExecution) -> None:
        order.append("guard")
        seen.append((call.token, call.arguments))

    room.tools.guard(ctx, guard)

    @ctx.on(ev.tools.EXECUTE)
    async def around(event: ev.tools.Execute, call_next: Next[ToolResult]) -> ToolResult:
        order.append("execute in")
        seen.append((event.exec.token, event.exec.arguments))
        result = await call_next()
        order.append("execute out")
        return result

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        order.append("post")
        seen.append((event.exec.token, event.exec.arguments))
        return await call_next()

    @ctx.on(ev.tools.RESULT)
    def observe(event: ev.tools.Result) -> None:
        order.append("result")
        seen.append((event.exec.token, event.exec.arguments))


@pytest.mark.holds("XS20", "XS24")
@pytest.mark.parametrize(
    "value",
    [float("nan"), {1: "a"}, {"a": b"x"}, {"a": {1, 2}}, {"a": "\ud800"}, {"a": object()}, 2**70],
)
async def test_arguments_that_are_no_json_reach_no_policy(room: ToolRoom, value: object) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    outcomes: list[ToolResult] = []

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        _event: ev.tools.PreExecute, _call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        raise AssertionError("a policy saw it")

    ctx.on(ev.tools.RESULT)(lambda event: outcomes.append(event.result))
    finished = await room.run("echo", value)
    assert told(finished).code == "INVALID_ARGS"
    assert outcomes == [finished.result]


@pytest.mark.holds("F11", "XS25", "XT04")
async def test_arguments_are_snapshotted_and_frozen_before_policies(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    given = {"text": "before"}

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        given["text"] = "after"
        assert isinstance(event.exec.arguments, FrozenDict)
        with pytest.raises(TypeError, match="frozen"):
            event.exec.arguments["text"] = "changed"
        return await call_next()

    assert told(await room.run("echo", given)).text == "before"


@pytest.mark.holds("XT64")
async def test_a_pre_aborted_call_has_one_result_and_no_phases(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    order: list[str] = []

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        _event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        order.append("pre")
        return await call_next()

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        _event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        order.append("post")
        return await call_next()

    ctx.on(ev.tools.RESULT)(lambda _event: order.append("result"))
    room.signal.cancel()
    assert told(await room.run("echo")).code == "ABORTED_BEFORE_DISPATCH"
    assert order == ["result"]


@pytest.mark.holds("XT65")
async def test_bad_arguments_win_over_a_cancellation(room: ToolRoom) -> None:
    room.signal.cancel()
    assert told(await room.run("echo", float("nan"))).code == "INVALID_ARGS"


@pytest.mark.holds("XT27", "XT29", "XT87", "case-077", "M17")
@pytest.mark.parametrize(
    "name",
    [
        "Read_File", "functions.read_file", "read_file<|channel|>json", "", " read_file ",
        "multi_tool_use.parallel", "read_file\n", "__class__", "x" * 5000, "removed_tool",
    ],
)  # fmt: skip
async def test_an_unknown_name_runs_nothing_and_names_what_there_is(
    room: ToolRoom, name: str
) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo, name="read_file"))
    for number in range(200):
        room.tools.register(ctx, echo_tool(echo, name=f"other_{number}"))
    asked: list[str] = []

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        asked.append(event.exec.name)
        return await call_next()

    result = told(await room.run(name))
    assert result.code == "UNKNOWN_TOOL"
    assert "Registered: other_0" in result.text
    assert len(result.text) < 1500
    assert asked == []  # nobody is asked about a call that can only fail


async def test_an_unknown_name_has_a_suggestion(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    for name in ("bash", "edit_file", "read_file"):
        room.tools.register(ctx, echo_tool(echo, name=name))
    assert told(await room.run("bsh")).text == (
        "Error: no tool named 'bsh' in this scope; did you mean 'bash'? "
        "Registered: bash, edit_file, read_file"
    )


@pytest.mark.holds("XT88", "XT91", "M17")
async def test_arguments_that_do_not_fit_are_refused_with_every_path(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    result = told(await room.run("echo", {"text": 1, "txet": 2}))
    assert result.code == "INVALID_ARGS"
    assert "$.text: expected string, got number 1" in result.text
    assert "unknown key 'txet'; did you mean 'text'?" in result.text
