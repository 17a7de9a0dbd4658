"""The connections of one adapter: made on first use, counted, closed in the end.

What comes in: attempts as URL, headers and body. What goes out: chunk streams over one client.
Unloading an adapter lets running replies end for a while; nothing is sent after that.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, final

import httpx
import trio

from dsh.errors import LlmError
from dsh.llm.http.network import Pools
from dsh.llm.http.stream import Attempt, ReplyStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.hooks.live import ChunkStream
    from dsh.kernel import Clock
    from dsh.llm.http.stream import MakeDecoder
    from dsh.seams.environ import Environ, Secret

__all__ = ["Connections", "address", "shown"]

#: How long running replies may go on after the adapter was unloaded, in seconds.
GRACE_SECONDS: Final = 5.0
OURS: Final = {
    "Accept": "text/event-stream",
    # A compressed stream would be held back by proxies; it is decoded if it comes.
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}


@final
class Connections:
    """One pool for all routes of an adapter. Whoever makes it awaits `aclose()`."""

    def __init__(self, environ: Environ, clock: Clock) -> None:
        self._environ: Final = environ
        self._clock: Final = clock
        self._pools: Pools | None = None
        self._given: tuple[httpx.URL, Mapping[str, str]] | None = None
        self._headers: Final = httpx.Headers({**OURS, "User-Agent": _user_agent()})
        self._merged: httpx.Headers = self._headers
        self._running = 0
        self._idle: trio.Event | None = None
        self._closed = False

    def check_open(self, provider: str) -> None:
        """Raise LlmError NO_ADAPTER when the adapter was unloaded."""
        if self._closed:
            raise LlmError(
                f"the adapter of provider {provider!r} was unloaded before the request "
                "was sent; try again",
                code="NO_ADAPTER",
            )

    def stream(
        self,
        url: httpx.URL,
        body: bytes,
        *,
        headers: Mapping[str, str],
        secret: Secret | None,
        connect_timeout_ms: float,
        idle_timeout_ms: float,
        decoder: MakeDecoder,
    ) -> ChunkStream:
        """One attempt; nothing is sent before the stream is entered.

        `secret` is taken out of every text that comes back. The reply may be silent for
        `idle_timeout_ms`, before and within it.
        """
        pools = self._pools
        if pools is None:
            pools = self._pools = Pools(self._environ)
        attempt = Attempt(
            pools=pools,
            url=url,
            where=shown(url),
            body=body,
            headers=self._headers_for(url, headers),
            secret=secret,
            connect_timeout=connect_timeout_ms / 1000,
            idle_timeout=idle_timeout_ms / 1000,
            decoder=decoder,
            now_ms=self._clock.now_ms,
        )
        return ReplyStream(attempt, self._count)

    async def aclose(self) -> None:
        """Take no more requests, let running replies end for a while, then close connections.

        A reply that is cut off by this ends as TRANSPORT, like any other lost connection.
        """
        self._closed = True
        if self._running:
            self._idle = trio.Event()
            with trio.move_on_after(GRACE_SECONDS):
                await self._idle.wait()
        pools, self._pools = self._pools, None
        if pools is not None:
            await pools.aclose()

    def _headers_for(self, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Headers:
        """These headers over ours. Merging is dear, and they seldom change: the last is kept."""
        given = self._given
        # Addresses are kept, so that the same one is the same object; comparing them would parse.
        if given is None or given[0] is not url or given[1] != headers:
            merged = httpx.Headers([(b"Host", url.netloc), *self._headers.raw])
            merged.update(dict(headers))
            self._given, self._merged = (url, dict(headers)), merged
        return self._merged

    def _count(self, change: int) -> None:
        self._running += change
        if not self._running and self._idle is not None:
            self._idle.set()


def address(provider: str, text: str, source: str, suffix: str, example: str) -> httpx.URL:
    """The URL of a server's endpoint: `text` with `suffix` at the end of its path.

    `source` is where `text` came from, for the message. Raises LlmError INVALID_REQUEST with what
    to set; a password in the address is refused, and not shown.
    """
    text = text.strip()
    url = _endpoint(text, suffix)
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
        problem = (
            "holds a user name or password, which would show up in errors"
            if url.userinfo
            else "is no http:// or https:// address"
            if text
            else "is missing"
        )
        raise LlmError(
            f"the address of provider {provider!r} ({source}) {problem}; write it as "
            f"in {example}, and name the key's variable in `apiKeyEnv`",
            code="INVALID_REQUEST",
        )
    return url


@lru_cache(maxsize=64)
def _endpoint(text: str, suffix: str) -> httpx.URL:
    """The address with the endpoint's path; one that is no address comes back without a host."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return httpx.URL("")
    path = url.path.rstrip("/")
    if not path.endswith(suffix):
        path += suffix
    # A path without a slash before it fits no URL that has a host; such a one is refused anyway.
    return url.copy_with(path=path) if url.host else url


def shown(url: httpx.URL) -> str:
    """The server as errors name it: without path and query, which may hold a token."""
    return f"{url.scheme}://{url.netloc.decode()}"


@cache
def _user_agent() -> str:
    try:
        return f"dsh-trio/{version('dsh-trio')}"
    except PackageNotFoundError:
        return "dsh-trio"
