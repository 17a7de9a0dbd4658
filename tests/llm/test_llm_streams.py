"""Lawful streams: one terminal finish, whatever an adapter or a listener does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.catalog.records import (
    AssistantMessage,
    ErrorFinish,
    FinishChunk,
    ModelSource,
    StreamChunk,
    TextBlock,
    TextDeltaChunk,
)
from dsh.errors import LlmError, PluginError
from dsh.llm import (
    map_chunks,
)
from dsh.testing import ManualSignal
from dsh.testing.model_seam import STOP, PartsAdapter, ask, failure_code, open_seam, saying, user

if TYPE_CHECKING:
    from dsh.hooks import StreamNext, live

Open = Callable[["live.LlmRequest"], "live.ChunkStream"]


class Raw(PartsAdapter):
    """An adapter whose `stream` is any function."""

    def __init__(self, open_stream: Open) -> None:
        super().__init__()
        self.open_stream = open_stream

    @override
    def stream(self, request: live.LlmRequest) -> live.ChunkStream:
        return self.open_stream(request)


def fails_choosing(request: live.LlmRequest) -> live.ChunkStream:
    raise LlmError(f"cannot serve {request.model}", code="SERVER", status=503)


@asynccontextmanager
async def fails_entering(request: live.LlmRequest) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
    if request.provider:
        raise LlmError("cannot connect", code="SERVER", status=503)
    yield saying("")(request)


class NoIterator:
    pass


@asynccontextmanager
async def fails_iterating(request: live.LlmRequest) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
    async def play() -> AsyncIterator[StreamChunk]:
        yield TextDeltaChunk(index=0, text="half")
        raise LlmError(f"{request.provider} broke", code="SERVER", status=503)

    yield play()


@pytest.mark.holds("E8", "LS15", "LS16", "LS17")
@pytest.mark.parametrize("stage", [fails_choosing, fails_entering, fails_iterating])
async def test_a_failure_at_any_stage_becomes_the_one_terminal_chunk(stage: Open) -> None:
    async with open_seam() as seam:
        seam.llm.register(seam.ctx, Raw(stage), ("p",))
        chunks = await seam.run(ask())
        assert failure_code(chunks) == ("error", "SERVER")
        last = chunks[-1]
        assert isinstance(last, FinishChunk)
        assert isinstance(last.reason, ErrorFinish)
        assert last.reason.failure.status == 503


@pytest.mark.holds("E8", "LS14")
@pytest.mark.parametrize("after", [0, 2])
async def test_a_stream_that_ends_without_a_finish_is_closed_and_nothing_follows_a_finish(
    after: int,
) -> None:
    async def no_finish(request: live.LlmRequest) -> AsyncIterator[StreamChunk]:
        del request
        for _ in range(after):
            yield TextDeltaChunk(index=0, text="x")

    async def talks_on(request: live.LlmRequest) -> AsyncIterator[StreamChunk]:
        del request
        yield STOP
        yield TextDeltaChunk(index=0, text="late")
        yield STOP

    async with open_seam() as seam:
        seam.llm.register(seam.ctx, PartsAdapter(no_finish), ("p",))
        seam.llm.register(seam.ctx, PartsAdapter(talks_on), ("q",))
        chunks = await seam.run(ask())
        assert failure_code(chunks) == ("error", "STREAM_CLOSED")
        assert len(chunks) == after + 1
        assert await seam.run(ask(provider="q")) == [STOP]


@pytest.mark.holds("E8", "LS18")
async def test_a_failure_after_the_signal_was_set_or_coded_aborted_is_aborted() -> None:
    signal = ManualSignal()

    async def play(request: live.LlmRequest) -> AsyncIterator[StreamChunk]:
        yield TextDeltaChunk(index=0, text="x")
        if request.signal is signal:
            signal.cancel()
        raise LlmError("broke", code="TRANSPORT" if request.signal is signal else "ABORTED")

    async with open_seam() as seam:
        seam.llm.register(seam.ctx, PartsAdapter(play), ("p",))
        assert failure_code(await seam.run(ask(signal=signal))) == ("aborted", "TRANSPORT")
        assert failure_code(await seam.run(ask())) == ("aborted", "ABORTED")


@pytest.mark.holds("E8")
async def test_cancellation_goes_through_and_closes_the_adapters_stream() -> None:
    entered = trio.Event()

    async def stalls(request: live.LlmRequest) -> AsyncIterator[StreamChunk]:
        yield TextDeltaChunk(index=0, text=request.model)
        entered.set()
        await trio.sleep_forever()

    async with open_seam() as seam:
        adapter = PartsAdapter(stalls)
        seam.llm.register(seam.ctx, adapter, ("p",))
        got: list[StreamChunk] = []
        with trio.CancelScope() as scope:
            async with seam.llm.stream(ask()) as chunks, trio.open_nursery() as nursery:

                async def cancel() -> None:
                    await entered.wait()
                    scope.cancel()

                nursery.start_soon(cancel)
                got.extend([chunk async for chunk in chunks])
        assert scope.cancelled_caught
        assert got == []
        assert adapter.closed == 1


@pytest.mark.holds("E8", "LS21")
async def test_leaving_early_closes_the_adapters_stream_and_waits_for_it() -> None:
    closed: list[str] = []

    @asynccontextmanager
    async def slow_to_close(
        request: live.LlmRequest,
    ) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
        try:
            yield saying("x")(request)
        finally:
            await trio.lowlevel.checkpoint()
            closed.append(request.provider)

    async with open_seam() as seam:
        seam.llm.register(seam.ctx, Raw(slow_to_close), ("p",))
        async with seam.llm.stream(ask()) as chunks:
            assert await anext(aiter(chunks)) == TextDeltaChunk(index=0, text="x")
        assert closed == ["p"]
        with trio.CancelScope() as scope:
            async with seam.llm.stream(ask(provider="p")):
                scope.cancel()
        assert closed == ["p", "p"]


@pytest.mark.holds("E8")
async def test_an_adapter_that_does_not_close_is_given_two_seconds(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def never_closes(
        request: live.LlmRequest,
    ) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
        try:
            yield saying("x")(request)
        finally:
            await trio.sleep_forever()

    async with open_seam() as seam:
        seam.llm.register(seam.ctx, Raw(never_closes), ("p",))
        start = trio.current_time()
        await seam.run(ask())
        assert trio.current_time() - start == pytest.approx(2.0)
    assert "did not close its stream within 2.0 s" in caplog.text


@pytest.mark.holds("E8", "LS19")
async def test_failures_of_listeners_consumers_and_clean_up_stay_thrown() -> None:
    @asynccontextmanager
    async def fails_closing(
        request: live.LlmRequest,
    ) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
        yield saying("x")(request)
        raise OSError("cannot clean up")

    async with open_seam() as seam:
        seam.llm.register(seam.ctx, Raw(fails_closing), ("p",))
        seam.llm.register(seam.ctx, PartsAdapter(saying("x")), ("q",))
        with pytest.raises(OSError, match="cannot clean up"):
            await seam.run(ask())
        with pytest.raises(KeyError, match="mine"):
            async with seam.llm.stream(ask(provider="q")):
                raise KeyError("mine")

        def breaks(chunk: StreamChunk) -> StreamChunk:
            raise ValueError(f"cannot map {type(chunk).__name__}")

        seam.ctx.on(ev.llm.STREAM)(map_chunks(breaks))
        with pytest.raises(ValueError, match="cannot map TextDeltaChunk"):
            await seam.run(ask(provider="q"))


@pytest.mark.holds("LS44")
async def test_listeners_wrap_the_stream_and_may_change_or_drop_chunks() -> None:
    async with open_seam() as seam:
        adapter = PartsAdapter(saying("hello"))
        seam.llm.register(seam.ctx, adapter, ("p",))
        order: list[str] = []

        @seam.ctx.on(ev.llm.STREAM)
        @asynccontextmanager
        async def meter(
            stream: ev.llm.Stream, call_next: StreamNext[StreamChunk]
        ) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
            order.append(f"enter {stream.request.model}")
            async with call_next() as chunks:
                yield chunks
            order.append("leave")

        def louder(chunk: StreamChunk) -> StreamChunk | None:
            if isinstance(chunk, TextDeltaChunk):
                return attrs.evolve(chunk, text=chunk.text.upper())
            return chunk

        seam.ctx.on(ev.llm.STREAM)(map_chunks(louder))
        drop = seam.ctx.on(ev.llm.STREAM)(
            map_chunks(lambda chunk: None if isinstance(chunk, TextDeltaChunk) else chunk)
        )
        assert await seam.run(ask()) == [STOP]
        drop.dispose()
        assert await seam.run(ask()) == [TextDeltaChunk(index=0, text="HELLO"), STOP]
        assert order == ["enter m", "leave"] * 2
        assert adapter.closed == 2
        assert meter.active


async def test_a_listener_that_swallows_a_consumers_failure_is_misuse() -> None:
    async with open_seam() as seam:
        seam.llm.register(seam.ctx, PartsAdapter(saying("x")), ("p",))

        @seam.ctx.on(ev.llm.STREAM)
        @asynccontextmanager
        async def swallows(
            stream: ev.llm.Stream, call_next: StreamNext[StreamChunk]
        ) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
            del stream
            try:
                async with call_next() as chunks:
                    yield chunks
            except KeyError:
                pass

        with pytest.raises(PluginError):
            async with seam.llm.stream(ask()):
                raise KeyError("mine")
        assert swallows.active


class Replaying(PartsAdapter):
    reads_replay_state = True


@pytest.mark.holds("LS46", "LS47", "LS48", "LS10")
async def test_replay_state_reaches_only_the_adapter_that_made_it() -> None:
    def reply(provider: str) -> AssistantMessage:
        return AssistantMessage(
            id=f"a-{provider}",
            content=(TextBlock(text="t"),),
            source=ModelSource(provider=provider, model="m", replay_state="secret"),
        )

    mine, foreign, question = reply("p"), reply("q"), user("hi")
    async with open_seam() as seam:
        adapter, plain = Replaying(), PartsAdapter()
        seam.llm.register(seam.ctx, adapter, ("p",))
        seam.llm.register(seam.ctx, plain, ("q",))
        request = ask(question, mine, foreign)
        await seam.run(request)
        await seam.run(ask(question, mine, foreign))
        await seam.run(ask(question, mine, foreign, provider="q"))
        first, second = adapter.requests
        assert first.messages[:2] == (question, mine)
        assert first.messages[1] is mine
        stripped = first.messages[2]
        assert isinstance(stripped, AssistantMessage)
        assert stripped.source == ModelSource(provider="q", model="m")
        assert stripped.id == foreign.id
        # The same object in each request, so that its encoding is found again.
        assert second.messages[2] is stripped
        assert request.messages[2] is foreign
        assert plain.requests[0].messages == (question, mine, foreign)
        nothing = ask(question, mine)
        await seam.run(nothing)
        assert adapter.requests[-1] is nothing
