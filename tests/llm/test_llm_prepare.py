"""Preparing calls: one registration, exact metadata, defaults that are reported."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.catalog.records import (
    AlwaysRetryPolicy,
    ErrorFinish,
    FinishChunk,
    LlmCallConfig,
    LlmCallConfigAdapterDefaults,
    NormalRetryPolicy,
    RetryPolicy,
    StreamChunk,
    TextDeltaChunk,
)
from dsh.errors import LlmError
from dsh.llm import (
    DEFAULT_RETRY_POLICY,
    ResolvedModel,
)
from dsh.testing import ManualSignal
from dsh.testing.model_seam import (
    STOP,
    PartsAdapter,
    ask,
    call_config,
    collect,
    failure_code,
    open_seam,
    saying,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from dsh.hooks import StreamNext


@pytest.mark.holds("D3", "LS26", "LS28", "LS29", "LS36")
async def test_preparing_fills_in_the_adapters_defaults_and_says_which() -> None:
    model = ResolvedModel(
        context_window=1000,
        max_tokens=50,
        reasoning_effort="low",
        reasoning_efforts=("low", "high"),
        input_modalities=("text", "image"),
        system_prompt_update="in-history",
    )
    async with open_seam() as seam:
        adapter = PartsAdapter(model=model)
        seam.llm.register(seam.ctx, adapter, ("p",))
        call = await seam.llm.prepare_call(call_config())
        assert call.config == LlmCallConfig(
            provider="p", model="m", reasoning_effort="low", max_tokens=50
        )
        assert call.adapter_defaults == LlmCallConfigAdapterDefaults(
            reasoning_effort=True, max_tokens=True
        )
        assert (call.context_window, call.input_modalities) == (1000, ("text", "image"))
        assert call.system_prompt_update == "in-history"
        assert call.retry_policy == DEFAULT_RETRY_POLICY
        assert adapter.resolved == [("p", "m")]
        explicit = LlmCallConfig(provider="p", model="m", reasoning_effort="high", max_tokens=7)
        call = await seam.llm.prepare_call(explicit)
        assert call.config is explicit
        assert call.adapter_defaults is None
        half = attrs.evolve(explicit, max_tokens=None)
        call = await seam.llm.prepare_call(half)
        assert call.config.max_tokens == 50
        assert call.adapter_defaults == LlmCallConfigAdapterDefaults(max_tokens=True)


@pytest.mark.holds("D3", "LS32", "LS33")
async def test_an_effort_the_model_does_not_take_is_refused_and_never_changed() -> None:
    async with open_seam() as seam:
        seam.llm.register(
            seam.ctx, PartsAdapter(model=ResolvedModel(reasoning_efforts=("low",))), ("p",)
        )
        seam.llm.register(seam.ctx, PartsAdapter(model=ResolvedModel(reasoning_efforts=())), ("q",))
        seam.llm.register(seam.ctx, PartsAdapter(), ("any",))
        with pytest.raises(LlmError, match="takes one of low; asked for 'max'") as caught:
            await seam.llm.prepare_call(call_config("p", effort="max"))
        assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"
        with pytest.raises(LlmError, match="takes no reasoning effort"):
            await seam.llm.prepare_call(call_config("q", effort="low"))
        call = await seam.llm.prepare_call(call_config("any", effort="whatever"))
        assert call.config.reasoning_effort == "whatever"


@pytest.mark.holds("D3", "LS25", "LS30", "LS31", "LS40")
@pytest.mark.parametrize(
    "model",
    [
        ResolvedModel(context_window=0),
        ResolvedModel(context_window=-5),
        ResolvedModel(max_tokens=0),
        ResolvedModel(max_tokens=True),
        ResolvedModel(reasoning_efforts=("a", "a")),
        ResolvedModel(reasoning_efforts=("",)),
        ResolvedModel(reasoning_effort="x", reasoning_efforts=("a",)),
        ResolvedModel(reasoning_effort=""),
        ResolvedModel(input_modalities=()),
        ResolvedModel(input_modalities=("image",)),
    ],
)
async def test_metadata_no_request_could_be_built_from_is_refused(model: ResolvedModel) -> None:
    async with open_seam() as seam:
        seam.llm.register(seam.ctx, PartsAdapter(model=model), ("p",))
        with pytest.raises(LlmError) as caught:
            await seam.llm.prepare_call(call_config())
        assert caught.value.code == "INVALID_MODEL_METADATA"
        assert "'p'" in str(caught.value)


@pytest.mark.holds("D4", "LS49")
async def test_only_a_missing_adapter_is_tolerated_when_preparing() -> None:
    async with open_seam() as seam:
        proposed = call_config("nobody")
        call = await seam.llm.prepare_call(proposed)
        assert not call.known
        assert call.config is proposed
        assert (call.adapter_defaults, call.retry_policy, call.context_window) == (None,) * 3
        seam.llm.register(
            seam.ctx,
            PartsAdapter(model=LlmError("no such model", code="HTTP_404", status=404)),
            ("p",),
        )
        seam.llm.register(seam.ctx, PartsAdapter(model=OSError("refused")), ("q",))
        with pytest.raises(LlmError) as caught:
            await seam.llm.prepare_call(call_config("p"))
        assert (caught.value.code, caught.value.status) == ("HTTP_404", 404)
        with pytest.raises(LlmError) as caught:
            await seam.llm.prepare_call(call_config("q"))
        assert caught.value.code == "TRANSPORT"


@pytest.mark.holds("D4", "LS13")
async def test_a_route_without_an_adapter_ends_in_no_adapter_unless_a_listener_serves_it() -> None:
    async with open_seam() as seam:
        seam.llm.register(seam.ctx, PartsAdapter(), ("deepseek",))
        call = await seam.llm.prepare_call(call_config("deepsek"))
        chunks = await collect(call.stream(ask(provider="deepsek")))
        assert failure_code(chunks) == ("error", "NO_ADAPTER")
        (last,) = chunks
        assert isinstance(last, FinishChunk)
        assert isinstance(last.reason, ErrorFinish)
        assert "did you mean 'deepseek'?" in last.reason.failure.message

        @seam.ctx.on(ev.llm.STREAM)
        @asynccontextmanager
        async def serve(
            stream: ev.llm.Stream, call_next: StreamNext[StreamChunk]
        ) -> AsyncGenerator[AsyncIterator[StreamChunk]]:
            del call_next
            yield saying("from a listener")(stream.request)

        call = await seam.llm.prepare_call(call_config("deepsek"))
        chunks = await collect(call.stream(ask(provider="deepsek")))
        assert chunks == [TextDeltaChunk(index=0, text="from a listener"), STOP]
        assert serve.active


@pytest.mark.holds("D3", "LS12", "LS37")
async def test_a_prepared_call_keeps_its_adapter_when_the_route_is_replaced() -> None:
    async with open_seam() as seam:
        old, new = PartsAdapter(saying("old")), PartsAdapter(saying("new"))
        handle = seam.llm.register(seam.ctx, old, ("p",))
        call = await seam.llm.prepare_call(call_config())
        await handle.aclose()
        seam.llm.register(seam.ctx, new, ("p",))
        assert (await collect(call.stream(ask())))[0] == TextDeltaChunk(index=0, text="old")
        assert (await seam.run(ask()))[0] == TextDeltaChunk(index=0, text="new")


@pytest.mark.holds("D3")
async def test_a_prepared_call_streams_once_and_only_what_it_was_prepared_for() -> None:
    async with open_seam() as seam:
        adapter = PartsAdapter()
        seam.llm.register(seam.ctx, adapter, ("p",))
        call = await seam.llm.prepare_call(call_config())
        with pytest.raises(LlmError, match="model is 'other', was 'm'") as caught:
            call.stream(ask(model="other"))
        assert caught.value.code == "INVALID_PREPARED_CALL"
        assert await collect(call.stream(ask())) == [STOP]
        with pytest.raises(LlmError, match="already streamed"):
            call.stream(ask())
        assert len(adapter.requests) == 1


@pytest.mark.holds("LS39")
async def test_cancelling_the_signal_cuts_the_resolving_off() -> None:
    signal = ManualSignal()

    class Slow(PartsAdapter):
        @override
        async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
            signal.cancel()
            await trio.sleep_forever()
            raise AssertionError

    async with open_seam() as seam:
        seam.llm.register(seam.ctx, Slow(), ("p",))
        with pytest.raises(RuntimeError, match="cancelled"):
            await seam.llm.prepare_call(call_config(), signal)
        ready = ManualSignal()
        seam.llm.register(seam.ctx, PartsAdapter(), ("q",))
        assert (await seam.llm.prepare_call(call_config("q"), ready)).known


@pytest.mark.parametrize(
    "policy",
    [
        AlwaysRetryPolicy(),
        NormalRetryPolicy(max_retries=0),
    ],
)
async def test_the_policy_is_captured_when_the_adapter_is_registered(policy: RetryPolicy) -> None:
    async with open_seam() as seam:
        adapter = PartsAdapter(policy=policy)
        seam.llm.register(seam.ctx, adapter, ("p",))
        adapter.policy = None
        assert (await seam.llm.prepare_call(call_config())).retry_policy == policy
