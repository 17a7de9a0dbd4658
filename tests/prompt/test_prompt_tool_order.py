"""The order of tools: by name, or as configured; who is refused a place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.catalog import records
from dsh.errors import PromptError
from dsh.prompt import UNLISTED_TOOLS
from dsh.prompt.tool_order import order_tools


def schema(name: str) -> records.ToolSchema:
    return records.ToolSchema(name=name, description=name, parameters={"type": "object"})


@pytest.mark.holds("PO01", "PO02", "PO03", "D16")
@given(st.permutations(["b", "a", "C", "a2"]))
def test_without_an_order_tools_stand_by_name(names: list[str]) -> None:
    assert UNLISTED_TOOLS == "<unlisted-tools>"
    ordered = order_tools([schema(name) for name in names], None, ())
    assert [tool.name for tool in ordered] == ["C", "a", "a2", "b"]


@pytest.mark.holds("PO04", "D16")
def test_a_configured_order_places_the_listed_and_sorts_the_rest() -> None:
    tools = [schema(name) for name in "dcba"]
    order = ("c", UNLISTED_TOOLS, "a")
    ordered = order_tools(tools, order, set("abcd"))
    assert [tool.name for tool in ordered] == ["c", "b", "d", "a"]
    # A listed tool that exists and is restricted away here is no fault.
    ordered = order_tools(tools[:2], order, set("abcd"))
    assert [tool.name for tool in ordered] == ["c", "d"]


@pytest.mark.holds("PO05", "PO06", "TO04")
@pytest.mark.parametrize(
    ("registered", "hint"), [({"bash"}, "did you mean 'bash'"), (set[str](), "none")]
)
def test_a_listed_tool_that_nobody_registered_fails(registered: set[str], hint: str) -> None:
    with pytest.raises(PromptError, match=hint):
        order_tools([], ("bsh", UNLISTED_TOOLS), registered)


@pytest.mark.holds("PO07", "PI02")
def test_reserved_and_doubled_names_are_refused() -> None:
    with pytest.raises(PromptError, match="reserved"):
        order_tools([schema(UNLISTED_TOOLS)], None, ())
    with pytest.raises(PromptError, match="two tool providers offer a tool named 'a'"):
        order_tools([schema("a"), schema("a")], None, ())
