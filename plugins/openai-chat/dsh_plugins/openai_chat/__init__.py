"""The plugin `openai-chat`: models behind servers that speak OpenAI's chat completions.

What comes in: profiles of provider routes from the configuration; addresses, proxies and keys from
the seams. What goes out: one registered adapter for all routes. `deepseek` is always among them.
"""

from __future__ import annotations

from dsh.kernel import Context, plugin
from dsh.llm import http
from dsh_plugins.openai_chat.adapter import ChatAdapter
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile
from dsh_plugins.openai_chat.families import server_of

__all__ = ["openai_chat"]


@plugin(name="openai-chat", config=OpenAiChatConfig, deps=http.Needs)
async def openai_chat(ctx: Context, config: OpenAiChatConfig, deps: http.Needs) -> None:
    """Register one adapter for every configured route, and for `deepseek`."""
    profiles = {"deepseek": ProviderProfile(), **config.providers}
    servers = {name: server_of(name, profile) for name, profile in profiles.items()}
    adapter = ChatAdapter(servers, deps.environ, deps.credentials, ctx.clock)
    await adapter.serve(ctx, deps.llm)
