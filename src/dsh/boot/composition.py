"""A composition: layers of rows to plugins that are ready to be mounted.

What comes in: the layers in order (profile, file, settings, the program's own rows), the `--set`
arguments, and the installed plugins. What goes out: one `Mountable` for every enabled row, with its
slot and its structured configuration; or one ConfigError with every mistake of every row. Nothing
is mounted here: all rows are right, or none is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import attrs
from attrs import evolve

from dsh.boot.declared import field_at, node_of_text
from dsh.boot.names import ROOMS
from dsh.boot.nearest import did_you_mean
from dsh.boot.nodes import Issue, Node, Place, is_list, is_mapping
from dsh.boot.rows import Layer, PlacedRow, combined, laid, laid_over
from dsh.boot.structure import structured
from dsh.boot.tighten import Around, loosened
from dsh.errors import ConfigError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dsh.kernel import Fiber, Plugin

__all__ = [
    "Composition",
    "Mountable",
    "Mounted",
    "composed",
    "configured",
    "key_variables",
    "refuse",
]

SET: Final = "--set"


@frozen(kw_only=True, slots=True, eq=False)
class Mountable:
    """An enabled row, ready to be mounted. `slot` orders its listeners among those of others."""

    row: PlacedRow
    plugin: Plugin
    config: object
    slot: float


@frozen(slots=True, eq=False)
class Mounted:
    """A row that is mounted, and its fiber."""

    row: Mountable
    fiber: Fiber


@frozen(kw_only=True, slots=True, eq=False)
class Composition:
    """What will be mounted, in order, and the optional rows that cannot be, with the reason."""

    mountables: tuple[Mountable, ...]
    skipped: tuple[Issue, ...]
    disabled: tuple[PlacedRow, ...] = ()


def composed(
    layers: Sequence[Layer],
    sets: Sequence[str],
    load: Callable[[str, Place], Plugin | Issue],
    *,
    issues: list[Issue],
    only: frozenset[str] | None = None,
) -> Composition:
    """All enabled rows in mount order. Raises ConfigError with every mistake at once.

    `issues` holds the mistakes that were found while the layers were read. `only` limits it to the
    rows with these ids: the others are neither loaded nor judged.
    """
    rows = combined(layers, issues)
    slots = {row.id: slot for slot, row in enumerate(rows)}
    rows = tuple(row for row in rows if only is None or row.id in only)
    skipped: list[Issue] = []
    plugins = _loaded(rows, load, issues, skipped)
    configs = {identity: plugin.config for identity, plugin in plugins.items()}
    issues.extend(_untrusted(layers, only, configs))
    rows = _with_sets(rows, plugins, sets, issues, partial=only is not None)
    mountables = tuple(
        Mountable(
            row=row,
            plugin=plugins[row.id],
            config=configured(row, plugins[row.id], issues),
            slot=slots[row.id],
        )
        for row in rows
        if row.id in plugins
    )
    refuse(issues)
    disabled = tuple(row for row in rows if row.disabled)
    return Composition(mountables=mountables, skipped=tuple(skipped), disabled=disabled)


def refuse(issues: Iterable[Issue]) -> None:
    """Raise ConfigError with all `issues` in the order of their places, if there is any."""
    lines = tuple(str(issue) for issue in sorted(issues, key=_by_place))
    if lines:
        count = "one mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
        raise ConfigError(f"the composition has {count}; nothing was started", issues=lines)


def _by_place(issue: Issue) -> tuple[str, int, int]:
    return issue.place.source, issue.place.line or 0, issue.place.column or 0


def _untrusted(
    layers: Sequence[Layer], only: frozenset[str] | None, configs: Mapping[str, type | None]
) -> Iterator[Issue]:
    for place, layer in enumerate(layers):
        if not layer.trusted:
            rows = tuple(row for row in layer.rows if only is None or row.id in only)
            below, above = laid(layers[:place]), laid(layers[place + 1 :])
            around = Around(below=below, above=above, configs=configs)
            yield from loosened(evolve(layer, rows=rows), around)


def _loaded(
    rows: Sequence[PlacedRow],
    load: Callable[[str, Place], Plugin | Issue],
    issues: list[Issue],
    skipped: list[Issue],
) -> Mapping[str, Plugin]:
    plugins: dict[str, Plugin] = {}
    for row in rows:
        if row.disabled:
            if row.id in ROOMS:
                issues.append(
                    Issue(row.place, f"{row.id!r} is a room of dsh and cannot be disabled")
                )
            continue
        found = load(row.name, row.place)
        if isinstance(found, Issue):
            (skipped if row.optional else issues).append(found)
        else:
            plugins[row.id] = found
    return plugins


def _with_sets(
    rows: Sequence[PlacedRow],
    plugins: Mapping[str, Plugin],
    sets: Sequence[str],
    issues: list[Issue],
    *,
    partial: bool,
) -> tuple[PlacedRow, ...]:
    by_id = {row.id: row for row in rows}
    for argument in sets:
        place = Place(f"{SET} {argument}")
        target, equals, text = argument.partition("=")
        row = _addressed(target, by_id)
        if row is None and partial and equals:
            continue  # for a row that is not looked at this time
        if not equals or row is None:
            issues.append(Issue(place, _unaddressed(target, by_id, equals=bool(equals))))
            continue
        plugin = plugins.get(row.id)
        if plugin is None:
            # Its row is an issue already, or disabled: then there is nothing to set.
            continue
        path = tuple(target[len(row.id) + 1 :].split("."))
        node = _set_node(plugin, path, text, place, row.id)
        if isinstance(node, Issue):
            issues.append(node)
            continue
        by_id[row.id] = evolve(row, config=laid_over(row.name, row.config, node))
    return tuple(by_id[row.id] for row in rows)


def _addressed(target: str, rows: Mapping[str, PlacedRow]) -> PlacedRow | None:
    """The row whose id, with a dot after it, begins the target; the longest such id."""
    matching = [name for name in rows if target.startswith(f"{name}.") and target != f"{name}."]
    return rows[max(matching, key=len)] if matching else None


def _unaddressed(target: str, rows: Mapping[str, PlacedRow], *, equals: bool) -> str:
    identity = target.partition(".")[0]
    if equals and identity not in rows:
        hint = did_you_mean(identity, rows)
        return f"no row with the id {identity!r}{hint} Rows: {', '.join(rows)}"
    return "write --set ID.path=value, where ID is the id of a row: --set tools.mode=native"


def _set_node(
    plugin: Plugin, path: tuple[str, ...], text: str, place: Place, identity: str
) -> Node | Issue:
    if plugin.config is None:
        return Issue(place, f"{identity} takes no configuration")
    declared = field_at(plugin.config, path, place)
    if isinstance(declared, Issue):
        return declared
    node = node_of_text(text, declared, place)
    for part in reversed(path):
        node = Node({part: evolve(node, key=place)}, place)
    return node


def configured(row: PlacedRow, plugin: Plugin, issues: list[Issue]) -> object:
    """The configuration of a row for its plugin; mistakes are added to `issues`."""
    if plugin.config is None:
        for key, item in row.config.entries().items():
            issues.append(
                Issue(
                    item.key or item.place,
                    f"{row.id}: unknown key {key!r}. {plugin.name} takes no configuration",
                )
            )
        return None
    config_class = cast("type[object]", plugin.config)
    return structured(config_class, row.config, row.id, issues)


def key_variables(mountables: Iterable[Mountable]) -> frozenset[str]:
    """Every environment variable that some configuration names as a key (`apiKeyEnv`)."""
    found: set[str] = set()
    for mountable in mountables:
        _collect(mountable.config, found)
    return frozenset(found)


def _collect(value: object, found: set[str]) -> None:
    if is_mapping(value):
        for item in value.values():
            _collect(item, found)
    elif is_list(value):
        for item in value:
            _collect(item, found)
    elif attrs.has(kind := type(value)):
        for field in attrs.fields(kind):
            part: object = getattr(value, field.name)
            if field.name == "api_key_env" and isinstance(part, str):
                found.add(part)
            else:
                _collect(part, found)
