"""What a project file that was found by itself may say: only what makes a run stricter.

What comes in: the layer of such a file, the layers around it, and the configuration classes, which
say what is a limit. What goes out: an issue for every part that is not a rule that asks or denies,
a disabled row, a lower limit or prompt text. A file that is named with `--config` is never judged
here: the person took it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from dsh.boot.declared import wire_fields
from dsh.boot.nodes import Issue, Node, Place
from dsh.hooks import frozen

if TYPE_CHECKING:
    from dsh.boot.rows import Layer, LayerRow

__all__ = ["loosened"]

#: Plugins that can only refuse: a project file may add them.
REFUSERS: Final = frozenset({"budget", "invariants", "shell-guard", "token-budget"})

#: Rows whose absence would loosen a run; also one that a layer above may have.
GUARDS: Final = REFUSERS | {"approval", "checkpoint", "permissions", "tool-timeout"}

#: Rows whose configuration is prompt text.
PROMPT: Final = frozenset({"system-prompt"})

#: Configuration that says where requests and keys go, down to its last number.
CLOSED: Final = frozenset(
    {("openai-chat", "providers"), ("anthropic-messages", "providers"), ("mcp", "servers")}
)


@frozen(kw_only=True, slots=True, eq=False)
class Around:
    """What a run has beside the file that is judged: rows by id, and configuration classes.

    `below` and `above` are the rows of lower and upper layers. `configs` has the class for every
    row whose plugin will be mounted; None stands for a plugin without configuration.
    """

    below: Mapping[str, LayerRow]
    above: Mapping[str, LayerRow]
    configs: Mapping[str, type | None]


def loosened(layer: Layer, around: Around) -> Iterator[Issue]:
    """Every part of an untrusted layer that does more than tighten what is around it."""
    for row in layer.rows:
        lower = around.below.get(row.id)
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
        if name not in PROMPT:
            for place, what in _beyond(name, row, around):
                yield _refused(place, what, layer)


def _refused(place: Place, what: str, layer: Layer) -> Issue:
    return Issue(
        place,
        f"{layer.source} was found by itself, so it may only tighten (rules that ask or deny, "
        f"disabled rows, lower limits, prompt text) and may not {what}; "
        f"to accept the file as it is, run with --config {layer.source}",
    )


def _beyond(plugin: str, row: LayerRow, around: Around) -> Iterator[tuple[Place, str]]:
    """What a row's config does beyond tightening, each with its place."""
    for path, node in _parts(plugin, row.config, ()):
        plain = f"set {row.id}.{'.'.join(path)}"
        if (plugin, path[0]) in CLOSED:
            yield node.key or node.place, plain
        elif isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            what = _raised(row.id, path, node.value, around)
            if what is not None:
                yield node.place, what
        elif not (plugin == "permissions" and _strict(node.value, path)):
            yield node.place, plain


def _parts(
    plugin: str, node: Node | None, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Node]]:
    """The parts of a row's config that are judged as one: scalars, lists, what is closed."""
    if node is None:
        return
    if isinstance(node.value, Mapping) and (plugin, *path[:1]) not in CLOSED:
        for key, item in node.value.items():
            yield from _parts(plugin, item, (*path, key))
    elif isinstance(node.value, tuple) and plugin == "permissions":
        for item in node.value:
            yield from _parts(plugin, item, path)
    else:
        yield path, node


def _raised(row: str, path: tuple[str, ...], number: float, around: Around) -> str | None:
    """What this number does beyond lowering a limit; None if it does no more than that."""
    if row not in around.configs:
        return None  # nothing of this row is used
    name = ".".join(path)
    config = around.configs[row]
    field = wire_fields(config).get(name) if config is not None else None
    if field is None or field.metadata.get("limit") is not True:
        return f"set {row}.{name}"
    lower, upper = around.below.get(row), around.above.get(row)
    if upper is not None and name in _config(upper):
        return None  # it is not used: the layer above says it again
    if lower is None and upper is None:
        return None  # without this file there is no such plugin
    below = _config(lower).get(name)
    limit = field.default if below is None else below.value
    if isinstance(limit, (int, float)) and number > limit:
        return f"raise {row}.{name} from {limit} to {number}"
    return None


def _config(row: LayerRow | None) -> Mapping[str, Node]:
    return row.config.entries() if row is not None and row.config is not None else {}


def _strict(value: object, path: tuple[str, ...]) -> bool:
    """Whether this text of the permissions row asks, denies, or says to what that applies."""
    if path == ("ask",):
        return value == "deny"
    return isinstance(value, str) and value != "allow"
