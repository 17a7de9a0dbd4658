"""Which adapter serves which provider route, and who registered it.

What comes in: registrations, each of one adapter under one or more routes. What goes out: the
route of a provider, bound to exactly one registration, so that a call that was prepared before an
adapter was replaced still goes to the adapter it was prepared with. Nothing here does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from dsh.errors import LlmError
from dsh.hooks import frozen
from dsh.llm.metadata import check_policy, check_provider

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.catalog.records import RetryPolicy
    from dsh.hooks import EffectHandle
    from dsh.llm.adapter import LlmAdapter, ProviderInfo

__all__ = ["Registration", "Route", "RouteTable"]


@frozen(kw_only=True, slots=True, eq=False)
class Route:
    """One provider route of one registration, with what the adapter said of it at that time."""

    provider: str
    adapter: LlmAdapter
    policy: RetryPolicy
    info: ProviderInfo


@final
class RouteTable:
    """The routes in force. Changes are all or nothing; `changed` runs after each of them."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._routes: dict[str, Route] = {}
        self._changed: Final = changed

    def names(self) -> tuple[str, ...]:
        """Every provider that has an adapter, sorted."""
        return tuple(sorted(self._routes))

    def find(self, provider: str) -> Route | None:
        """The route in force for this provider, or None."""
        return self._routes.get(provider)

    def need(self, provider: str) -> Route:
        """The route in force, or NO_ADAPTER with the nearest names."""
        route = self._routes.get(provider)
        if route is None:
            raise self.missing(provider)
        return route

    def missing(self, provider: str) -> LlmError:
        """The failure of a call whose provider nobody serves."""
        from difflib import get_close_matches  # noqa: PLC0415 - only an error needs it

        near = get_close_matches(provider, self._routes, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else "."
        known = ", ".join(self.names()) or "none"
        return LlmError(
            f"no adapter serves provider {provider!r}{meant} Registered: {known}. "
            "A provider is a row under `openai-chat: providers`, or a plugin of its own.",
            code="NO_ADAPTER",
        )

    def swap(self, old: Sequence[Route], new: Sequence[Route]) -> None:
        """Take `old` out and put `new` in, or raise DUPLICATE_ADAPTER and change nothing."""
        going = {route.provider for route in old if self._routes.get(route.provider) is route}
        taken = sorted(
            route.provider
            for route in new
            if route.provider in self._routes and route.provider not in going
        )
        if taken:
            raise LlmError(
                f"provider {', '.join(map(repr, taken))} already has an adapter; give the route "
                "another name, or unload the plugin that serves it",
                code="DUPLICATE_ADAPTER",
            )
        for provider in going:
            del self._routes[provider]
        self._routes.update((route.provider, route) for route in new)
        if going or new:
            self._changed()


def routes_of(adapter: LlmAdapter, providers: Sequence[str]) -> tuple[Route, ...]:
    """Ask the adapter about each route and check its answers; raises LlmError."""
    if len(set(providers)) != len(providers) or not all(providers):
        raise LlmError(
            f"{type(adapter).__name__} is to serve {list(providers)!r}; each route needs a name "
            "of its own",
            code="INVALID_REGISTRATION",
        )
    return tuple(
        Route(
            provider=provider,
            adapter=adapter,
            policy=check_policy(provider, adapter.retry_policy(provider)),
            info=check_provider(provider, adapter.provider_info(provider)),
        )
        for provider in providers
    )


@final
class Registration:
    """The effect of `register`: an `EffectHandle` that can also change its routes in one step."""

    __slots__ = ("_adapter", "_handle", "_routes", "_table")

    def __init__(self, table: RouteTable, adapter: LlmAdapter, routes: tuple[Route, ...]) -> None:
        self._table = table
        self._adapter = adapter
        self._routes = routes
        self._handle: EffectHandle | None = None

    def begin(self, register: Callable[[Callable[[], Callable[[], None]]], EffectHandle]) -> None:
        """Make the registration an effect of its owner. Called once, by `LlmRuntime.register`."""

        def setup() -> Callable[[], None]:
            self._table.swap((), self._routes)
            return self._end

        self._handle = register(setup)

    def replace(self, routes: Sequence[str]) -> None:
        """Serve these routes instead; () is allowed. All or nothing; raises LlmError."""
        if not self.active:
            raise LlmError(
                f"the registration of {type(self._adapter).__name__} is gone; register it again",
                code="INVALID_REGISTRATION",
            )
        new = routes_of(self._adapter, routes)
        self._table.swap(self._routes, new)
        self._routes = new

    @property
    def label(self) -> str:
        """For people: which adapter, which routes."""
        return self._handle.label if self._handle is not None else "llm adapter"

    @property
    def active(self) -> bool:
        """False once the owner is unloaded or `dispose` was called."""
        return self._handle is not None and self._handle.active

    def dispose(self) -> bool:
        """Take the routes out now. True if this call did it."""
        return self._handle is not None and self._handle.dispose()

    async def aclose(self) -> None:
        """Take the routes out now. Streams that run keep their adapter."""
        if self._handle is not None:
            await self._handle.aclose()

    def _end(self) -> None:
        routes, self._routes = self._routes, ()
        self._table.swap(routes, ())
