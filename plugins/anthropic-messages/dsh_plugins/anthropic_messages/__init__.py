"""The plugin `anthropic-messages`: models behind servers that speak Anthropic's messages.

What comes in: profiles of provider routes from the configuration; addresses, proxies and keys from
the seams. What goes out: one registered adapter for all routes. `anthropic` is always among them.
"""

from __future__ import annotations

from dsh.kernel import Context, plugin
from dsh.llm import http
from dsh_plugins.anthropic_messages.adapter import MessagesAdapter
from dsh_plugins.anthropic_messages.catalog import AnthropicMessagesConfig, MessagesProfile
from dsh_plugins.anthropic_messages.servers import server_of

__all__ = ["anthropic_messages"]


@plugin(name="anthropic-messages", config=AnthropicMessagesConfig, deps=http.Needs)
async def anthropic_messages(
    ctx: Context, config: AnthropicMessagesConfig, deps: http.Needs
) -> None:
    """Register one adapter for every configured route, and for `anthropic`."""
    profiles = {"anthropic": MessagesProfile(), **config.providers}
    servers = {name: server_of(name, profile) for name, profile in profiles.items()}
    adapter = MessagesAdapter(servers, deps.environ, deps.credentials, ctx.clock)
    await adapter.serve(ctx, deps.llm)
