"""What bodies raise and return, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from typing_extensions import override

from dsh import catalog as ev
from dsh.errors import ToolError
from dsh.hooks.live import ToolFailed, ToolRun, ToolSuccess
from dsh.testing import (
    EchoArgs,
    echo,
    echo_tool,
    told,
)
from dsh.tools import define_tool, json_output, typed_output

if TYPE_CHECKING:
    from dsh import Next
    from dsh.hooks.live import ToolResult
    from dsh.testing import ToolRoom


class HostileError(Exception):
    """Its text cannot be read."""

    @override
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.holds("XT27", "XT28", "XT92", "XT93", "case-064")
@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (ValueError("x"), "x", None),
        (KeyError("k"), "KeyError: 'k'", None),
        (ValueError(), "ValueError", None),
        (ToolError("no disk", code="FS_IO_ERROR"), "no disk", "FS_IO_ERROR"),
        (HostileError(), "HostileError (its text could not be read)", None),
        (ExceptionGroup("g", [ValueError("inner")]), "inner", None),
        (
            ExceptionGroup("g", [ValueError("a"), ToolError("b", code="B")]),
            "2 failures: a; b",
            "B",
        ),
        (ValueError("caf\udce9"), "caf\\udce9", None),
        (SystemExit(3), "3", None),
        (GeneratorExit(), "GeneratorExit", None),
        (RecursionError("deep"), "deep", None),
    ],
)
async def test_what_a_body_raises_is_its_result(
    room: ToolRoom, error: BaseException, text: str, code: str | None
) -> None:
    ctx = await room.plugin("p")
    reviewed: list[ToolResult] = []

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        raise error

    room.tools.register(ctx, echo_tool(body))

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        reviewed.append(event.result)
        return await call_next()

    result = told(await room.run("echo"))
    assert (result.text, result.code) == (f"Error: {text}", code)
    assert len(reviewed) == 1  # XT69


async def test_a_body_that_is_not_async_is_a_failure(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, echo_tool(lambda _args, _run: "no coroutine"))  # type: ignore[arg-type,return-value]
    assert isinstance((await room.run("echo")).result, ToolFailed)


def _cycle() -> object:
    ring: list[object] = []
    ring.append(ring)
    return ring


def _deep() -> object:
    value: list[object] = []
    for _ in range(20_000):
        value = [value]
    return value


class Evil:
    """Fails however it is looked at."""

    @override
    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)


@pytest.mark.holds("XT11", "XT12", "case-057")
@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), b"\xff", {1, 2}, _cycle(), {1: "a", "1": "b"}, 2**70, -0.0,
        _deep(), {"a": float("-inf")}, object(), "\ud800",
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
async def test_a_value_that_is_no_json_is_a_clear_failure(room: ToolRoom, value: object) -> None:
    ctx = await room.plugin("p")

    async def body(_args: EchoArgs, _run: ToolRun) -> object:
        return value

    room.tools.register(
        ctx,
        define_tool(
            name="echo",
            description="",
            args=EchoArgs,
            output=json_output(),
            execute=body,  # type: ignore[arg-type]
        ),
    )
    result = told(await room.run("echo"))
    assert result.code == "INVALID_TOOL_OUTPUT"
    assert result.text.startswith("Error: echo returned")


@pytest.mark.parametrize("nested", [False, True])
async def test_a_value_that_fails_when_it_is_read_is_a_failure(
    room: ToolRoom,
    nested: bool,  # noqa: FBT001
) -> None:
    ctx = await room.plugin("p")

    async def body(_args: EchoArgs, _run: ToolRun) -> str:
        return [Evil()] if nested else Evil()  # type: ignore[return-value]

    room.tools.register(ctx, echo_tool(body))
    assert told(await room.run("echo")).code == "INVALID_TOOL_OUTPUT"


@attrs.frozen
class Count:
    """A typed output."""

    number: int


@pytest.mark.holds("F16", "XT05", "XT06")
async def test_a_typed_value_is_checked_rendered_and_projected(room: ToolRoom) -> None:
    ctx = await room.plugin("p")

    async def body(args: EchoArgs, _run: ToolRun) -> Count:
        return Count(len(args.text))

    def render(args: EchoArgs, value: Count) -> str:
        return f"{args.text} has {value.number}"

    output = typed_output(Count, render=render, meta=lambda _args, value: {"n": value.number})
    room.tools.register(
        ctx, define_tool(name="echo", description="", args=EchoArgs, output=output, execute=body)
    )
    room.tools.register(
        ctx, define_tool(name="plain", description="", args=EchoArgs, output=Count, execute=body)
    )
    result = (await room.run("echo", {"text": "abc"})).result
    assert isinstance(result, ToolSuccess)
    assert result.value == {"number": 3}
    assert result.meta == {"n": 3}
    assert result.content == (ev.records.TextBlock(text="abc has 3"),)
    plain = (await room.run("plain", {"text": "abc"})).result
    assert isinstance(plain, ToolSuccess)
    assert plain.meta is None
    assert plain.content == (ev.records.TextBlock(text='{"number":3}'),)


@pytest.mark.holds("XT11")
async def test_a_value_of_another_type_breaks_the_contract(room: ToolRoom) -> None:
    ctx = await room.plugin("p")

    async def body(_args: EchoArgs, _run: ToolRun) -> Count:
        return {"number": "3"}  # type: ignore[return-value]

    room.tools.register(
        ctx, define_tool(name="echo", description="", args=EchoArgs, output=Count, execute=body)
    )
    result = told(await room.run("echo"))
    assert result.code == "INVALID_TOOL_OUTPUT"
    assert "$.number: expected integer, got text '3'" in result.text


@pytest.mark.holds("XT13", "XT14")
@pytest.mark.parametrize("broken", ["raises", "wrong type", "wrong block"])
async def test_a_broken_renderer_is_a_failure(room: ToolRoom, broken: str) -> None:
    ctx = await room.plugin("p")

    def render(_args: EchoArgs, _value: str) -> str:
        if broken == "raises":
            raise ValueError("oops")
        return 5 if broken == "wrong type" else [{"type": "text"}]  # type: ignore[return-value]

    output = typed_output(str, render=render)
    room.tools.register(
        ctx, define_tool(name="echo", description="", args=EchoArgs, output=output, execute=echo)
    )
    assert told(await room.run("echo")).code == "INVALID_TOOL_OUTPUT"


async def test_progress_reaches_whoever_watches_while_the_body_runs(room: ToolRoom) -> None:
    shown: list[tuple[str, str]] = []
    watcher = await room.plugin("watcher")

    @watcher.on(ev.tools.PROGRESS)
    def see(event: ev.tools.Progress) -> None:
        shown.append((event.exec.call_id, event.text))
        raise ValueError("a view that fails harms no tool")

    kept: list[ToolRun] = []

    async def body(_args: EchoArgs, run: ToolRun) -> str:
        run.progress("half \udce9")
        kept.append(run)
        return "done"

    room.tools.register(watcher, echo_tool(body))
    assert told(await room.run("echo")).text == "done"
    kept[0].progress("after its end")
    assert shown == [("c1", "half \\udce9")]
