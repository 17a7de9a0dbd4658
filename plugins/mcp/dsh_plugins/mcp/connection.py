"""One connection in terms of the protocol: greeting, the list of tools, calls.

What comes in: a peer whose link runs. What goes out: the server's tools, each once, and the results
of calls. A list that does not end is ended; a call is never made twice, except after a server has
said that it knows nothing of the session it was made in.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, final

import trio

from dsh.hooks import frozen
from dsh_plugins.mcp.failures import Expired, ProtocolBroken

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import JsonObject, JsonValue
    from dsh_plugins.mcp.peer import Peer

__all__ = ["VERSIONS", "Connection", "Listed"]

#: The versions that begin with `initialize`, the newest first.
VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PAGES_MAX: Final = 1_000
#: Of all pages; no configuration can ask for more.
TOOLS_MAX: Final = 10_000


@frozen(slots=True)
class Listed:
    """A server's tools in its order, each name once; `warnings` tell what was wrong."""

    tools: tuple[JsonObject, ...]
    warnings: tuple[str, ...]


@final
class Connection:
    """The protocol over one link. `seconds` bounds each request but calls."""

    def __init__(self, server: str, peer: Peer, seconds: float) -> None:
        self._server: Final = server
        self._peer: Final = peer
        self._seconds: Final = seconds
        self._opening: Final = trio.Lock()
        self._opened = 0

    @property
    def alive(self) -> bool:
        """Whether answers can still come."""
        return self._peer.alive

    async def open(self) -> None:
        """Greet the server and agree on a version. Raises McpError."""
        self._opened += 1
        params = {
            "protocolVersion": VERSIONS[0],
            "capabilities": {},
            "clientInfo": {"name": "dsh", "version": _own_version()},
        }
        answer = await self._peer.request("initialize", params, self._seconds)
        spoken = answer.get("protocolVersion")
        if not isinstance(spoken, str) or spoken not in VERSIONS:
            raise ProtocolBroken(
                f"MCP server {self._server!r} speaks version {spoken!r:.60} of the protocol; "
                f"known are {', '.join(VERSIONS)}"
            )
        if self._peer.link is not None:
            self._peer.link.agreed(spoken)
        self._peer.notify("notifications/initialized")

    async def tools(self) -> Listed:
        """All pages of the list. Ends for every server. Raises McpError."""
        found: dict[str, JsonObject] = {}
        warnings: dict[str, None] = {}
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self._asked("tools/list", {} if cursor is None else {"cursor": cursor})
            for tool in _tools_of(page):
                name = tool.get("name")
                if not isinstance(name, str) or not name:
                    warnings["it lists a tool without a name, which is left out"] = None
                elif name in found:
                    warnings["it lists a tool twice; the first one counts"] = None
                else:
                    found[name] = tool
            if len(found) > TOOLS_MAX:
                warnings[f"it lists more than {TOOLS_MAX} tools; the rest is left out"] = None
                break
            following = page.get("nextCursor")
            if following is None or following == "":
                break
            if not isinstance(following, str) or following in seen:
                warnings["its list of tools has pages that do not end; the rest is left out"] = None
                break
            seen.add(following)
            cursor = following
        else:
            warnings[f"its list of tools has more than {PAGES_MAX} pages"] = None
        return Listed(tuple(found.values())[:TOOLS_MAX], tuple(warnings))

    async def call(
        self,
        tool: str,
        arguments: JsonObject,
        seconds: float,
        progress: Callable[[str], None] | None,
    ) -> JsonObject:
        """One call of a tool. Raises McpError."""
        params = {"name": tool, "arguments": arguments}
        opened = self._opened
        try:
            return await self._peer.request("tools/call", params, seconds, progress=progress)
        except Expired:
            await self._reopen(opened)
        return await self._peer.request("tools/call", params, seconds, progress=progress)

    async def _asked(self, method: str, params: dict[str, object]) -> JsonObject:
        opened = self._opened
        try:
            return await self._peer.request(method, params, self._seconds)
        except Expired:
            await self._reopen(opened)
        return await self._peer.request(method, params, self._seconds)

    async def _reopen(self, opened: int) -> None:
        """A new session, once for all who met the end of the old one."""
        async with self._opening:
            if self._opened == opened:
                await self.open()


def _tools_of(page: JsonObject) -> tuple[JsonObject, ...]:
    listed: JsonValue = page.get("tools")
    if not isinstance(listed, list | tuple):
        return ()
    return tuple(one for one in listed if isinstance(one, dict))


def _own_version() -> str:
    try:
        return version("dsh-trio")
    except PackageNotFoundError:
        return "0"
