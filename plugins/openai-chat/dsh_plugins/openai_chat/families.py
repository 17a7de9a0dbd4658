"""What is special about single server families: data, not code paths.

What comes in: a profile from the configuration and the name of its route. What goes out: the
complete habits of that server, every choice made. A new server is a new row here, or a few keys
in a profile; nothing else in this plugin asks which server it talks to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import evolve

from dsh.hooks import EMPTY_OBJECT, FrozenDict, frozen
from dsh.llm import ResolvedModel, http

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks import JsonObject
    from dsh_plugins.openai_chat.catalog import ProviderProfile

__all__ = ["FAMILIES", "Family", "Server", "server_of"]

ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning"]
Passback: TypeAlias = Literal["always", "own", "never"]


def _efforts(*names: str) -> Mapping[str, JsonObject]:
    return {name: FrozenDict({"reasoning_effort": name}) for name in names}


def _thinking(kind: str, **more: str) -> JsonObject:
    return FrozenDict({"thinking": FrozenDict({"type": kind}), **more})


@frozen(kw_only=True, slots=True)
class Family:
    """The habits of one kind of server.

    `efforts`: what each reasoning effort adds to the body; None: any effort is passed on as
    `reasoning_effort`. `passback`: which reasoning of earlier replies goes back, in
    `reasoning_field`: servers that need it refuse a history without it, others refuse it.
    `done_required`: a reply with its finish reason, but no `[DONE]`, counts as cut off.
    `context_window`: of models the profile says nothing of, in tokens.
    """

    base_url: str | None = None
    base_url_env: str | None = None
    api_key_env: str | None = None
    efforts: Mapping[str, JsonObject] | None = None
    reasoning_field: ReasoningField = "reasoning_content"
    passback: Passback = "own"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    stream_usage: bool = True
    done_required: bool = False
    context_window: int | None = None


FAMILIES: Final[Mapping[str, Family]] = {
    "generic": Family(),
    "deepseek": Family(
        context_window=131_072,
        base_url="https://api.deepseek.com",
        base_url_env="DEEPSEEK_BASE_URL",
        api_key_env="DEEPSEEK_API_KEY",
        efforts={
            "off": _thinking("disabled"),
            "low": _thinking("enabled", reasoning_effort="low"),
            "high": _thinking("enabled", reasoning_effort="high"),
            "max": _thinking("enabled", reasoning_effort="max"),
        },
        # A tool call that was made while thinking is refused without its reasoning.
        passback="always",
        done_required=True,
    ),
    "openai": Family(
        base_url="https://api.openai.com/v1",
        base_url_env="OPENAI_BASE_URL",
        api_key_env="OPENAI_API_KEY",
        efforts=_efforts("none", "minimal", "low", "medium", "high", "xhigh"),
        passback="never",
        max_tokens_field="max_completion_tokens",
        done_required=True,
    ),
    "vllm": Family(passback="always"),
    "ollama": Family(
        base_url="http://127.0.0.1:11434/v1",
        efforts=_efforts("none", "low", "medium", "high"),
        reasoning_field="reasoning",
        passback="own",
    ),
    "llama-cpp": Family(base_url="http://127.0.0.1:8080/v1", passback="always"),
    "openrouter": Family(
        base_url="https://openrouter.ai/api/v1",
        api_key_env="OPENROUTER_API_KEY",
        efforts={
            name: FrozenDict({"reasoning": FrozenDict({"effort": name})})
            for name in ("none", "minimal", "low", "medium", "high", "xhigh")
        },
        reasoning_field="reasoning",
        passback="own",
    ),
}


@frozen(kw_only=True, slots=True)
class Server:
    """One provider route, complete: whom to ask, how, and what is known of its models."""

    provider: str
    habits: Family
    profile: ProviderProfile
    extra_body: JsonObject = EMPTY_OBJECT

    @property
    def route(self) -> http.ServerRoute:
        """What the connections need to know of it."""
        habits, profile = self.habits, self.profile
        return http.ServerRoute(
            provider=self.provider,
            display_name=profile.display_name or self.provider,
            base_url=habits.base_url,
            base_url_env=habits.base_url_env,
            endpoint="/chat/completions",
            example="http://127.0.0.1:8000/v1",
            api_key_env=habits.api_key_env,
            models=profile.models,
            unlisted=ResolvedModel(
                context_window=profile.context_window or habits.context_window,
                max_tokens=profile.max_tokens,
                reasoning_effort=profile.reasoning_effort,
                reasoning_efforts=None if habits.efforts is None else tuple(habits.efforts),
            ),
            connect_timeout_ms=profile.connect_timeout_ms,
            idle_timeout_ms=profile.idle_timeout_ms,
            retry_policy=profile.retry_policy,
        )


def server_of(provider: str, profile: ProviderProfile) -> Server:
    """The family's habits with the profile's own words over them."""
    kind = profile.family or ("deepseek" if provider == "deepseek" else "generic")
    family = FAMILIES[kind]
    own = profile.base_url or profile.base_url_env
    habits = evolve(
        family,
        base_url=profile.base_url if own else family.base_url,
        # An address in the configuration is final: no variable changes it.
        base_url_env=(None if profile.base_url else profile.base_url_env or family.base_url_env),
        api_key_env=profile.api_key_env or family.api_key_env,
        efforts=profile.efforts if profile.efforts is not None else family.efforts,
        reasoning_field=profile.reasoning_field or family.reasoning_field,
        passback=profile.reasoning_passback or family.passback,
        max_tokens_field=profile.max_tokens_field or family.max_tokens_field,
        system_role=profile.system_role or family.system_role,
        stream_usage=_said(profile.stream_usage, family.stream_usage),
        done_required=_said(profile.done_required, family.done_required),
    )
    return Server(
        provider=provider,
        habits=habits,
        profile=profile,
        extra_body=profile.extra_body or EMPTY_OBJECT,
    )


def _said(own: bool | None, family: bool) -> bool:  # noqa: FBT001 - two values of one field
    return family if own is None else own
