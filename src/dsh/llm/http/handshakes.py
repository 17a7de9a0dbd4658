"""TLS handshakes that leave no socket behind when they are cancelled.

What comes in: what the HTTP library tells of one request, through its `trace` extension. What goes
out: nothing; a connection whose handshake was cancelled is closed. The library closes the socket of
a handshake that fails, but not of one that is cancelled; the server would see the close only when
the collector comes by. Nothing else is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import httpcore
import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HandshakeWatch"]


@final
class HandshakeWatch:
    """The `trace` extension of one request: remembers the connection it makes, if it makes one."""

    __slots__ = ("_connection",)

    def __init__(self) -> None:
        self._connection: httpcore.AsyncNetworkStream | None = None

    async def __call__(self, event: str, info: Mapping[str, object]) -> None:
        """Take one event of the library, as `connection.connect_tcp.complete`, and what it says."""
        if event.endswith(".connect_tcp.complete"):
            made = info["return_value"]
            self._connection = made if isinstance(made, httpcore.AsyncNetworkStream) else None
        elif event.endswith(".start_tls.failed") and isinstance(info["exception"], trio.Cancelled):
            connection, self._connection = self._connection, None
            if connection is not None:
                with trio.CancelScope(shield=True) as scope:
                    # The socket closes at once; only the wait after it is cancelled.
                    scope.cancel()
                    await connection.aclose()
