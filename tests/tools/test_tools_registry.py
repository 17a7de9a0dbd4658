"""Layers, restrictions and views: one resolver for what is shown, found and run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from dsh import catalog as ev
from dsh.errors import PluginError
from dsh.hooks import Scope
from dsh.kernel import core_of
from dsh.testing import Committed
from dsh.tools import define_tool

if TYPE_CHECKING:
    from dsh.hooks.live import ToolRun
    from dsh.testing import ToolRoom
    from dsh.tools import Tool


@attrs.frozen
class NoArgs:
    """Nothing."""


def tool(name: str, says: str = "") -> Tool:
    async def body(_args: NoArgs, _run: ToolRun) -> str:
        return says or name

    return define_tool(
        name=name, description=f"{name} {says}", args=NoArgs, output=str, execute=body, timeout=3
    )


def names(room: ToolRoom, scope: Scope | None) -> list[str]:
    shown = [schema.name for schema in room.tools.schemas(scope)]
    found = [name for name in shown if room.tools.get(name, scope) is not None]
    assert shown == found  # presentation and lookup agree
    return shown


@pytest.mark.holds("XT01", "XT02", "XT03", "XT78", "XM09")
async def test_schemas_are_in_code_point_order_and_show_three_fields(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    for name in ("b", "a-z", "a", "B", "a_z"):
        room.tools.register(ctx, tool(name))
    assert names(room, None) == ["B", "a", "a-z", "a_z", "b"]
    schema = room.tools.schemas()[1]
    assert attrs.asdict(schema, recurse=False) == {
        "name": "a",
        "description": "a ",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    }
    assert room.tools.schemas() is room.tools.schemas(room.scope)  # nothing is rebuilt


@pytest.mark.holds("XT82", "XS04")
async def test_a_second_owner_of_a_name_is_refused_naming_the_first(room: ToolRoom) -> None:
    first, second = await room.plugin("first"), await room.plugin("second")
    room.tools.register(first, tool("a"))
    with pytest.raises(PluginError, match=r"'second'.*'a' is already registered.*'first'"):
        room.tools.register(second, tool("a"))
    assert room.tools.get("a") is not None


@pytest.mark.holds("XT82", "XT83", "XT86", "XT87")
async def test_a_registration_goes_with_its_handle_or_its_plugin(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    held = room.tools.register(ctx, tool("a"))
    room.tools.register(ctx, tool("b"))
    held.dispose()
    assert names(room, None) == ["b"]
    await ctx.fiber.dispose()
    assert names(room, None) == []
    assert room.tools.get("b") is None


@pytest.mark.holds("XS02", "XS03", "XS05")
@pytest.mark.parametrize("scoped_first", [False, True])
async def test_a_scoped_tool_shadows_and_leaves_no_residue(
    room: ToolRoom,
    scoped_first: bool,  # noqa: FBT001
) -> None:
    ctx = await room.plugin("p")
    mine = ctx.scoped(room.scope)
    if scoped_first:
        held = room.tools.register(mine, tool("a", "mine"))
        room.tools.register(ctx, tool("a", "all"))
    else:
        room.tools.register(ctx, tool("a", "all"))
        held = room.tools.register(mine, tool("a", "mine"))
    room.tools.register(mine, tool("only"))
    assert names(room, room.scope) == ["a", "only"]
    assert names(room, None) == ["a"]
    assert names(room, Scope("other")) == ["a"]
    finished = await room.run("a")
    assert Committed("", 0, finished.result, None).text == "mine"
    held.dispose()
    finished = await room.run("a")
    assert Committed("", 0, finished.result, None).text == "all"
    await core_of(room.agent_ctx).close()
    assert names(room, room.scope) == ["a"]


@pytest.mark.holds("XS06", "XS07", "XS08", "XS12")
async def test_restrictions_filter_what_is_inherited_live_and_intersect(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    mine = ctx.scoped(room.scope)
    for name in ("a", "b", "c"):
        room.tools.register(ctx, tool(name))
    room.tools.register(mine, tool("own"))
    allow = room.tools.restrict(mine, allow=["a", "b"])
    assert names(room, room.scope) == ["a", "b", "own"]
    deny = room.tools.restrict(mine, deny=["a"])
    assert names(room, room.scope) == ["b", "own"]
    assert names(room, None) == ["a", "b", "c"]
    room.tools.register(ctx, tool("later"))
    assert names(room, room.scope) == ["b", "own"]
    allow.dispose()
    assert names(room, room.scope) == ["b", "c", "later", "own"]
    finished = await room.run("a")
    assert "no tool named 'a' in this scope" in Committed("", 0, finished.result, None).text
    deny.dispose()
    assert names(room, room.scope) == ["a", "b", "c", "later", "own"]


@pytest.mark.holds("XS13")
async def test_an_ancestors_restriction_reaches_nested_scopes(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    inner = Scope("inner", room.scope)
    child = await core_of(room.agent_ctx).child("inner", scope=inner)
    for name in ("a", "b"):
        room.tools.register(ctx, tool(name))
    room.tools.restrict(ctx.scoped(room.scope), deny=["a"])
    room.tools.register(child, tool("nested"))
    assert names(room, inner) == ["b", "nested"]


@pytest.mark.holds("XS09", "XS10")
@pytest.mark.parametrize(
    ("scoped", "allow", "deny", "words"),
    [
        (False, ["a"], None, "without a scope"),
        (True, None, None, "names none"),
        (True, [], None, "names none"),
        (True, ["aa"], None, "did you mean 'a'"),
        (True, None, ["own"], "its own scope registered|this scope registered itself"),
    ],
)
async def test_a_restriction_that_says_nothing_is_refused(
    room: ToolRoom,
    scoped: bool,  # noqa: FBT001
    allow: list[str] | None,
    deny: list[str] | None,
    words: str,
) -> None:
    ctx = await room.plugin("p")
    room.tools.register(ctx, tool("a"))
    room.tools.register(ctx.scoped(room.scope), tool("own"))
    with pytest.raises(PluginError, match=words):
        room.tools.restrict(ctx.scoped(room.scope) if scoped else ctx, allow=allow, deny=deny)


async def test_every_change_is_told(room: ToolRoom) -> None:
    ctx = await room.plugin("p")
    heard: list[int] = []
    ctx.on(ev.tools.CHANGE)(lambda _notice: heard.append(1))
    held = room.tools.register(ctx, tool("a"))
    restriction = room.tools.restrict(ctx.scoped(room.scope), deny=["a"])
    restriction.dispose()
    held.dispose()
    assert len(heard) == 4
