"""Hostile tools and policies, by name: raising in every stage, junk, cycles, surrogates, vanishing.

What comes in: a fault's name. What goes out: a whole harness in which the tool `bad` has that fault
and the tool `good` has none, before a model server. Nothing here asserts anything.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast

import attrs
import trio
from typing_extensions import override

from dsh import Context, Next, plugin
from dsh import catalog as ev
from dsh.boot import ProcessEnviron, Row, open_harness
from dsh.hooks.live import ToolSuccess
from dsh.kernel import required
from dsh.tools import TOOLS, Output, Tool, ToolRuntime, define_tool, json_output, typed_output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from dsh.boot import Harness
    from dsh.hooks import JsonValue
    from dsh.hooks.live import ToolExecution, ToolResult, ToolRun
    from dsh.testing.model_server import ModelServer

    Body: TypeAlias = Callable[["Args", ToolRun], Awaitable[object]]
    Fault: TypeAlias = Callable[[Context, ToolRuntime], None]


__all__ = ["FAULTS", "Args", "Body", "Fault", "hostile_house", "hostile_tool"]


@attrs.frozen
class Args:
    """Nothing is needed."""

    items: tuple[str, ...] = ("a",)


async def fine(_args: Args, _run: ToolRun) -> str:
    return "fine"


def hostile_tool(body: Body, **options: object) -> Tool:
    """The tool `bad` around a body: any JSON for a result, parallel."""
    given: dict[str, object] = {"output": json_output(), "execution_mode": "parallel", **options}
    make = cast("Callable[..., Tool]", define_tool)  # type: ignore[explicit-any]  # any options
    return make(name="bad", description="", args=Args, execute=body, **given)


def returning(make: Callable[[], object]) -> Fault:
    async def body(_args: Args, _run: ToolRun) -> object:
        return make()

    return lambda ctx, tools: _register(ctx, tools, hostile_tool(body))


def raising(make: Callable[[], BaseException]) -> Fault:
    async def body(_args: Args, _run: ToolRun) -> object:
        raise make()

    return lambda ctx, tools: _register(ctx, tools, hostile_tool(body))


def _register(ctx: Context, tools: ToolRuntime, made: Tool) -> None:
    tools.register(ctx, made)


def with_option(**options: object) -> Fault:
    return lambda ctx, tools: _register(ctx, tools, hostile_tool(fine, **options))


def boom(*_given: object) -> str:
    raise RuntimeError("boom")


def nowhere(_args: Args) -> str:
    return "sideways"


def seven(*_given: object) -> object:
    return 7


def not_a_number(_args: Args, _value: object) -> object:
    return float("nan")


def output(
    render: Callable[[Args, JsonValue], str] | None = None,
    meta: Callable[[Args, JsonValue], object] | None = None,
) -> Output[Args, JsonValue]:
    return json_output(render=render, meta=meta)


def wrong_type() -> Output[Args, int]:
    return typed_output(int)


def cyclic() -> object:
    ring: list[object] = []
    ring.append(ring)
    return ring


def deep() -> object:
    found: object = "x"
    for _ in range(20_000):
        found = [found]
    return found


class HostileError(Exception):
    """Its text cannot be read."""

    @override
    def __str__(self) -> str:
        raise KeyError(self)


class Liar(dict[str, object]):
    """A mapping whose items raise."""

    @override
    def items(self) -> NoReturn:
        raise RuntimeError("no items")


def hit(call: ToolExecution) -> None:
    if call.name == "bad":
        raise HostileError


def at_pre(ctx: Context, tools: ToolRuntime) -> None:
    _register(ctx, tools, hostile_tool(fine))

    @ctx.on(ev.tools.PRE_EXECUTE)
    async def pre(
        event: ev.tools.PreExecute, call_next: Next[ev.tools.PreExecuteDecision]
    ) -> ev.tools.PreExecuteDecision:
        hit(event.exec)
        return await call_next()


def at_guard(ctx: Context, tools: ToolRuntime) -> None:
    _register(ctx, tools, hostile_tool(fine))
    tools.guard(ctx, hit)


def around(make: Callable[[ToolExecution, Next[ToolResult]], Awaitable[ToolResult]]) -> Fault:
    """A wrapper that does this to the bad tool's calls."""

    def install(ctx: Context, tools: ToolRuntime) -> None:
        _register(ctx, tools, hostile_tool(fine))

        @ctx.on(ev.tools.EXECUTE)
        async def wrapped(event: ev.tools.Execute, call_next: Next[ToolResult]) -> ToolResult:
            bad = event.exec.name == "bad"
            return await (make(event.exec, call_next) if bad else call_next())

    return install


async def before(call: ToolExecution, call_next: Next[ToolResult]) -> ToolResult:
    hit(call)
    return await call_next()


async def after(call: ToolExecution, call_next: Next[ToolResult]) -> ToolResult:
    await call_next()
    hit(call)
    raise AssertionError


async def junk(_call: ToolExecution, _call_next: Next[ToolResult]) -> ToolResult:
    return ToolSuccess(value=cast("str", object()), content=cast("tuple[()]", ("x",)))


async def nothing(_call: ToolExecution, _call_next: Next[ToolResult]) -> ToolResult:
    return cast("ToolResult", None)


def at_post(ctx: Context, tools: ToolRuntime) -> None:
    _register(ctx, tools, hostile_tool(fine))

    @ctx.on(ev.tools.POST_EXECUTE)
    async def post(
        event: ev.tools.PostExecute, call_next: Next[ev.tools.PostExecuteDecision]
    ) -> ev.tools.PostExecuteDecision:
        hit(event.exec)
        return await call_next()


def at_result(ctx: Context, tools: ToolRuntime) -> None:
    _register(ctx, tools, hostile_tool(fine))

    @ctx.on(ev.tools.RESULT)
    def seen(event: ev.tools.Result) -> None:
        hit(event.exec)


def mutating(ctx: Context, tools: ToolRuntime) -> None:
    async def body(args: Args, run: ToolRun) -> object:
        cast("dict[str, object]", run.arguments)["items"] = ["z"]
        return args.items

    _register(ctx, tools, hostile_tool(body))


def printing(ctx: Context, tools: ToolRuntime) -> None:
    async def body(_args: Args, _run: ToolRun) -> object:
        sys.stdout.write('{"type":"turn/end"}\n')
        return "printed"

    _register(ctx, tools, hostile_tool(body))


def changing_later(ctx: Context, tools: ToolRuntime) -> None:
    kept: dict[str, object] = {"a": 1}

    async def body(_args: Args, _run: ToolRun) -> object:
        return kept

    def change(_event: ev.tools.Result) -> None:
        kept["a"] = object()

    ctx.on(ev.tools.RESULT)(change)
    _register(ctx, tools, hostile_tool(body))


def leaving(ctx: Context, tools: ToolRuntime) -> None:
    """It is unregistered while it runs."""

    async def body(_args: Args, _run: ToolRun) -> object:
        held.dispose()
        await trio.lowlevel.checkpoint()
        return "gone"

    held = tools.register(ctx, hostile_tool(body))


FAULTS: dict[str, Fault] = {
    "raises": raising(lambda: ValueError("x")),
    "raises-hostile": raising(HostileError),
    "raises-group": raising(lambda: BaseExceptionGroup("g", [ValueError("a"), SystemExit(1)])),
    "raises-exit": raising(lambda: SystemExit(3)),
    "raises-stop": raising(StopAsyncIteration),
    "raises-surrogate": raising(lambda: ValueError("caf\udce9\x00")),
    "raises-huge": raising(lambda: ValueError("x" * 5_000_000)),
    "mode": with_option(execution_mode=boom),
    "mode-junk": with_option(execution_mode=nowhere),
    "render": with_option(output=output(boom)),
    "render-junk": with_option(output=output(cast("Callable[[Args, JsonValue], str]", seven))),
    "meta": with_option(output=output(meta=boom)),
    "meta-junk": with_option(output=output(meta=not_a_number)),
    "finalize": with_option(finalize_content=boom),
    "finalize-junk": with_option(finalize_content=seven),
    "subject": with_option(subject=boom),
    "typed-output": with_option(output=wrong_type()),
    "none": returning(lambda: None),
    "nan": returning(lambda: float("nan")),
    "infinity": returning(lambda: {"a": float("-inf")}),
    "minus-zero": returning(lambda: -0.0),
    "big-int": returning(lambda: 2**70),
    "bytes": returning(lambda: b"\xff"),
    "set": returning(lambda: {1, 2}),
    "object": returning(object),
    "int-keys": returning(lambda: {1: "a", "1": "b"}),
    "cyclic": returning(cyclic),
    "deep": returning(deep),
    "surrogates": returning(lambda: "\ud800 \udfff"),
    "surrogate-key": returning(lambda: {"\ud800": 1}),
    "controls": returning(lambda: "\x00\x1b[2J\u202e\r\n\u2028"),
    "huge": returning(lambda: "€" * 1_000_000),
    "liar": returning(lambda: Liar(a=1)),
    "mutates": mutating,
    "prints": printing,
    "changes-later": changing_later,
    "leaves": leaving,
    "pre": at_pre,
    "guard": at_guard,
    "wrapper-before": around(before),
    "wrapper-after": around(after),
    "wrapper-junk": around(junk),
    "wrapper-none": around(nothing),
    "post": at_post,
    "observer": at_result,
}


@attrs.frozen
class _Deps:
    tools: ToolRuntime = required(TOOLS)


ALLOW = Row(name="permissions", config={"rules": [{"decision": "allow", "tool": "*"}]})


@asynccontextmanager
async def hostile_house(
    fault: Fault, server: ModelServer, folder: Path
) -> AsyncGenerator[Harness, None]:
    """A harness with that fault on this server, in a fresh folder; everything is allowed."""

    @plugin(name="hostile", deps=_Deps)
    async def hostile(ctx: Context, _config: None, deps: _Deps) -> None:
        fault(ctx, deps.tools)
        deps.tools.register(
            ctx,
            define_tool(
                name="good", description="", args=Args, output=str, execute=fine,
                execution_mode="parallel",
            ),
        )  # fmt: skip

    workspace = folder / "workspace"
    workspace.mkdir()
    variables = {"DEEPSEEK_API_KEY": "sk-test-key", "DEEPSEEK_BASE_URL": server.base_url}
    async with open_harness(
        home=folder / "home",
        cwd=workspace,
        rows=[ALLOW, Row(name="hostile")],
        plugins=[hostile],
        environ=ProcessEnviron(variables),
    ) as harness:
        assert harness.problems == ()
        yield harness
