"""The adapter: provider routes of chat-completions servers, over one client.

What comes in: the configured servers, the seams ENVIRON and CREDENTIALS, and frozen requests. What
goes out: one stream for each attempt. Address and key are looked up for every request, so a
changed key takes effect at once; neither appears in a log, a repr or an error. Nothing is sent
anywhere but to the configured server.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, final

import httpx
import trio
from typing_extensions import override

from dsh.errors import LlmError
from dsh.llm import (
    DEFAULT_RETRY_POLICY,
    LlmAdapter,
    ModelInfo,
    ProviderInfo,
    ResolvedModel,
)
from dsh_plugins.openai_chat.history import BodyEncoder
from dsh_plugins.openai_chat.network import new_client
from dsh_plugins.openai_chat.stream import Attempt, ReplyStream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh.catalog.records import RetryPolicy
    from dsh.hooks.live import ChunkStream, LlmRequest
    from dsh.kernel import Clock
    from dsh.seams.environ import Credentials, Environ, Secret
    from dsh_plugins.openai_chat.families import Server

__all__ = ["ChatAdapter"]

#: How long running replies may go on after the plugin was unloaded, in seconds.
GRACE_SECONDS: Final = 5.0


@final
class ChatAdapter(LlmAdapter):
    """Serves every configured provider route. Whoever makes it awaits `aclose()`."""

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
        self._clock: Final = clock
        self._encoders: Final = {name: BodyEncoder(server) for name, server in servers.items()}
        self._client: httpx.AsyncClient | None = None
        self._running = 0
        self._idle: trio.Event | None = None
        self._closed = False

    @override
    def stream(self, request: LlmRequest) -> ChunkStream:
        if self._closed:
            raise LlmError(
                f"the adapter of provider {request.provider!r} was unloaded before the request "
                "was sent; try again",
                code="NO_ADAPTER",
            )
        return ReplyStream(self._attempt(request), self._count)

    @override
    async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
        server = self._servers[provider]
        profile, known = server.profile, server.model(model)
        efforts = server.habits.efforts
        names = tuple(efforts) if efforts is not None else None
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
            where = _shown(self._address(server))
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
        """Take no more requests, let running replies end for a while, then close connections.

        A reply that is cut off by this ends as TRANSPORT, like any other lost connection.
        """
        self._closed = True
        if self._running:
            self._idle = trio.Event()
            with trio.move_on_after(GRACE_SECONDS):
                await self._idle.wait()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _count(self, change: int) -> None:
        self._running += change
        if not self._running and self._idle is not None:
            self._idle.set()

    def _attempt(self, request: LlmRequest) -> Attempt:
        server = self._servers[request.provider]
        address = self._address(server)
        secret = self._secret(server)
        headers = dict(server.profile.headers)
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret.reveal()}"
        client = self._client
        if client is None:
            client = self._client = new_client(self._environ, _user_agent())
        return Attempt(
            client=client,
            url=address,
            where=_shown(address),
            body=self._encoders[request.provider].body(request),
            headers=headers,
            secret=secret,
            connect_timeout=server.profile.connect_timeout_ms / 1000,
            idle_timeout=server.profile.idle_timeout_ms / 1000,
            done_required=server.habits.done_required,
            now_ms=self._clock.now_ms,
        )

    def _secret(self, server: Server) -> Secret | None:
        name = server.habits.api_key_env
        return self._credentials.resolve(name) if name is not None else None

    def _address(self, server: Server) -> httpx.URL:
        """The URL of chat completions. Raises LlmError INVALID_REQUEST with what to set."""
        habits = server.habits
        said = self._environ.get(habits.base_url_env) if habits.base_url_env is not None else None
        source = habits.base_url_env if said else "baseUrl"
        text = (said or habits.base_url or "").strip()
        try:
            url = httpx.URL(text)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
            problem = (
                "holds a user name or password, which would show up in errors"
                if url.userinfo
                else "is no http:// or https:// address"
                if text
                else "is missing"
            )
            raise LlmError(
                f"the address of provider {server.provider!r} ({source}) {problem}; write it as "
                "in http://127.0.0.1:8000/v1, and name the key's variable in `apiKeyEnv`",
                code="INVALID_REQUEST",
            )
        path = url.path.rstrip("/")
        if not path.endswith("/chat/completions"):
            path += "/chat/completions"
        return url.copy_with(path=path)


def _shown(url: httpx.URL) -> str:
    """The server as errors name it: without path and query, which may hold a token."""
    return f"{url.scheme}://{url.netloc.decode()}"


@cache
def _user_agent() -> str:
    try:
        return f"dsh-trio/{version('dsh-trio')}"
    except PackageNotFoundError:
        return "dsh-trio"
