"""Streams: lazily entered managers around one iterator, with guards of their own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, cast

import pytest
import trio
from attrs import frozen

from dsh.errors import BadAnswer, BadListener, WaterfallMisuse
from dsh.hooks import Stream, StreamNext
from dsh.kernel import Context, open_kernel, plugin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable


@frozen
class Request:
    n: int = 3


CHUNKS: Stream[Request, int] = Stream(
    "test/chunks", Request, errors="propagate", scope_of=None, owner="core"
)


async def numbers(trail: list[str], count: int = 3) -> AsyncGenerator[int, None]:
    try:
        for n in range(count):
            await trio.lowlevel.checkpoint()
            yield n
    finally:
        trail.append("source closed")


@asynccontextmanager
async def source(trail: list[str]) -> AsyncGenerator[AsyncIterator[int]]:
    trail.append("source opened")
    async with aclosing(numbers(trail)) as chunks:
        yield chunks


Wrapper: TypeAlias = (
    "Callable[[Request, StreamNext[int]], AbstractAsyncContextManager[AsyncIterator[int]]]"
)


def wrapping(trail: list[str], name: str) -> Wrapper:
    @asynccontextmanager
    async def wraps(
        _request: Request, call_next: StreamNext[int]
    ) -> AsyncGenerator[AsyncIterator[int]]:
        trail.append(f"+{name}")
        async with call_next() as chunks:

            async def mapped() -> AsyncGenerator[int, None]:
                async for chunk in chunks:
                    yield chunk * 10

            async with aclosing(mapped()) as outgoing:
                yield outgoing
        trail.append(f"-{name}")

    return wraps


@pytest.mark.holds("KN31")
async def test_managers_are_entered_lazily_from_the_outside_in_and_left_inside_out() -> None:
    trail: list[str] = []
    async with open_kernel() as kernel:
        for name in ("outer", "inner"):
            kernel.root.on(CHUNKS)(wrapping(trail, name))
        stream = kernel.root.stream(CHUNKS)(Request(), lambda: source(trail))
        assert trail == []
        async with stream as chunks:
            assert trail == ["+outer", "+inner", "source opened"]
            assert [chunk async for chunk in chunks] == [0, 100, 200]
        assert trail[3:] == ["source closed", "-inner", "-outer"]
        assert [row.runs for row in kernel.listeners()] == [1, 1]
        assert all(entry.running == 0 for entry in kernel.root.activation.entries)


async def test_nobody_listens_and_the_innermost_stream_is_used() -> None:
    trail: list[str] = []
    async with (
        open_kernel() as kernel,
        kernel.root.stream(CHUNKS)(Request(), lambda: source(trail)) as chunks,
    ):
        assert [chunk async for chunk in chunks] == [0, 1, 2]


async def test_a_listener_may_serve_the_stream_without_the_rest() -> None:
    trail: list[str] = []

    @asynccontextmanager
    async def serves(
        _request: Request, _call_next: StreamNext[int]
    ) -> AsyncGenerator[AsyncIterator[int]]:
        async with aclosing(numbers(trail, 1)) as chunks:
            yield chunks

    async with open_kernel() as kernel:
        kernel.root.on(CHUNKS)(serves)
        async with kernel.root.stream(CHUNKS)(Request(), lambda: source(trail)) as chunks:
            assert [chunk async for chunk in chunks] == [0]
        assert "source opened" not in trail


@pytest.mark.holds("KN31")
async def test_call_next_again_after_the_previous_stream_was_left() -> None:
    trail: list[str] = []

    @asynccontextmanager
    async def retries(
        _request: Request, call_next: StreamNext[int]
    ) -> AsyncGenerator[AsyncIterator[int]]:
        async with call_next() as chunks:
            async for _ in chunks:
                break
        async with call_next() as chunks:
            yield chunks

    async with open_kernel() as kernel:
        kernel.root.on(CHUNKS)(retries)
        async with kernel.root.stream(CHUNKS)(Request(), lambda: source(trail)) as chunks:
            assert [chunk async for chunk in chunks] == [0, 1, 2]
        assert trail == ["source opened", "source closed"] * 2


def named(error: BaseException, *words: str) -> None:
    for word in ("'kernel'", "'test/chunks'", "test_kernel_stream.py:", *words):
        assert word in str(error), f"{word!r} is not in {error}"


@pytest.mark.holds("KN31")
async def test_two_open_streams_at_once_are_misuse() -> None:
    @asynccontextmanager
    async def doubles(
        _request: Request, call_next: StreamNext[int]
    ) -> AsyncGenerator[AsyncIterator[int]]:
        async with call_next(), call_next() as chunks:
            yield chunks

    async with open_kernel() as kernel:
        kernel.root.on(CHUNKS)(doubles)
        with pytest.raises(WaterfallMisuse) as caught:
            async with kernel.root.stream(CHUNKS)(Request(), lambda: source([])):
                pass
        named(caught.value, "while the previous one was still open")


@pytest.mark.holds("KN31")
async def test_call_next_after_the_manager_exited_is_misuse() -> None:
    kept: list[StreamNext[int]] = []
    made: list[AbstractAsyncContextManager[AsyncIterator[int]]] = []

    @asynccontextmanager
    async def keeps(
        _request: Request, call_next: StreamNext[int]
    ) -> AsyncGenerator[AsyncIterator[int]]:
        kept.append(call_next)
        made.append(call_next())
        async with call_next() as chunks:
            yield chunks

    async with open_kernel() as kernel:
        kernel.root.on(CHUNKS)(keeps)
        async with kernel.root.stream(CHUNKS)(Request(), lambda: source([])):
            pass
        with pytest.raises(WaterfallMisuse) as caught:
            kept[0]()
        named(caught.value, "after its manager exited")
        with pytest.raises(WaterfallMisuse):
            await made[0].__aenter__()


@pytest.mark.holds("KN31")
async def test_swallowing_the_consumers_exception_is_misuse() -> None:
    @asynccontextmanager
    async def swallows(
        _request: Request, call_next: StreamNext[int]
    ) -> AsyncGenerator[AsyncIterator[int]]:
        async with call_next() as chunks:
            with suppress(LookupError):
                yield chunks

    async with open_kernel() as kernel:
        kernel.root.on(CHUNKS)(swallows)
        with pytest.raises(WaterfallMisuse) as caught:
            async with kernel.root.stream(CHUNKS)(Request(), lambda: source([])):
                raise LookupError("mine")
        named(caught.value, "swallowed its consumer's LookupError")
        assert isinstance(caught.value.__cause__, LookupError)


async def test_a_failure_of_the_source_passes_through_and_cancel_too() -> None:
    trail: list[str] = []

    def breaks() -> AbstractAsyncContextManager[AsyncIterator[int]]:
        raise LookupError("no source")

    async with open_kernel() as kernel:
        kernel.root.on(CHUNKS)(wrapping(trail, "outer"))
        with pytest.raises(LookupError, match="no source"):
            async with kernel.root.stream(CHUNKS)(Request(), breaks):
                pass
        assert all(entry.running == 0 for entry in kernel.root.activation.entries)
        with trio.CancelScope() as scope:
            async with kernel.root.stream(CHUNKS)(Request(), lambda: source(trail)):
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert all(entry.running == 0 for entry in kernel.root.activation.entries)


@pytest.mark.holds("KN31")
async def test_shapes_are_checked() -> None:
    async with open_kernel() as kernel:

        async def bare(_request: Request, call_next: StreamNext[int]) -> AsyncIterator[int]:
            async with call_next() as chunks:
                async for chunk in chunks:
                    yield chunk

        async def plain(_request: Request, _call_next: StreamNext[int]) -> int:
            return 1

        for listener in (bare, plain):
            with pytest.raises(BadListener, match="@asynccontextmanager"):
                kernel.root.on(CHUNKS)(listener)  # type: ignore[arg-type]

        def returns(_request: Request, _call_next: StreamNext[int]) -> int:
            return 1

        @asynccontextmanager
        async def yields_list(
            _request: Request, _call_next: StreamNext[int]
        ) -> AsyncGenerator[AsyncIterator[int]]:
            yield cast("AsyncIterator[int]", [1])

        for bad, words in ((returns, "answered int"), (yields_list, "yielded list")):
            handle = kernel.root.on(CHUNKS)(bad)  # type: ignore[arg-type]
            with pytest.raises(BadAnswer, match=words) as caught:
                async with kernel.root.stream(CHUNKS)(Request(), lambda: source([])):
                    pass
            named(caught.value)
            handle.dispose()


async def test_a_removed_stream_listener_is_skipped() -> None:
    trail: list[str] = []

    @plugin(name="gone")
    async def gone(ctx: Context) -> None:
        ctx.on(CHUNKS)(wrapping(trail, "gone"))

    async with open_kernel() as kernel:
        fiber = await kernel.mount(gone).ready()
        stream = kernel.root.stream(CHUNKS)(Request(), lambda: source(trail))
        await fiber.dispose()
        async with stream as chunks:
            assert [chunk async for chunk in chunks] == [0, 1, 2]
        assert "+gone" not in trail


@pytest.mark.parametrize("listens", [True, False])
async def test_a_stream_is_entered_once_and_left_only_after_that(*, listens: bool) -> None:
    who = "plugin 'kernel'" if listens else "the innermost stream of 'test/chunks'"
    async with open_kernel() as kernel:
        handle = kernel.root.on(CHUNKS)(wrapping([], "a"))
        stream = kernel.root.stream(CHUNKS)(Request(), lambda: source([]))
        if not listens:
            assert handle.dispose()
        with pytest.raises(WaterfallMisuse, match="left a stream that was never entered; use `as"):
            await stream.__aexit__(None, None, None)
        async with stream as chunks:
            assert [chunk async for chunk in chunks]
        with pytest.raises(WaterfallMisuse, match=f"{who} entered one stream twice"):
            await stream.__aenter__()
