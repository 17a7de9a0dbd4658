"""What a project file that was found by itself may say: only what makes a run stricter.

What comes in: the layer of such a file and the rows below it. What goes out: an issue for every
part that is not a rule that asks or denies, a disabled row, a limit or prompt text. A file that is
named with `--config` is never judged here: the person took it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from dsh.boot.nodes import Issue, Node, Place

if TYPE_CHECKING:
    from dsh.boot.rows import Layer, LayerRow

__all__ = ["loosened"]

#: Rows whose absence would loosen a run.
GUARDS: Final = frozenset({"approval", "checkpoint", "invariants", "permissions", "shell-guard"})

#: Plugins that can only refuse: a project file may add them.
REFUSERS: Final = frozenset({"invariants", "shell-guard", "token-budget"})

#: Rows whose configuration is prompt text.
PROMPT: Final = frozenset({"system-prompt"})

#: Configuration that says where requests and keys go, down to its last number.
CLOSED: Final = frozenset(
    {("openai-chat", "providers"), ("anthropic-messages", "providers"), ("mcp", "servers")}
)


def loosened(layer: Layer, below: Mapping[str, LayerRow]) -> Iterator[Issue]:
    """Every part of an untrusted layer that does more than tighten the rows `below` (by id)."""
    for row in layer.rows:
        lower = below.get(row.id)
        name = row.name if row.name is not None else (lower.name if lower is not None else None)
        if name is None:
            continue  # a row without a plugin is an issue already
        if lower is None and name not in REFUSERS:
            yield _refused(row.place, f"add the plugin {name!r}", layer)
            continue
        if lower is not None and lower.name != name:
            yield _refused(row.place, f"replace the plugin of the row {row.id!r}", layer)
        if row.disabled is True and name in GUARDS:
            yield _refused(row.place, f"disable {row.id!r}", layer)
        if row.disabled is False and lower is not None and lower.disabled:
            yield _refused(row.place, f"enable {row.id!r}", layer)
        if row.optional:
            yield _refused(row.place, f"make {row.id!r} optional", layer)
        if row.config is not None and name not in PROMPT:
            for place, path in _loose(name, row.config, ()):
                yield _refused(place, f"set {row.id}.{'.'.join(path)}", layer)


def _refused(place: Place, what: str, layer: Layer) -> Issue:
    return Issue(
        place,
        f"{layer.source} was found by itself, so it may only tighten (rules that ask or deny, "
        f"disabled rows, limits, prompt text) and may not {what}; "
        f"to accept the file as it is, run with --config {layer.source}",
    )


def _loose(
    plugin: str, node: Node, path: tuple[str, ...]
) -> Iterator[tuple[Place, tuple[str, ...]]]:
    """The places of a row's config that are no limit, and no rule that asks or denies."""
    if path and (plugin, path[0]) in CLOSED:
        yield node.key or node.place, path
        return
    if isinstance(node.value, Mapping):
        for key, item in node.value.items():
            yield from _loose(plugin, item, (*path, key))
        return
    if isinstance(node.value, tuple):
        if plugin == "permissions":
            for item in node.value:
                yield from _loose(plugin, item, path)
            return
        yield node.place, path
        return
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        if plugin == "permissions" and _strict(node.value, path):
            return
        yield node.place, path


def _strict(value: object, path: tuple[str, ...]) -> bool:
    """Whether this text of the permissions row asks, denies, or says to what that applies."""
    if path == ("ask",):
        return value == "deny"
    return isinstance(value, str) and value != "allow"
