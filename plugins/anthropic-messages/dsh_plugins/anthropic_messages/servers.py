"""One server with every choice made: profile, variables, efforts.

What comes in: a profile from the configuration and the name of its route. What goes out: the
complete server. Data only; nothing here talks to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.hooks import EMPTY_OBJECT, FrozenDict, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks import JsonObject
    from dsh_plugins.anthropic_messages.catalog import MessagesModel, MessagesProfile

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
    """One route. `api_key_env` is None for a server without a key."""

    provider: str
    display_name: str
    base_url_env: str | None
    api_key_env: str | None
    efforts: Mapping[str, JsonObject]
    extra_body: JsonObject
    profile: MessagesProfile

    def model(self, name: str) -> MessagesModel | None:
        """What the profile says of this model."""
        return next((model for model in self.profile.models if model.id == name), None)


def server_of(provider: str, profile: MessagesProfile) -> Server:
    """Make every choice that the profile leaves open."""
    own = provider == "anthropic"
    return Server(
        provider=provider,
        display_name=profile.display_name or provider,
        base_url_env=profile.base_url_env or ("ANTHROPIC_BASE_URL" if own else None),
        api_key_env=profile.api_key_env or ("ANTHROPIC_API_KEY" if own else None),
        efforts=EFFORTS if profile.efforts is None else profile.efforts,
        extra_body=EMPTY_OBJECT if profile.extra_body is None else profile.extra_body,
        profile=profile,
    )
