"""The plugin `openai-chat`: models behind servers that speak OpenAI's chat completions.

What comes in: profiles of provider routes from the configuration; addresses, proxies and keys from
the seams. What goes out: one registered adapter for all routes. `deepseek` is always among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.hooks import frozen
from dsh.kernel import Context, plugin, required
from dsh.llm import LLM, LlmRuntime
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ
from dsh_plugins.openai_chat.adapter import ChatAdapter
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile
from dsh_plugins.openai_chat.families import server_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["openai_chat"]


@frozen
class Needs:
    """What the plugin stands on."""

    llm: LlmRuntime = required(LLM)
    environ: Environ = required(ENVIRON)
    credentials: Credentials = required(CREDENTIALS)


@plugin(name="openai-chat", config=OpenAiChatConfig, deps=Needs)
async def openai_chat(ctx: Context, config: OpenAiChatConfig, deps: Needs) -> None:
    """Register one adapter for every configured route, and for `deepseek`."""
    profiles = {"deepseek": ProviderProfile(), **config.providers}
    servers = {name: server_of(name, profile) for name, profile in profiles.items()}
    deps.credentials.reserve(
        server.habits.api_key_env
        for server in servers.values()
        if server.habits.api_key_env is not None
    )
    adapter = ChatAdapter(servers, deps.environ, deps.credentials, ctx.clock)

    async def connections() -> Callable[[], Awaitable[None]]:
        return adapter.aclose

    # First in, last out: the routes are gone before the connections close.
    await ctx.aeffect(connections, label="connections to model servers")
    deps.llm.register(ctx, adapter, tuple(servers))
