"""Registering adapters: all or nothing, replaced in one step, gone with their plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from dsh import catalog as ev
from dsh.catalog.records import (
    NormalRetryPolicy,
    TextDeltaChunk,
)
from dsh.errors import LlmError
from dsh.kernel import Context, plugin
from dsh.llm import (
    LlmAdapter,
    ModelInfo,
    ProviderInfo,
)
from dsh.testing.model_seam import (
    STOP,
    PartsAdapter,
    ask,
    call_config,
    open_seam,
    saying,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.holds("LS09", "LS24", "LS53", "LS56")
async def test_a_registered_adapter_serves_its_routes_until_it_is_disposed() -> None:
    async with open_seam() as seam:
        seen: list[tuple[str, ...]] = []
        seam.ctx.on(ev.llm.ADAPTERS_UPDATED)(lambda _: seen.append(seam.llm.routes()))
        adapter = PartsAdapter(saying("hi"))
        handle = seam.llm.register(seam.ctx, adapter, ("b", "a"))
        assert seam.llm.routes() == ("a", "b")
        assert seam.llm.provider_info("a") == ProviderInfo(name="a")
        assert await seam.llm.list_models("a") == ()
        request = ask(provider="b")
        assert await seam.run(request) == [TextDeltaChunk(index=0, text="hi"), STOP]
        assert adapter.requests == [request]
        assert handle.active
        assert handle.dispose()
        assert not handle.dispose()
        assert seam.llm.routes() == ()
        seam.llm.register(seam.ctx, adapter, ("a",))
        assert seen == [("a", "b"), (), ("a",)]


@pytest.mark.holds("LS54", "LS55", "LS41")
async def test_a_registration_is_all_or_nothing() -> None:
    async with open_seam() as seam:
        seam.llm.register(seam.ctx, PartsAdapter(), ("taken",))
        refused: list[tuple[LlmAdapter, tuple[str, ...], str]] = [
            (PartsAdapter(), ("new", "taken"), "DUPLICATE_ADAPTER"),
            (PartsAdapter(), (), "INVALID_REGISTRATION"),
            (PartsAdapter(), ("x", "x"), "INVALID_REGISTRATION"),
            (PartsAdapter(), ("x", ""), "INVALID_REGISTRATION"),
            (Nameless(), ("good", "bad"), "INVALID_PROVIDER_METADATA"),
            (
                PartsAdapter(policy=NormalRetryPolicy(initial_delay_ms=9000, max_delay_ms=10)),
                ("x",),
                "INVALID_RETRY_POLICY",
            ),
            (
                PartsAdapter(policy=NormalRetryPolicy(retryable_codes=("A", "A"))),
                ("x",),
                "INVALID_RETRY_POLICY",
            ),
        ]
        for adapter, routes, code in refused:
            with pytest.raises(LlmError) as caught:
                seam.llm.register(seam.ctx, adapter, routes)
            assert caught.value.code == code
            assert seam.llm.routes() == ("taken",)


class Nameless(PartsAdapter):
    @override
    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(name=" " if provider == "bad" else provider)


@pytest.mark.holds("LS57", "LS58", "LS12")
async def test_routes_are_replaced_in_one_step_and_a_live_registration_may_be_emptied() -> None:
    async with open_seam() as seam:
        first, second = PartsAdapter(saying("one")), PartsAdapter(saying("two"))
        handle = seam.llm.register(seam.ctx, first, ("a", "b"))
        seam.llm.register(seam.ctx, second, ("c",))
        with pytest.raises(LlmError, match="'c' already has an adapter"):
            handle.replace(("b", "c"))
        assert seam.llm.routes() == ("a", "b", "c")
        handle.replace(("b", "d"))
        assert seam.llm.routes() == ("b", "c", "d")
        handle.replace(())
        assert seam.llm.routes() == ("c",)
        handle.replace(("e",))
        await handle.aclose()
        with pytest.raises(LlmError, match="registration of PartsAdapter is gone"):
            handle.replace(("f",))
        assert seam.llm.routes() == ("c",)


@pytest.mark.holds("LS22")
async def test_a_registration_goes_with_the_plugin_that_made_it() -> None:
    async with open_seam() as seam:
        llm = seam.llm

        @plugin(name="guest")
        async def guest(ctx: Context) -> None:
            llm.register(ctx, PartsAdapter(), ("guest",))

        fiber = seam.kernel.mount(guest)
        await fiber.ready()
        assert llm.routes() == ("guest",)
        await fiber.dispose()
        assert llm.routes() == ()


class Listing(PartsAdapter):
    def __init__(self, *rows: ModelInfo) -> None:
        super().__init__()
        self.rows = rows

    @override
    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return list(self.rows)


@pytest.mark.holds("LS23", "LS42", "LS43", "LS27")
async def test_the_catalogue_is_advisory_detached_and_checked() -> None:
    async with open_seam() as seam:
        row = ModelInfo(id="m1", context_window=10)
        seam.llm.register(seam.ctx, Listing(row), ("ok",))
        seam.llm.register(seam.ctx, Listing(row, row), ("twice",))
        seam.llm.register(seam.ctx, Listing(ModelInfo(id="")), ("nameless",))
        seam.llm.register(seam.ctx, Listing(ModelInfo(id="m", max_tokens=0)), ("zero",))
        assert await seam.llm.list_models("ok") == (row,)
        for provider in ("twice", "nameless", "zero"):
            with pytest.raises(LlmError) as caught:
                await seam.llm.list_models(provider)
            assert caught.value.code == "INVALID_MODEL_CATALOG"
        call = await seam.llm.prepare_call(call_config("ok", "not listed"))
        assert call.known
        assert call.context_window is None


async def test_an_unknown_provider_is_named_with_the_nearest_and_all_others() -> None:
    async with open_seam() as seam:
        seam.llm.register(seam.ctx, PartsAdapter(), ("deepseek",))
        with pytest.raises(LlmError, match=r"did you mean 'deepseek'\? Registered: deepseek"):
            seam.llm.verify("deepsek")
        seam.llm.verify("deepseek")
