"""The adapter: provider routes of messages servers, over one client.

What comes in: the configured servers, the seams ENVIRON and CREDENTIALS, and frozen requests. What
goes out: one stream for each attempt. Address and key are looked up for every request; neither
appears in a log, a repr or an error. Nothing is sent anywhere but to the configured server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, final

from typing_extensions import override

from dsh.errors import LlmError
from dsh.llm import (
    DEFAULT_RETRY_POLICY,
    LlmAdapter,
    ModelInfo,
    ProviderInfo,
    ResolvedModel,
    http,
)
from dsh_plugins.anthropic_messages.body import BodyEncoder
from dsh_plugins.anthropic_messages.reply import ReplyDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from dsh.catalog.records import RetryPolicy
    from dsh.hooks.live import ChunkStream, LlmRequest
    from dsh.kernel import Clock
    from dsh.seams.environ import Credentials, Environ, Secret
    from dsh_plugins.anthropic_messages.servers import Server

__all__ = ["MessagesAdapter"]


@final
class MessagesAdapter(LlmAdapter):
    """Serves every configured provider route. Whoever makes it awaits `aclose()`."""

    #: Thinking goes back with the signature that came with it, and only with that.
    reads_replay_state: ClassVar[bool] = True

    def __init__(
        self,
        servers: Mapping[str, Server],
        environ: Environ,
        credentials: Credentials,
        clock: Clock,
    ) -> None:
        self._servers: Final = servers
        self._environ: Final = environ
        self._credentials: Final = credentials
        self._encoders: Final = {name: BodyEncoder(server) for name, server in servers.items()}
        self._connections: Final = http.Connections(environ, clock)

    @override
    def stream(self, request: LlmRequest) -> ChunkStream:
        self._connections.check_open(request.provider)
        server = self._servers[request.provider]
        profile, address, secret = server.profile, self._address(server), self._secret(server)
        headers = {"anthropic-version": profile.api_version, **profile.headers}
        if secret is not None and profile.auth == "bearer":
            headers["Authorization"] = f"Bearer {secret.reveal()}"
        elif secret is not None:
            headers["x-api-key"] = secret.reveal()
        return self._connections.stream(
            address,
            self._encoders[request.provider].body(request),
            headers=headers,
            secret=secret,
            connect_timeout_ms=profile.connect_timeout_ms,
            idle_timeout_ms=profile.idle_timeout_ms,
            decoder=ReplyDecoder,
        )

    @override
    async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
        server = self._servers[provider]
        profile, known = server.profile, server.model(model)
        names = tuple(server.efforts)
        if known is None:
            return ResolvedModel(
                context_window=profile.context_window,
                max_tokens=profile.max_tokens,
                reasoning_effort=profile.reasoning_effort,
                reasoning_efforts=names,
            )
        return ResolvedModel(
            context_window=known.context_window or profile.context_window,
            max_tokens=known.max_tokens or profile.max_tokens,
            reasoning_effort=known.reasoning_effort or profile.reasoning_effort,
            reasoning_efforts=(
                known.reasoning_efforts if known.reasoning_efforts is not None else names
            ),
        )

    @override
    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._servers[provider].profile.retry_policy or DEFAULT_RETRY_POLICY

    @override
    def provider_info(self, provider: str) -> ProviderInfo:
        server = self._servers[provider]
        try:
            where = http.shown(self._address(server))
        except LlmError:
            where = None
        return ProviderInfo(name=server.display_name, where=where)

    @override
    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return tuple(
            ModelInfo(
                id=model.id,
                name=model.name,
                context_window=model.context_window,
                max_tokens=model.max_tokens,
            )
            for model in self._servers[provider].profile.models
        )

    @override
    def verify(self, provider: str) -> None:
        server = self._servers[provider]
        self._address(server)
        self._secret(server)

    async def aclose(self) -> None:
        """Take no more requests, let running replies end for a while, then close connections."""
        await self._connections.aclose()

    def _secret(self, server: Server) -> Secret | None:
        name = server.api_key_env
        return self._credentials.resolve(name) if name is not None else None

    def _address(self, server: Server) -> httpx.URL:
        """The URL of messages. Raises LlmError INVALID_REQUEST with what to set."""
        name = server.base_url_env
        said = self._environ.get(name) if name is not None else None
        text = (said or server.profile.base_url).strip().rstrip("/")
        # People write the address with and without the version.
        return http.address(
            server.provider,
            text.removesuffix("/v1"),
            (name if said else None) or "baseUrl",
            "/v1/messages",
            "https://api.anthropic.com",
        )
