"""Rows of a composition: read from layers, laid over each other by id.

What comes in: located nodes (files, profiles), `Row` objects of a program that embeds dsh. What
goes out: the effective rows in mount order, each with the places of its values; or every mistake in
their form, at once. It does not know which plugins exist nor what their configuration may say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import evolve, field

from dsh.boot.names import canonical
from dsh.boot.nearest import did_you_mean
from dsh.boot.nodes import Issue, Node, Place, located, merged
from dsh.hooks import frozen

__all__ = [
    "Layer",
    "LayerRow",
    "PlacedRow",
    "Row",
    "combined",
    "laid",
    "laid_over",
    "layer_of_node",
    "layer_of_rows",
]

KEYS: Final = ("name", "id", "config", "disabled", "optional")

#: Lists of a plugin's config to which an upper layer adds. A rule that denies stays in force
#: whatever a later layer says, and the strictest of all rules decides.
GROWING: Final[Mapping[str, tuple[str, ...]]] = {"permissions": ("rules",)}


@frozen(kw_only=True, slots=True)
class Row:
    """One row, written in Python: which plugin, under which id, with what configuration.

    `id` defaults to the plugin's name. `config` is JSON-like data in wire spelling (camelCase).
    `optional` lets a one-shot run go on when this row cannot be active. `source` is what people
    know the row by, if not by the layer it is in.
    """

    name: str
    id: str | None = None
    config: Mapping[str, object] = field(factory=dict[str, object])
    disabled: bool = False
    optional: bool = False
    source: str | None = None


@frozen(kw_only=True, slots=True, eq=False)
class LayerRow:
    """A row as one layer says it; None means that the layer says nothing about it."""

    id: str
    name: str | None
    config: Node | None
    disabled: bool | None
    optional: bool | None
    place: Place
    written: str | None = None


@frozen(slots=True, eq=False)
class Layer:
    """One layer of the composition. `trusted` is False for a project file found by itself."""

    source: str
    rows: tuple[LayerRow, ...]
    trusted: bool = True


@frozen(kw_only=True, slots=True, eq=False)
class PlacedRow:
    """An effective row. `place` is where its plugin was first named."""

    id: str
    name: str
    config: Node
    disabled: bool
    optional: bool
    place: Place


def layer_of_rows(source: str, rows: Iterable[Row]) -> Layer:
    """The rows of a profile or of an embedding program as a layer."""

    def placed(row: Row) -> Place:
        return Place(row.source if row.source is not None else source)

    return Layer(
        source,
        tuple(
            LayerRow(
                id=row.id if row.id is not None else canonical(row.name),
                name=canonical(row.name),
                config=located(row.config, placed(row)) if row.config else None,
                disabled=row.disabled,
                optional=row.optional,
                place=placed(row),
                written=row.name,
            )
            for row in rows
        ),
    )


def layer_of_node(source: str, node: Node, issues: list[Issue], *, trusted: bool = True) -> Layer:
    """The rows of a file as a layer. Mistakes in their form are added to `issues`."""
    if node.value is None:
        return Layer(source, (), trusted)
    if not isinstance(node.value, tuple):
        issues.append(
            Issue(node.place, "a composition is a list of rows; write `- name: PLUGIN` lines")
        )
        return Layer(source, (), trusted)
    rows = [row for item in node.items() if (row := _row(item, issues)) is not None]
    return Layer(source, tuple(_once(rows, issues)), trusted)


def _row(node: Node, issues: list[Issue]) -> LayerRow | None:
    if not isinstance(node.value, Mapping):
        issues.append(Issue(node.place, "a row is a mapping; write `- name: PLUGIN`"))
        return None
    entries = node.entries()
    for key, item in entries.items():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS)
            issues.append(
                Issue(
                    item.key or item.place,
                    f"unknown key {key!r} in a row{hint} A row has: {', '.join(KEYS)}",
                )
            )
    name = _text(entries.get("name"), "name", issues)
    identity = _text(entries.get("id"), "id", issues)
    if name is None and identity is None:
        if "name" not in entries and "id" not in entries:
            issues.append(
                Issue(node.place, "a row needs a name (of the plugin) or the id of a row below it")
            )
        return None
    plugin = canonical(name) if name is not None else None
    config = entries.get("config")
    if config is not None and config.value is None:
        config = None
    if config is not None and not isinstance(config.value, Mapping):
        issues.append(Issue(config.place, "config is a mapping of keys to values"))
        config = None
    return LayerRow(
        id=identity if identity is not None else (plugin or ""),
        name=plugin,
        config=_documented_config(name, config),
        disabled=_flag(entries.get("disabled"), "disabled", issues),
        optional=_flag(entries.get("optional"), "optional", issues),
        place=node.place,
        written=name,
    )


def _documented_config(written: str | None, config: Node | None) -> Node | None:
    """The one documented plugin whose configuration moved: llm-deepseek is a provider now."""
    if written is None or config is None or not written.endswith("llm-deepseek"):
        return config
    provider = Node({"deepseek": config}, config.place)
    return Node({"providers": provider}, config.place)


def _text(node: Node | None, key: str, issues: list[Issue]) -> str | None:
    if node is None:
        return None
    if isinstance(node.value, str) and node.value:
        return node.value
    quoted = f'; write it in quotes: "{node.raw}"' if node.raw else ""
    issues.append(Issue(node.place, f"{key} must be text that is not empty{quoted}"))
    return None


def _flag(node: Node | None, key: str, issues: list[Issue]) -> bool | None:
    if node is None:
        return None
    if isinstance(node.value, bool):
        return node.value
    shown = node.raw if node.raw is not None else "a list or mapping"
    issues.append(Issue(node.place, f"{key} must be true or false, not {shown}"))
    return None


def _once(rows: Sequence[LayerRow], issues: list[Issue]) -> Iterable[LayerRow]:
    """Refuse an id given twice; two documented names of one plugin of ours become one row."""
    seen: dict[str, LayerRow] = {}
    for row in rows:
        first = seen.get(row.id)
        if first is None:
            seen[row.id] = row
        elif first.name == row.name and first.written != row.written and row.name is not None:
            seen[row.id] = _over(first, row)
        else:
            issues.append(
                Issue(
                    row.place,
                    f"the id {row.id!r} is taken by the row at {first.place}; "
                    "give one of the two an `id` of its own",
                )
            )
    return seen.values()


def _over(below: LayerRow, above: LayerRow) -> LayerRow:
    """One row of two layers. A different plugin under the same id replaces it, config and all."""
    replaced = above.name is not None and above.name != below.name
    config = above.config
    if not replaced and below.config is not None:
        config = below.config if config is None else laid_over(below.name, below.config, config)
    return evolve(
        above,
        name=above.name if above.name is not None else below.name,
        config=config,
        disabled=_said(above.disabled, None if replaced else below.disabled),
        optional=_said(above.optional, None if replaced else below.optional),
        place=above.place if replaced else below.place,
    )


def laid_over(plugin: str | None, below: Node, above: Node) -> Node:
    """Lists are replaced, but for those that say what must not happen: they only grow."""
    config = merged(below, above)
    for key in GROWING.get(plugin or "", ()):
        lower, upper = below.entries().get(key), above.entries().get(key)
        if lower is not None and upper is not None and isinstance(upper.value, tuple):
            both = evolve(upper, value=(*lower.items(), *upper.items()))
            config = evolve(config, value={**config.entries(), key: both})
    return config


def _said(above: bool | None, below: bool | None) -> bool | None:  # noqa: FBT001 - three-valued
    return above if above is not None else below


def laid(layers: Iterable[Layer]) -> Mapping[str, LayerRow]:
    """The rows of all layers by id, laid over each other, lowest first."""
    rows: dict[str, LayerRow] = {}
    for layer in layers:
        for row in layer.rows:
            below = rows.get(row.id)
            rows[row.id] = row if below is None else _over(below, row)
    return rows


def combined(layers: Sequence[Layer], issues: list[Issue]) -> tuple[PlacedRow, ...]:
    """All layers laid over each other, lowest first. Order: first appearance.

    A row that names no plugin and whose id no lower layer has is added to `issues`.
    """
    known: dict[str, None] = {}
    for row in (row for layer in layers for row in layer.rows):
        if row.id not in known and row.name is None:
            issues.append(
                Issue(
                    row.place,
                    f"no layer below has a row with the id {row.id!r}"
                    f"{did_you_mean(row.id, known)} A new row needs a `name` (of the plugin)",
                )
            )
        else:
            known[row.id] = None
    return tuple(
        PlacedRow(
            id=row.id,
            name=row.name,
            config=row.config if row.config is not None else Node({}, row.place),
            disabled=row.disabled is True,
            optional=row.optional is True,
            place=row.place,
        )
        for row in laid(layers).values()
        if row.name is not None
    )
