"""What both ways to a server have in common: messages go out, and the end is known.

What comes in: JSON-RPC messages as mappings. What goes out: bytes on a pipe or requests over HTTP;
what comes back is handed to the peer. A link knows nothing of methods or tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["Link"]


class Link(ABC):
    """One connection. `run` it once; everything else happens while it runs."""

    @abstractmethod
    async def run(self, body: Callable[[], Awaitable[None]]) -> None:
        """Open, call `body`, and close again, however `body` ends. Nothing is left alive.

        Raises McpError when it cannot be opened, and what `body` raises of that kind.
        """

    @abstractmethod
    async def send(self, message: Mapping[str, object]) -> None:
        """Send a request. Over HTTP this lasts until its answer was handed to the peer.

        Raises McpError. Cancelled: a pipe gets the whole message or nothing; HTTP stops reading.
        """

    @abstractmethod
    def post(self, message: Mapping[str, object]) -> None:
        """Send what has no answer, soon. Never waits and never fails.

        A server that does not take what was posted before gets no more.
        """

    @abstractmethod
    async def ended(self) -> None:
        """Return when the other side is gone; over HTTP never."""

    @abstractmethod
    def agreed(self, version: str) -> None:
        """The version of the protocol that both sides speak from here on."""
