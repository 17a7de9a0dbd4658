"""The life of one server: started, its tools offered, started again when it ends, given up.

What comes in: its settings, and calls of its tools. What goes out: tools in the registry, results,
and warnings: for a start that failed, an end nobody asked for, and giving up. Its failures stay
its own. While it is being started again its tools stay; a call waits for it then. A call that was
running when it ended fails and is never made a second time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from dsh_plugins.mcp.connection import Connection
from dsh_plugins.mcp.failures import McpError, NotRunning, ServerGone, TookTooLong
from dsh_plugins.mcp.peer import Peer
from dsh_plugins.mcp.settings import Program
from dsh_plugins.mcp.stdio import StdioLink
from dsh_plugins.mcp.streamable import HttpLink
from dsh_plugins.mcp.toolset import Toolset

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import JsonObject
    from dsh.kernel import Context
    from dsh.seams.environ import Environ
    from dsh.seams.processes import Reaper
    from dsh.tools import ToolRuntime
    from dsh_plugins.mcp.catalog import McpServer
    from dsh_plugins.mcp.content import DataFolder
    from dsh_plugins.mcp.link import Link
    from dsh_plugins.mcp.settings import Target

__all__ = ["Server"]

#: Seconds before it is started again: this long first, then twice as long each time.
DELAY: Final = 0.5
DELAY_MAX: Final = 30.0
#: A start that held so long begins a new row of starts, in seconds.
HELD: Final = 60.0
#: What is told within this time is one change; a server may tell one for each reading of the list.
RELIST: Final = 0.1
#: How many different things are said of one server, beside its starts and ends.
REMARKS_MAX: Final = 50
LIST_CHANGED: Final = "notifications/tools/list_changed"


@final
class Server:
    """One configured server. `run` it in a task of its own.

    `settled` is set when it is known whether its first start succeeded.
    """

    def __init__(
        self,
        ctx: Context,
        name: str,
        given: McpServer,
        target: Target,
        *,
        tools: ToolRuntime,
        environ: Environ,
        folder: DataFolder,
        reaper: Reaper,
    ) -> None:
        self.name: Final = name
        self.settled: Final = trio.Event()
        self._ctx: Final = ctx
        self._given: Final = given
        self._target: Final = target
        self._environ: Final = environ
        self._reaper: Final = reaper
        self._tools: Final = Toolset(
            ctx, name, given, tools=tools, calling=self.call, folder=folder
        )
        self._remarked: Final[set[str]] = set()
        self._connection: Connection | None = None
        self._given_up: str | None = None
        self._news = trio.Event()
        self._listed = trio.Event()

    async def run(self) -> None:
        """Start it, and again within its limits; return when it is given up."""
        failed = 0
        while True:
            began = self._ctx.clock.monotonic()
            try:
                await self._lived()
                problem = f"MCP server {self.name!r} has ended"
            except McpError as error:
                problem = error.message
            finally:
                self._told(connection=None)
            if self._ctx.clock.monotonic() - began > HELD:
                failed = 0
            failed += 1
            if failed > self._given.restarts:
                break
            delay = min(DELAY * 2 ** (failed - 1), DELAY_MAX)
            self._warn(f"{problem}\nit is started again in {delay:g} s")
            self.settled.set()
            await trio.sleep(delay)
        self._tools.withdraw()
        self._given_up = problem
        self._told(connection=None)
        self._warn(f"{problem}\nit is given up; reload the plugin to try again")
        self.settled.set()

    async def call(
        self, tool: str, arguments: JsonObject, progress: Callable[[str], None]
    ) -> JsonObject:
        """One call, made once it is running. Raises McpError."""
        seconds = self._given.call_timeout_ms / 1000
        connection = None
        with trio.move_on_after(seconds):
            connection = await self._running()
        if connection is None:
            raise NotRunning(
                f"MCP server {self.name!r} did not come back within {seconds:g} s; nothing was sent"
            )
        return await connection.call(tool, arguments, seconds, progress)

    async def _running(self) -> Connection:
        while (connection := self._connection) is None or not connection.alive:
            if self._given_up is not None:
                raise NotRunning(f"not running: {self._given_up}")
            await self._news.wait()
        return connection

    async def _lived(self) -> None:
        """One connection, from its start to its end."""
        peer = Peer(self.name, self._noticed)
        link = self._link(peer)
        peer.link = link
        await link.run(partial(self._served, link, peer))

    def _link(self, peer: Peer) -> Link:
        if isinstance(self._target, Program):
            return StdioLink(self.name, self._target, peer, self._foreign, reaper=self._reaper)
        return HttpLink(self.name, self._target, self._environ, peer)

    async def _served(self, link: Link, peer: Peer) -> None:
        seconds = self._given.start_timeout_ms / 1000
        connection = Connection(self.name, peer, seconds)
        self._listed = trio.Event()
        with trio.move_on_after(seconds) as start:
            try:
                await connection.open()
                await self._relisted(connection)
            except ServerGone:
                raise self._end_of(link) from None
        if start.cancelled_caught:
            words = link.last_words() if isinstance(link, StdioLink) else ""
            raise TookTooLong(f"MCP server {self.name!r} did not start within {seconds:g} s{words}")
        self._told(connection)
        self.settled.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, connection)
            await link.ended()
            nursery.cancel_scope.cancel()
        raise self._end_of(link)

    def _end_of(self, link: Link) -> NotRunning:
        how = f"{link.how}{link.last_words()}" if isinstance(link, StdioLink) else "has gone"
        return NotRunning(f"MCP server {self.name!r} {how}")

    async def _follow(self, connection: Connection) -> None:
        """Read the list again whenever the server says that it changed."""
        while True:
            await self._listed.wait()
            await trio.sleep(RELIST)
            self._listed = trio.Event()
            try:
                await self._relisted(connection)
            except McpError as error:
                self._remark(f"its changed list of tools could not be read: {error.message}")

    async def _relisted(self, connection: Connection) -> None:
        listed = await connection.tools()
        for warning in listed.warnings:
            self._remark(warning)
        self._tools.publish(listed.tools, self._remark)

    def _noticed(self, method: str, _params: JsonObject) -> None:
        if method == LIST_CHANGED:
            self._listed.set()

    def _foreign(self, line: str) -> None:
        self._remark(
            f"it writes to its output what is no message of the protocol, such as {line!r}; "
            "such lines are skipped"
        )

    def _told(self, connection: Connection | None) -> None:
        """Tell whoever waits for it."""
        self._connection = connection
        self._news.set()
        self._news = trio.Event()

    def _remark(self, text: str) -> None:
        """Say it once. A server that gives ever new reasons for remarks is not heard for ever."""
        if text in self._remarked or len(self._remarked) > REMARKS_MAX:
            return
        self._remarked.add(text)
        if len(self._remarked) > REMARKS_MAX:
            text = "there would be more to say of it, which is left out"
        self._warn(f"MCP server {self.name!r}: {text}")

    def _warn(self, text: str) -> None:
        """Say it. `text` names the server."""
        self._ctx.log.warning("%s", text)
