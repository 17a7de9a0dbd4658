"""The canonical order of tool schemas, so that equal tool sets give equal requests.

What comes in: schemas in whatever order they were registered, and the configured order. What goes
out: the same schemas sorted by name, or as the list says. It never adds or hides a tool.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from dsh.errors import ConfigError, PromptError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dsh.catalog import records

__all__ = ["UNLISTED_TOOLS", "check_order", "order_tools"]

#: Stands in `toolOrder` for every tool that the list does not name.
UNLISTED_TOOLS: Final = "<unlisted-tools>"


def check_order(order: Sequence[str] | None) -> tuple[str, ...] | None:
    """`order` as given, or ConfigError: it needs the rest marker exactly once, no name twice."""
    if order is None:
        return None
    repeated = sorted({name for name in order if order.count(name) > 1 and name != UNLISTED_TOOLS})
    if repeated:
        raise ConfigError(
            f"system-prompt.toolOrder names {', '.join(repeated)} more than once; name each once"
        )
    if order.count(UNLISTED_TOOLS) != 1:
        raise ConfigError(
            f"system-prompt.toolOrder has {UNLISTED_TOOLS!r} {order.count(UNLISTED_TOOLS)} times; "
            "it needs it exactly once, where the tools belong that the list does not name"
        )
    return tuple(order)


def order_tools(
    schemas: Sequence[records.ToolSchema],
    order: Sequence[str] | None,
    registered: Collection[str],
) -> tuple[records.ToolSchema, ...]:
    """The schemas in canonical order: by code points of the name, or as `order` lists them.

    `registered` are all tool names of the house; a listed name that is among them may be missing
    from `schemas` (it is restricted away here), one that is not raises PromptError.
    """
    by_name: dict[str, records.ToolSchema] = {}
    for schema in schemas:
        if schema.name == UNLISTED_TOOLS or schema.name in by_name:
            raise PromptError(
                f"the tool name {schema.name!r} is reserved"
                if schema.name == UNLISTED_TOOLS
                else f"two tool providers offer a tool named {schema.name!r}; rename one"
            )
        by_name[schema.name] = schema
    rest = sorted(by_name)
    if order is None:
        return tuple(by_name[name] for name in rest)
    for name in order:
        if name not in by_name and name not in registered and name != UNLISTED_TOOLS:
            raise PromptError(_unknown(name, registered))
    names: list[str] = []
    for name in order:
        if name == UNLISTED_TOOLS:
            names += [other for other in rest if other not in order]
        elif name in by_name:
            names.append(name)
    return tuple(by_name[name] for name in names)


def _unknown(name: str, registered: Collection[str]) -> str:
    near = get_close_matches(name, registered, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    known = ", ".join(sorted(registered)) or "none"
    return (
        f"system-prompt.toolOrder lists {name!r}, but no such tool is registered{hint} "
        f"Registered: {known}"
    )
