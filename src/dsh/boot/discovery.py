"""Installed plugins: found by entry point, loaded by name.

What comes in: the entry points of the group `dsh.plugins`, and plugins handed over as objects. What
goes out: the `Plugin` of a name, or an issue that says why there is none and what to do. It mounts
nothing, and imports only the plugins that a composition names.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dsh.boot.names import ROOMS, canonical
from dsh.boot.nearest import did_you_mean
from dsh.boot.nodes import Issue, Place
from dsh.kernel import Plugin, advised, in_a_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["GROUP", "ROOMS_FOLDER", "Installed"]

GROUP: Final = "dsh.plugins"
ROOMS_FOLDER: Final = str(Path(__file__).parents[1]) + "/"


class Installed:
    """The plugins that this process can mount. Reads the entry points once, when first asked."""

    def __init__(self, given: Iterable[Plugin] = ()) -> None:
        self._given: Final[Mapping[str, Plugin]] = {one.name: one for one in given}
        self._found: dict[str, list[EntryPoint]] | None = None

    def _entries(self) -> Mapping[str, list[EntryPoint]]:
        if self._found is None:
            self._found = {}
            for entry in entry_points(group=GROUP):
                self._found.setdefault(entry.name, []).append(entry)
        return self._found

    def names(self) -> tuple[str, ...]:
        """Every name that can be mounted, sorted."""
        return tuple(sorted({*self._given, *self._entries()}))

    def load(self, name: str, place: Place) -> Plugin | Issue:
        """The plugin `name`, imported. `place` is the row that asks for it."""
        given = self._given.get(name)
        if given is not None:
            return given
        entries = self._entries().get(name, [])
        if not entries:
            names = self.names()
            hint = did_you_mean(canonical(name), (*names, *ROOMS))
            listed = ", ".join(names) if names else "(none)"
            return Issue(place, f"no plugin named {name!r} is installed{hint} Installed: {listed}")
        if len(entries) > 1:
            owners = " and ".join(sorted(_distribution(entry) for entry in entries))
            return Issue(
                place, f"two plugins are named {name!r}: in {owners}; uninstall one of the two"
            )
        return _import(entries[0], place)


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def _import(entry: EntryPoint, place: Place) -> Plugin | Issue:
    try:
        found: object = entry.load()
    except ModuleNotFoundError as error:
        if entry.extras and not _own(entry, error.name):
            owner = entry.dist.name if entry.dist is not None else "dsh-trio"
            extra = ",".join(entry.extras)
            return Issue(
                place,
                f"the plugin {entry.name!r} needs {error.name!r}, which is not installed; "
                f"run: pip install '{owner}[{extra}]'",
            )
        return Issue(place, _broken(entry, error))
    except Exception as error:  # noqa: BLE001 - a foreign module may raise anything when imported
        return Issue(place, _broken(entry, error))
    if not isinstance(found, Plugin):
        return Issue(
            place,
            f"{entry.value} is {type(found).__name__}, not a plugin; "
            f"let the entry point of {_distribution(entry)} name what `@plugin(…)` made",
        )
    return found


def _own(entry: EntryPoint, module: str | None) -> bool:
    """Whether a missing module is part of the plugin itself rather than something it needs."""
    return module is not None and (entry.module == module or entry.module.startswith(f"{module}."))


def _broken(entry: EntryPoint, error: Exception) -> str:
    """Why the import failed, with the line of the plugin that did it."""
    who = f"the plugin {entry.name!r} of {_distribution(entry)}"
    return advised(f"{who} failed to import: {in_a_line(error)}", "repair it, or disable its row")
