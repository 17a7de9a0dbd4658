"""What every adapter of model servers does alike: routes, addresses, keys, models, unloading.

What comes in: routes with every choice made, the seams ENVIRON and CREDENTIALS, and request bodies.
What goes out: a registered adapter, and one stream for each attempt. Address and key are looked up
for every request, so a changed key takes effect at once; neither appears in a log, a repr or an
error. What a request and a reply look like is the wire's business, which derives from this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import field
from typing_extensions import override

from dsh.errors import LlmError
from dsh.hooks import frozen
from dsh.kernel import required
from dsh.llm.adapter import (
    DEFAULT_RETRY_POLICY,
    LlmAdapter,
    ModelInfo,
    ProviderInfo,
    ResolvedModel,
)
from dsh.llm.call import LLM, LlmRuntime
from dsh.llm.http.connections import Connections, address, shown
from dsh.seams.environ import CREDENTIALS, ENVIRON, Credentials, Environ

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import httpx

    from dsh.catalog.records import ModelProfile, RetryPolicy
    from dsh.hooks.live import ChunkStream
    from dsh.kernel import Clock, Context
    from dsh.llm.http.stream import MakeDecoder
    from dsh.seams.environ import Secret

__all__ = ["Needs", "ServerAdapter", "ServerRoute", "Target"]


@frozen
class Needs:
    """What the plugin of such an adapter stands on."""

    llm: LlmRuntime = required(LLM)
    environ: Environ = required(ENVIRON)
    credentials: Credentials = required(CREDENTIALS)


@frozen(kw_only=True, slots=True)
class ServerRoute:
    """One provider route: whom to ask, and what is known of its models.

    `base_url` is where the server is, unless the variable `base_url_env` says otherwise; `endpoint`
    stands at the end of its path, and `optional_path` may be written there in front of it or not.
    `api_key_env` is None for a server without a key. `unlisted` holds for models that are not among
    `models`, and fills in what is not said of those that are.
    """

    provider: str
    display_name: str
    base_url: str | None
    base_url_env: str | None
    endpoint: str
    optional_path: str = ""
    example: str
    api_key_env: str | None
    models: tuple[ModelProfile, ...]
    unlisted: ResolvedModel
    connect_timeout_ms: float
    idle_timeout_ms: float
    retry_policy: RetryPolicy | None

    def model(self, name: str) -> ModelProfile | None:
        """What the configuration says of this model."""
        return next((model for model in self.models if model.id == name), None)


@frozen(slots=True)
class Target:
    """Where one attempt goes, and with which key. Its repr shows neither."""

    route: ServerRoute
    url: httpx.URL = field(repr=False)
    secret: Secret | None = field(repr=False)


class ServerAdapter(LlmAdapter):
    """Serves every given route over one pool. Derive from it, and define `stream`.

    Whoever makes it lets it `serve`, or awaits `aclose()`.
    """

    def __init__(
        self,
        routes: Mapping[str, ServerRoute],
        environ: Environ,
        credentials: Credentials,
        clock: Clock,
    ) -> None:
        self._routes: Final = routes
        self._environ: Final = environ
        self._credentials: Final = credentials
        self._connections: Final = Connections(environ, clock)

    async def serve(self, ctx: Context, llm: LlmRuntime) -> None:
        """Register every route, owned by `ctx`; unloading it closes the connections last."""
        names = (route.api_key_env for route in self._routes.values())
        self._credentials.reserve(name for name in names if name is not None)

        async def connections() -> Callable[[], Awaitable[None]]:
            return self.aclose

        # First in, last out: the routes are gone before the connections close.
        await ctx.aeffect(connections, label="connections to model servers")
        llm.register(ctx, self, tuple(self._routes))

    def target(self, provider: str) -> Target:
        """Where a request to this route goes now.

        Raises LlmError NO_ADAPTER after unloading, INVALID_REQUEST for an address that is none, and
        MissingCredential.
        """
        self._connections.check_open(provider)
        route = self._routes[provider]
        return Target(route, self._address(route), self._secret(route))

    def post(
        self,
        target: Target,
        body: bytes,
        *,
        headers: Mapping[str, str],
        decoder: MakeDecoder,
    ) -> ChunkStream:
        """One attempt; nothing is sent before the stream is entered."""
        return self._connections.stream(
            target.url,
            body,
            headers=headers,
            secret=target.secret,
            connect_timeout_ms=target.route.connect_timeout_ms,
            idle_timeout_ms=target.route.idle_timeout_ms,
            decoder=decoder,
        )

    @override
    async def resolve_model(self, provider: str, model: str) -> ResolvedModel:
        route = self._routes[provider]
        known, unlisted = route.model(model), route.unlisted
        if known is None:
            return unlisted
        efforts = known.reasoning_efforts
        return ResolvedModel(
            context_window=known.context_window or unlisted.context_window,
            max_tokens=known.max_tokens or unlisted.max_tokens,
            reasoning_effort=known.reasoning_effort or unlisted.reasoning_effort,
            reasoning_efforts=unlisted.reasoning_efforts if efforts is None else efforts,
        )

    @override
    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._routes[provider].retry_policy or DEFAULT_RETRY_POLICY

    @override
    def provider_info(self, provider: str) -> ProviderInfo:
        route = self._routes[provider]
        try:
            where = shown(self._address(route))
        except LlmError:
            where = None
        return ProviderInfo(name=route.display_name, where=where)

    @override
    async def list_models(self, provider: str) -> Sequence[ModelInfo]:
        return tuple(
            ModelInfo(
                id=model.id,
                name=model.name,
                context_window=model.context_window,
                max_tokens=model.max_tokens,
            )
            for model in self._routes[provider].models
        )

    @override
    def verify(self, provider: str) -> None:
        route = self._routes[provider]
        self._address(route)
        self._secret(route)

    async def aclose(self) -> None:
        """Take no more requests, let running replies end for a while, then close connections.

        A reply that is cut off by this ends as TRANSPORT, like any other lost connection.
        """
        await self._connections.aclose()

    def _secret(self, route: ServerRoute) -> Secret | None:
        name = route.api_key_env
        return self._credentials.resolve(name) if name is not None else None

    def _address(self, route: ServerRoute) -> httpx.URL:
        """The URL of the endpoint. Raises LlmError INVALID_REQUEST with what to set."""
        variable = route.base_url_env
        said = self._environ.get(variable) if variable is not None else None
        text = said or route.base_url or ""
        if route.optional_path:
            text = text.strip().rstrip("/").removesuffix(route.optional_path)
        source = (variable if said else None) or "baseUrl"
        return address(route.provider, text, source, route.endpoint, route.example)
