"""The tools of one server, as the model has them.

What comes in: what a server lists, and how to call it. What goes out: registrations that follow the
list: what did not change stays as it is, so that a prompt does not change without need. A tool that
cannot be offered is left out, which is told once, and never keeps the others away.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from dsh.catalog.records import TextBlock
from dsh.errors import PluginError
from dsh.hooks import frozen
from dsh.tools import json_output, raw_tool
from dsh_plugins.mcp.content import DataFolder, texts_of
from dsh_plugins.mcp.failures import ToolReported
from dsh_plugins.mcp.naming import names_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.hooks import EffectHandle, JsonObject, JsonValue
    from dsh.hooks.live import ToolRun
    from dsh.kernel import Context
    from dsh.tools import Tool, ToolRuntime
    from dsh_plugins.mcp.catalog import McpServer

__all__ = ["Calling", "Toolset"]

#: Characters of a name, and of a reason, that the server made up.
SHOWN: Final = 100
REASON: Final = 500


class Calling(Protocol):
    """How a tool of the server is called: its own name, arguments, and where progress goes."""

    async def __call__(
        self, tool: str, arguments: JsonObject, progress: Callable[[str], None], /
    ) -> JsonObject:
        """The result. Raises McpError."""
        ...


@frozen(slots=True)
class _Offer:
    """What of a definition counts: all else in it may be anything."""

    own: str
    description: str
    schema: JsonValue
    read_only: bool


@final
class Toolset:
    """What is registered for one server now."""

    def __init__(
        self,
        ctx: Context,
        server: str,
        given: McpServer,
        *,
        tools: ToolRuntime,
        calling: Calling,
        folder: DataFolder,
    ) -> None:
        self._ctx: Final = ctx
        self._tools: Final = tools
        self._server: Final = server
        self._given: Final = given
        self._calling: Final = calling
        self._folder: Final = folder
        self._registered: Final[dict[str, tuple[_Offer, EffectHandle]]] = {}

    def publish(self, listed: Sequence[JsonObject], warn: Callable[[str], None]) -> int:
        """Offer these tools and no others; how many are offered."""
        wanted = self._chosen(listed, warn)
        names = names_for(self._server, (str(one["name"]) for one in wanted))
        offers = {names[str(one["name"])]: _offer_of(one) for one in wanted}
        for name, (offer, handle) in list(self._registered.items()):
            if offers.get(name) != offer:
                del self._registered[name]
                handle.dispose()
        for name, offer in offers.items():
            if name in self._registered:
                continue
            try:
                handle = self._tools.register(self._ctx, self._tool(name, offer))
            except PluginError as error:
                warn(f"its tool {offer.own[:SHOWN]!r} is left out: {error.message[:REASON]}")
            else:
                self._registered[name] = (offer, handle)
        return len(self._registered)

    def withdraw(self) -> None:
        """Offer nothing any more."""
        for _, handle in self._registered.values():
            handle.dispose()
        self._registered.clear()

    def _chosen(
        self, listed: Sequence[JsonObject], warn: Callable[[str], None]
    ) -> Sequence[JsonObject]:
        allow, deny = self._given.allow_tools, self._given.deny_tools
        chosen = [
            one
            for one in listed
            if (allow is None or _matches(one, allow)) and not _matches(one, deny)
        ]
        most = self._given.max_tools
        if len(chosen) > most:
            warn(
                f"it has {len(chosen)} tools, of which the first {most} are offered; choose with "
                f"`allowTools` and `denyTools`, or raise `maxTools` (at mcp.servers.{self._server})"
            )
        return chosen[:most]

    def _tool(self, name: str, offer: _Offer) -> Tool:
        return raw_tool(
            name=name,
            description=offer.description,
            parameters=cast("dict[str, object]", offer.schema),
            output=json_output(render=_rendered),
            execute=partial(self._executed, offer.own),
            # A hint of the server, so it decides about nothing but what may overlap.
            execution_mode="parallel" if offer.read_only else "exclusive",
        )

    async def _executed(self, own: str, arguments: JsonObject, run: ToolRun) -> JsonValue:
        result = await self._calling(own, arguments, run.progress)
        texts = await texts_of(result, self._folder, self._given.max_result_bytes)
        if result.get("isError") is True:
            said = "\n".join(texts).strip()
            raise ToolReported(said or f"{own} failed, and its server gives no reason")
        return {"content": texts}


def _matches(tool: JsonObject, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(str(tool["name"]), pattern) for pattern in patterns)


def _offer_of(definition: JsonObject) -> _Offer:
    description, schema = definition.get("description"), definition.get("inputSchema")
    hints = definition.get("annotations")
    return _Offer(
        own=str(definition["name"]),
        description=description if isinstance(description, str) else "",
        schema={"type": "object"} if schema is None else schema,
        read_only=isinstance(hints, dict) and hints.get("readOnlyHint") is True,
    )


def _rendered(_arguments: JsonObject, value: JsonValue) -> list[TextBlock]:
    texts = value.get("content") if isinstance(value, dict) else None
    return [TextBlock(text=str(text)) for text in texts] if isinstance(texts, list | tuple) else []
