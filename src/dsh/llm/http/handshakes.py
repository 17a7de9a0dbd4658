"""TLS handshakes that leave no socket behind when they are cancelled.

What comes in: connections of the HTTP library below. What goes out: the same connections. The
library closes the socket of a handshake that fails, but not of one that is cancelled; the server
would see the close only when the collector comes by. Nothing else is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, final

import httpcore
import trio
from typing_extensions import override

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from httpcore import SOCKET_OPTION

__all__ = ["ClosingBackend"]


@final
class _Plain(httpcore.AsyncNetworkStream):
    """A connection before its handshake; everything but that is passed on."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()

    @override
    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except trio.Cancelled:
            with trio.CancelScope(shield=True) as scope:
                # The socket closes at once; only the wait after it is cancelled.
                scope.cancel()
                await self._inner.aclose()
            raise

    @override
    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)


@final
class ClosingBackend(httpcore.AsyncNetworkBackend):
    """The library's own connections, with handshakes that close after themselves."""

    def __init__(self) -> None:
        # The library stands in for it where trio is not installed, so its type says little.
        self._inner = cast("httpcore.AsyncNetworkBackend", httpcore.TrioBackend())

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Plain(
            await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        )

    @override
    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)
