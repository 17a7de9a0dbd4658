"""Lists of tools: pages that do not end, names that do not fit, more than anybody can take."""

from __future__ import annotations

from itertools import cycle, repeat
from typing import TYPE_CHECKING, TypeAlias

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from dsh import catalog as ev
from dsh.hooks import JsonObject, JsonValue, frozen_object
from dsh.testing import ToolRoom, open_tool_room
from dsh_plugins.mcp.catalog import McpServer
from dsh_plugins.mcp.connection import Connection
from dsh_plugins.mcp.content import DataFolder
from dsh_plugins.mcp.link import Link
from dsh_plugins.mcp.naming import NAME_MAX, names_for
from dsh_plugins.mcp.peer import Peer
from dsh_plugins.mcp.toolset import Toolset

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

Page: TypeAlias = "Mapping[str, object]"


def t(*names: str) -> list[dict[str, object]]:
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


#: The pages of case 082: for each variant, what the server answers in turn.
PAGES: Mapping[str, Callable[[], Iterator[Page]]] = {
    "two_pages": lambda: iter([{"tools": t("a"), "nextCursor": "1"}, {"tools": t("b")}]),
    "empty_cursor": lambda: iter([{"tools": t("a"), "nextCursor": ""}]),
    "same_cursor": lambda: repeat({"tools": t("a"), "nextCursor": "x"}),
    "cycle": lambda: cycle(
        [{"tools": t("a"), "nextCursor": "x"}, {"tools": t("b"), "nextCursor": "y"}]
    ),
    "null_cursor": lambda: iter([{"tools": t("a"), "nextCursor": None}]),
    "numeric_cursor": lambda: iter([{"tools": t("a"), "nextCursor": 0}, {"tools": t("b")}]),
    "duplicates": lambda: iter([{"tools": t("a"), "nextCursor": "1"}, {"tools": t("a", "c")}]),
    "for_ever": lambda: (
        {"tools": t(f"t{number}"), "nextCursor": str(number)} for number in range(10**9)
    ),
    "thousands": lambda: (
        {"tools": t(*(f"t{page}_{number}" for number in range(4_000))), "nextCursor": str(page)}
        for page in range(10**9)
    ),
    "no_list": lambda: iter([{"tools": "none"}]),
    "no_names": lambda: iter([{"tools": [{"name": ""}, {"name": 5}, "x", *t("a")]}]),
}


class Paged(Link):
    """A link to a server that knows nothing but its pages."""

    def __init__(self, peer: Peer, pages: Iterator[Page]) -> None:
        self._peer = peer
        self._pages = pages

    @override
    async def run(self, body: Callable[[], Awaitable[None]]) -> None:
        await body()

    @override
    async def send(self, message: Mapping[str, object]) -> None:
        await trio.lowlevel.checkpoint()
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": next(self._pages)}
        assert self._peer.receive(frozen_object(answer))

    @override
    def post(self, message: Mapping[str, object]) -> None:
        raise AssertionError(message)

    @override
    async def ended(self) -> None:
        await trio.sleep_forever()

    @override
    def agreed(self, version: str) -> None:
        raise AssertionError(version)


@pytest.mark.holds("case-082", "MC5")
@pytest.mark.parametrize(
    ("variant", "names", "warned"),
    [
        ("two_pages", ["a", "b"], ""),
        ("empty_cursor", ["a"], ""),
        ("same_cursor", ["a"], "do not end"),
        ("cycle", ["a", "b"], "do not end"),
        ("null_cursor", ["a"], ""),
        ("numeric_cursor", ["a"], "do not end"),
        ("duplicates", ["a", "c"], "twice"),
        ("for_ever", [f"t{number}" for number in range(1_000)], "more than 1000 pages"),
        (
            "thousands",
            [f"t{n // 4_000}_{n % 4_000}" for n in range(10_000)],
            "more than 10000 tools",
        ),
        ("no_list", [], ""),
        ("no_names", ["a"], "without a name"),
    ],
)
async def test_a_list_ends_and_has_each_tool_once(
    variant: str, names: list[str], warned: str
) -> None:
    peer = Peer("s", lambda _method, _params: None)
    peer.link = Paged(peer, PAGES[variant]())
    with trio.fail_after(20):
        listed = await Connection("s", peer, 5).tools()
    assert [tool["name"] for tool in listed.tools] == names
    if warned and variant in {"same_cursor", "cycle"}:
        assert any(warned in one for one in listed.warnings)
    else:
        assert len(listed.warnings) == bool(warned)
        assert warned in "".join(listed.warnings)


class Offering:
    """A toolset in a tool room, and what it warned of."""

    def __init__(self, room: ToolRoom, toolset: Toolset) -> None:
        self.room = room
        self.toolset = toolset
        self.warnings: list[str] = []

    def publish(self, *tools: Mapping[str, object]) -> list[str]:
        frozen = [frozen_object(dict(tool)) for tool in tools]
        self.toolset.publish(frozen, self.warnings.append)
        return sorted(self.room.tools.names())


async def offering(room: ToolRoom, given: McpServer) -> Offering:
    async def called(
        tool: str, arguments: JsonObject, progress: Callable[[str], None]
    ) -> JsonObject:
        del arguments, progress
        await trio.lowlevel.checkpoint()
        text: JsonValue = {"type": "text", "text": f"{tool} was called"}
        return {"content": [text]}

    ctx = await room.plugin("mcp")
    folder = DataFolder(None)
    toolset = Toolset(ctx, "s", given, tools=room.tools, calling=called, folder=folder)
    return Offering(room, toolset)


@pytest.mark.holds("case-082", "MC5")
async def test_a_server_with_thousands_of_tools_is_limited_visibly() -> None:
    async with open_tool_room() as room:
        desk = await offering(room, McpServer(command="x"))
        names = desk.publish(*t(*(f"tool{number}" for number in range(10_000))))
    assert len(names) == 100
    (warning,) = desk.warnings
    assert "10000 tools" in warning
    assert "first 100" in warning
    assert "`maxTools`" in warning


@pytest.mark.holds("MC5")
async def test_patterns_choose_and_what_cannot_be_offered_is_left_out() -> None:
    given = McpServer(command="x", allow_tools=("read_*", "bad"), deny_tools=("*_secret",))
    async with open_tool_room() as room:
        desk = await offering(room, given)
        names = desk.publish(
            *t("read_file", "write_file", "read_secret"),
            {"name": "bad", "inputSchema": {"$ref": "http://elsewhere/"}},
            {"name": "read_it", "description": 5},
        )
        assert names == ["mcp__s__read_file", "mcp__s__read_it"]
        (warning,) = desk.warnings
        assert "'bad' is left out" in warning
        finished = await room.run("mcp__s__read_it", {})
        assert "read_it was called" in str(finished.result.content)


@pytest.mark.holds("MC5")
async def test_a_list_that_did_not_change_changes_nothing() -> None:
    changes: list[object] = []
    async with open_tool_room() as room:
        desk = await offering(room, McpServer(command="x"))
        desk.publish(*t("a", "b"))
        kept, gone = room.tools.get("mcp__s__a"), room.tools.get("mcp__s__b")
        room.kernel.root.on(ev.tools.CHANGE)(changes.append)
        desk.publish(*t("a", "b"))
        assert changes == []
        desk.publish(*t("a"), {"name": "b", "inputSchema": {"type": "object", "title": "new"}})
        assert room.tools.get("mcp__s__a") is kept
        assert room.tools.get("mcp__s__b") is not gone
        desk.toolset.withdraw()
        assert room.tools.names() == frozenset()


async def test_only_what_a_server_calls_read_only_may_overlap() -> None:
    reader = {"name": "r", "annotations": {"readOnlyHint": True}}
    writer = {"name": "w", "annotations": {"readOnlyHint": "yes"}}
    async with open_tool_room() as room:
        (await offering(room, McpServer(command="x"))).publish(reader, writer)
        assert room.tools.is_parallel("mcp__s__r", {})
        assert not room.tools.is_parallel("mcp__s__w", {})


@pytest.mark.holds("MC6")
def test_names_are_made_fit() -> None:
    long = "x" * 80
    made = names_for("s", ["plain", "get.weather", "a b", "a_b", "a/b", long, "ünï"])
    assert made["plain"] == "mcp__s__plain"
    assert made["get.weather"] == "mcp__s__get_weather"
    assert made["a_b"] == "mcp__s__a_b"
    assert made["a b"].startswith("mcp__s__a_b_")
    assert made["a/b"].startswith("mcp__s__a_b_")
    assert made["ünï"] == "mcp__s___n_"
    assert len(made[long]) == NAME_MAX


@pytest.mark.holds("MC6")
@given(
    st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=24),
    st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from("ab._ /")), max_size=12),
)
def test_names_are_lawful_unique_and_free_of_order(server: str, tools: list[str]) -> None:
    made = names_for(server, tools)
    assert dict(made) == dict(names_for(server, list(reversed(tools))))
    assert len(set(made.values())) == len(set(tools))
    for name in made.values():
        assert len(name) <= NAME_MAX
        assert name.isascii()
        assert all(letter.isalnum() or letter in "_-" for letter in name)
