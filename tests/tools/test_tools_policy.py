"""What policies and guards may do to a call, and how each of them fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh import catalog as ev
from dsh.errors import ToolError
from dsh.hooks.live import ToolFailed, ToolRun
from dsh.testing import (
    EchoArgs,
    always_pre,
    echo,
    echo_tool,
    told,
)

if TYPE_CHECKING:
    from dsh import Next
    from dsh.hooks import EffectHandle
    from dsh.hooks.live import ToolExecution, ToolResult
    from dsh.testing import ToolRoom


@pytest.mark.holds("F12", "XT30", "XT66")
async def test_a_denial_runs_no_body_and_no_wrapper_but_the_review(room: ToolRoom) -> None:
    ctx = await room.plugin("strict")
    order: list[str] = []

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        order.append("body")
        return ""

    room.tools.register(ctx, echo_tool(body))
    always_pre(ctx, ev.tools.Deny(reason="not on a Sunday"))

    @ctx.on(ev.tools.EXECUTE)
    async def around(_event: ev.tools.Execute, call_next: Next[ToolResult]) -> ToolResult:
        order.append("execute")
        return await call_next()

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        order.append(type(event.result).__name__)
        return await call_next()

    finished = await room.run("echo")
    assert told(finished).text == "Error: not on a Sunday"
    assert finished.decided_by == "strict"
    assert order == ["ToolFailed"]


@pytest.mark.holds("XT75", "XT77")
@pytest.mark.parametrize(
    ("error", "code"), [(ToolError("no", code="MINE"), "MINE"), (ValueError("no"), None)]
)
async def test_a_policy_that_raises_fails_the_call_and_skips_the_review(
    room: ToolRoom, error: Exception, code: str | None
) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        _event: ev.tools.PreExecute, _call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        raise error

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        _event: ev.tools.PostExecute, _call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        raise AssertionError("reviewed")

    result = told(await room.run("echo"))
    assert (result.text, result.code) == ("Error: no", code)


@pytest.mark.holds("F12")
async def test_the_outermost_rewrite_wins_and_is_noted_before_the_guards(room: ToolRoom) -> None:
    inner, outer = await room.plugin("inner", slot=9), await room.plugin("outer", slot=1)
    room.tools.register(inner, echo_tool(echo))
    order: list[str] = []
    always_pre(inner, ev.tools.Allow(arguments={"text": "inner"}))

    @outer.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        answered = await call_next()
        assert isinstance(answered, ev.tools.Allow)
        assert answered.arguments == {"text": "inner"}
        assert event.exec.arguments == {"text": "model"}
        return ev.tools.Allow(arguments={"text": "outer"})

    def guard(call: ToolExecution) -> None:
        order.append(f"guard {call.arguments}")

    room.tools.guard(inner, guard)
    finished = await room.tools.execute(
        room.call("echo", {"text": "model"}),
        lambda plugin, arguments: order.append(f"{plugin} {arguments}"),
    )
    assert told(finished).text == "outer"
    assert order == ["outer {'text': 'outer'}", "guard {'text': 'outer'}"]


async def test_a_rewrite_to_the_same_json_is_none(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    always_pre(ctx, ev.tools.Allow(arguments={"text": "x"}))
    notes: list[str] = []
    await room.tools.execute(
        room.call("echo", {"text": "x"}), lambda plugin, _: notes.append(plugin)
    )
    assert notes == []


async def test_a_rewrite_that_does_not_fit_is_refused_and_names_its_plugin(room: ToolRoom) -> None:
    ctx = await room.plugin("clumsy")
    room.tools.register(ctx, echo_tool(echo))
    always_pre(ctx, ev.tools.Allow(arguments={"text": 1}))
    notes: list[str] = []
    finished = await room.tools.execute(room.call("echo"), lambda plugin, _: notes.append(plugin))
    result = told(finished)
    assert result.code == "INVALID_ARGS"
    assert "plugin 'clumsy' rewrote the arguments into ones that do not fit" in result.text
    assert notes == []


@pytest.mark.holds("XS16")
async def test_one_guard_abstains_and_a_later_one_denies(room: ToolRoom) -> None:
    ctx = await room.plugin("careful")
    room.tools.register(ctx, echo_tool(echo))
    room.tools.guard(ctx, lambda _call: None)
    room.tools.guard(ctx, lambda _call: "plan mode")
    room.tools.guard(ctx, lambda _call: "never asked")
    finished = await room.run("echo")
    assert told(finished).text == "Error: plan mode"
    assert finished.decided_by == "careful"


@pytest.mark.holds("XS15")
async def test_scoped_guards_reach_their_scope_and_go_with_their_effect(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    held = room.tools.guard(ctx.scoped(room.scope), lambda _call: "mine")
    assert told(await room.run("echo")).text == "Error: mine"
    assert told(await room.run("echo", agent=False)).text == "x"
    held.dispose()
    assert told(await room.run("echo")).text == "x"


@pytest.mark.holds("XS17")
async def test_a_guard_that_a_guard_registers_is_asked_at_once(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))

    def first(_call: ToolExecution) -> None:
        room.tools.guard(ctx, lambda _call: "second")

    room.tools.guard(ctx, first)
    assert told(await room.run("echo")).text == "Error: second"


@pytest.mark.holds("XS17")
async def test_a_guard_that_takes_the_place_of_the_last_one_is_asked_at_once(
    room: ToolRoom,
) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))
    held: list[EffectHandle] = []

    def last(_call: ToolExecution) -> None:
        held.pop().dispose()
        room.tools.guard(ctx, lambda _call: "in its place")

    held.append(room.tools.guard(ctx, last))
    for _ in range(2):
        assert told(await room.run("echo")).text == "Error: in its place"


@pytest.mark.parametrize("broken", ["raises", "returns"])
async def test_a_broken_guard_refuses(room: ToolRoom, broken: str) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(echo))

    def guard(_call: ToolExecution) -> str | None:
        if broken == "raises":
            raise ValueError("oops")
        return True  # type: ignore[return-value]

    room.tools.guard(ctx, guard)
    result = told(await room.run("echo"))
    assert isinstance(result.result, ToolFailed)
    assert "a guard of p" in result.text
    assert result.decided_by == "p"
