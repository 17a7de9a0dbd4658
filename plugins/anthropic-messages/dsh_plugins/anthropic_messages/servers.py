"""One server with every choice made: profile, variables, efforts.

What comes in: a profile from the configuration and the name of its route. What goes out: the
complete server. Data only; nothing here talks to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.hooks import EMPTY_OBJECT, FrozenDict, frozen
from dsh.llm import ResolvedModel, http

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks import JsonObject
    from dsh_plugins.anthropic_messages.catalog import MessagesProfile

__all__ = ["BUDGET_MIN", "Server", "server_of"]

#: The smallest budget for thinking that servers accept, in tokens.
BUDGET_MIN: Final = 1024


def _budget(tokens: int) -> JsonObject:
    return FrozenDict({"thinking": FrozenDict({"type": "enabled", "budget_tokens": tokens})})


EFFORTS: Final[Mapping[str, JsonObject]] = {
    "off": FrozenDict({"thinking": FrozenDict({"type": "disabled"})}),
    "low": _budget(2048),
    "medium": _budget(8192),
    "high": _budget(24_576),
}


@frozen(kw_only=True, slots=True)
class Server:
    """One route, complete."""

    provider: str
    efforts: Mapping[str, JsonObject]
    extra_body: JsonObject
    profile: MessagesProfile

    @property
    def route(self) -> http.ServerRoute:
        """What the connections need to know of it."""
        profile, own = self.profile, self.provider == "anthropic"
        return http.ServerRoute(
            provider=self.provider,
            display_name=profile.display_name or self.provider,
            base_url=profile.base_url,
            base_url_env=profile.base_url_env or ("ANTHROPIC_BASE_URL" if own else None),
            endpoint="/v1/messages",
            # People write the address with and without the version.
            optional_path="/v1",
            example="https://api.anthropic.com",
            api_key_env=profile.api_key_env or ("ANTHROPIC_API_KEY" if own else None),
            models=profile.models,
            unlisted=ResolvedModel(
                context_window=profile.context_window,
                max_tokens=profile.max_tokens,
                reasoning_effort=profile.reasoning_effort,
                reasoning_efforts=tuple(self.efforts),
            ),
            connect_timeout_ms=profile.connect_timeout_ms,
            idle_timeout_ms=profile.idle_timeout_ms,
            retry_policy=profile.retry_policy,
        )


def server_of(provider: str, profile: MessagesProfile) -> Server:
    """Make every choice that the profile leaves open."""
    return Server(
        provider=provider,
        efforts=EFFORTS if profile.efforts is None else profile.efforts,
        extra_body=EMPTY_OBJECT if profile.extra_body is None else profile.extra_body,
        profile=profile,
    )
