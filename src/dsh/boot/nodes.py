"""Located values: a composition as it was written, each value with the place it came from.

What comes in: parsed YAML or plain Python data, and the name of its source. What goes out: `Node`
trees that merge layer by layer and still know, for every value, the file, line and column (or the
profile, or the `--set` argument) to blame. Nothing here reads files or knows of plugins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard

from attrs import evolve, field
from typing_extensions import override

from dsh.hooks import frozen

__all__ = ["Issue", "Node", "Place", "is_list", "is_mapping", "located", "merged", "plain"]

Scalar: TypeAlias = "str | int | float | bool | None"


@frozen(slots=True)
class Place:
    """Where a value was written. `line` and `column` count from 1; both None outside files."""

    source: str
    line: int | None = None
    column: int | None = None

    @override
    def __str__(self) -> str:
        if self.line is None:
            return self.source
        return f"{self.source}:{self.line}:{self.column}"


@frozen(slots=True)
class Issue:
    """One thing that is wrong with a composition, and where."""

    place: Place
    problem: str

    @override
    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


@frozen(slots=True, eq=False)
class Node:
    """One value of a composition. `raw` is a scalar as written; `key` is the place of its key."""

    value: Scalar | tuple[Node, ...] | Mapping[str, Node]
    place: Place
    raw: str | None = None
    key: Place | None = field(default=None)

    def entries(self) -> Mapping[str, Node]:
        """The entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, Mapping) else {}

    def items(self) -> tuple[Node, ...]:
        """The items of a list; empty for anything else."""
        return self.value if isinstance(self.value, tuple) else ()

    def at(self, path: Sequence[str | int]) -> Node:
        """The node at `path`, or the nearest one above it that exists."""
        node = self
        for part in path:
            below: Node | None = None
            if isinstance(part, str):
                below = node.entries().get(part)
            elif part < len(node.items()):
                below = node.items()[part]
            if below is None:
                return node
            node = below
        return node


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    """Whether it is any mapping, with whatever in it."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether it is a list or tuple, with whatever in it."""
    return isinstance(value, (list, tuple))


def located(value: object, place: Place) -> Node:
    """`value` (JSON-like Python data) as a node; every part of it has the same `place`.

    Raises TypeError for what a composition cannot hold: sets, objects, keys that are no text.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return Node(value, place)
    if is_mapping(value):
        entries: dict[str, Node] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{place}: a key must be text, not {key!r}")
            entries[key] = located(item, place)
        return Node(entries, place)
    if is_list(value):
        return Node(tuple(located(item, place) for item in value), place)
    raise TypeError(f"{place}: {type(value).__name__} cannot stand in a composition: {value!r}")


def plain(node: Node) -> object:
    """The node as dicts, lists and scalars, without places."""
    if isinstance(node.value, Mapping):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, tuple):
        return [plain(item) for item in node.value]
    return node.value


def merged(below: Node, above: Node) -> Node:
    """`above` laid over `below`: mappings merge key by key, anything else is replaced whole."""
    if not (isinstance(below.value, Mapping) and isinstance(above.value, Mapping)):
        return above
    entries = dict(below.value)
    for key, item in above.value.items():
        entries[key] = merged(entries[key], item) if key in entries else item
    return evolve(above, value=entries)
