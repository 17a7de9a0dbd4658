"""The plugin `anthropic-messages`: models behind servers that speak Anthropic's messages.

What comes in: profiles of provider routes from the configuration; addresses, proxies and keys from
the seams. What goes out: one registered adapter for all routes. `anthropic` is always among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.hooks import frozen
from dsh.kernel import Context, plugin, required
from dsh.llm import LLM, LlmRuntime
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ
from dsh_plugins.anthropic_messages.adapter import MessagesAdapter
from dsh_plugins.anthropic_messages.catalog import AnthropicMessagesConfig, MessagesProfile
from dsh_plugins.anthropic_messages.servers import server_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["anthropic_messages"]


@frozen
class Needs:
    """What the plugin stands on."""

    llm: LlmRuntime = required(LLM)
    environ: Environ = required(ENVIRON)
    credentials: Credentials = required(CREDENTIALS)


@plugin(name="anthropic-messages", config=AnthropicMessagesConfig, deps=Needs)
async def anthropic_messages(ctx: Context, config: AnthropicMessagesConfig, deps: Needs) -> None:
    """Register one adapter for every configured route, and for `anthropic`."""
    profiles = {"anthropic": MessagesProfile(), **config.providers}
    servers = {name: server_of(name, profile) for name, profile in profiles.items()}
    deps.credentials.reserve(
        server.api_key_env for server in servers.values() if server.api_key_env is not None
    )
    adapter = MessagesAdapter(servers, deps.environ, deps.credentials, ctx.clock)

    async def connections() -> Callable[[], Awaitable[None]]:
        return adapter.aclose

    # First in, last out: the routes are gone before the connections close.
    await ctx.aeffect(connections, label="connections to model servers")
    deps.llm.register(ctx, adapter, tuple(servers))
