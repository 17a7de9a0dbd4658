"""The plugin `openai-chat` in a kernel: routes, keys, lifetime."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin
from dsh.catalog.records import AlwaysRetryPolicy, FinishChunk, ModelProfile, StopFinish, TextBlock
from dsh.errors import MissingCredential
from dsh.llm import Assembler, ScriptEntry
from dsh.testing import ModelServer, Wait, delta, open_model_server, sse_reply
from dsh.testing.model_seam import Seam, ask, call_config, collect, open_seam, user
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from dsh.kernel import Fiber
    from dsh.seams.environ import Credentials


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """No test of this module may hang: real time, so real limits."""
    with trio.fail_after(20):
        yield


@asynccontextmanager
async def mounted(
    variables: Mapping[str, str], **providers: ProviderProfile
) -> AsyncGenerator[tuple[Seam, Fiber, Credentials]]:
    environ = ProcessEnviron(variables)
    credentials = EnvironCredentials(environ)
    async with open_seam() as seam:
        await seam.kernel.mount(environ_plugin(environ, credentials)).ready()
        fiber = seam.kernel.mount(openai_chat, OpenAiChatConfig(providers=providers))
        await fiber.ready()
        yield seam, fiber, credentials


def at(server: ModelServer, **more: object) -> ProviderProfile:
    return ProviderProfile(base_url=server.base_url, **more)  # type: ignore[arg-type]


async def test_deepseek_is_always_there_and_its_variables_are_kept_from_children() -> None:
    async with open_model_server([ScriptEntry(text="hi")], strict=True) as server:
        variables = {"DEEPSEEK_API_KEY": "k", "DEEPSEEK_BASE_URL": server.base_url}
        own = ProviderProfile(base_url="http://127.0.0.1:9", api_key_env="MY_KEY")
        async with mounted(variables, own=own) as (seam, _, credentials):
            assert seam.llm.routes() == ("deepseek", "own")
            assert {"DEEPSEEK_API_KEY", "MY_KEY"} <= credentials.secret_names()
            assert seam.llm.provider_info("deepseek").where == server.url
            seam.llm.verify("deepseek")
            with pytest.raises(MissingCredential, match="MY_KEY is not set"):
                seam.llm.verify("own")
            call = await seam.llm.prepare_call(call_config("deepseek"))
            assembler = Assembler()
            async with call.stream(ask(user("hello"), provider="deepseek")) as chunks:
                async for chunk in chunks:
                    assembler.push(chunk)
            assert assembler.blocks() == (TextBlock(text="hi"),)
            assert server.requests[0].headers["authorization"] == "Bearer k"


async def test_a_missing_key_is_the_failure_of_the_attempt_and_names_its_variable() -> None:
    async with mounted({}) as (seam, _, _credentials):
        chunks = await seam.run(ask(user("x"), provider="deepseek"))
    (last,) = chunks
    assert isinstance(last, FinishChunk)
    assert last.reason.kind == "error"
    assert last.reason.failure.code == "MISSING_CREDENTIAL"
    assert "DEEPSEEK_API_KEY is not set" in last.reason.failure.message


async def test_what_is_configured_of_a_model_reaches_the_prepared_call() -> None:
    profile = ProviderProfile(
        base_url="http://127.0.0.1:9",
        family="deepseek",
        context_window=1000,
        max_tokens=10,
        retry_policy=AlwaysRetryPolicy(),
        models=(
            ModelProfile(
                id="big",
                context_window=9000,
                reasoning_effort="low",
                reasoning_efforts=("off", "low"),
            ),
        ),
    )
    async with mounted({}, p=profile) as (seam, _, _credentials):
        call = await seam.llm.prepare_call(call_config("p", "big"))
        assert (call.context_window, call.config.max_tokens) == (9000, 10)
        assert call.config.reasoning_effort == "low"
        assert call.retry_policy == AlwaysRetryPolicy()
        other = await seam.llm.prepare_call(call_config("p", "other", effort="max"))
        assert other.context_window == 1000
        assert [row.id for row in await seam.llm.list_models("p")] == ["big"]


async def test_unloading_lets_a_running_reply_end_and_then_closes_its_connection() -> None:
    slow = sse_reply(delta(content="a"), Wait(0.1), delta("stop", content="b"))
    async with (
        open_model_server([slow]) as server,
        mounted({}, p=at(server)) as (seam, fiber, _),
        trio.open_nursery() as nursery,
    ):
        call = await seam.llm.prepare_call(call_config("p"))
        assert server.connections == 0
        got: list[object] = []

        async def read() -> None:
            got.extend(await collect(call.stream(ask(user("x"), provider="p"))))

        nursery.start_soon(read)
        await server.when_requests(1)
        await fiber.dispose()
        assert seam.llm.routes() == ()
        assert got[-1] == FinishChunk(reason=StopFinish())
        await server.when_open(0)
