"""Reads plugins/*/plugin.toml and finds each plugin's schema.

What comes in: a repository folder. What goes out: PluginInfo objects, sorted by name, or faults.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Final, cast

from .faults import Place, did_you_mean
from .model import PluginInfo

if TYPE_CHECKING:
    from pathlib import Path

    from .faults import Faults

__all__ = ["distribution_version", "read_plugins"]

REQUIRED: Final = ("name", "package", "entry", "summary")
OPTIONAL: Final = ("extra", "dependencies", "profiles", "known_as")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def read_plugins(root: Path, faults: Faults) -> tuple[PluginInfo, ...]:
    """All plugins of the repository. A bad plugin.toml is a fault, and that plugin is left out."""
    found: list[PluginInfo] = []
    for path in sorted((root / "plugins").glob("*/plugin.toml")):
        place = Place(path.relative_to(root).as_posix(), 1, 1)
        info = _read(path, place, faults)
        if info is not None:
            found.append(info)
    return tuple(found)


def _read(path: Path, place: Place, faults: Faults) -> PluginInfo | None:
    try:
        data = cast("dict[str, object]", tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.add(place, "plugin-toml", f"not TOML: {error}", "correct it")
        return None
    before = len(faults.found)
    texts: dict[str, str] = {}
    for key in data:
        if key not in (*REQUIRED, *OPTIONAL):
            known = (*REQUIRED, *OPTIONAL)
            remedy = did_you_mean(key, known, f"known are {', '.join(known)}")
            faults.add(place, "plugin-toml", f"{key!r} is not a key of plugin.toml", remedy)
    for key in (*REQUIRED, "extra"):
        value = data.get(key, "" if key == "extra" else None)
        if isinstance(value, str) and (value or key == "extra"):
            texts[key] = value
        else:
            faults.add(place, "plugin-toml", f"{key!r} is not a text", f'add {key} = "…"')
    lists = {key: _texts(data.get(key, []), key, place, faults) for key in OPTIONAL[1:]}
    if len(faults.found) > before:
        return None
    name, package = texts["name"], texts["package"]
    if name != path.parent.name or not _NAME.fullmatch(name):
        faults.add(
            place, "plugin-toml", f"name is {name!r}", f"write {path.parent.name!r}, its folder"
        )
    if package != name.replace("-", "_"):
        wanted = name.replace("-", "_")
        faults.add(place, "plugin-toml", f"package is {package!r}", f"write {wanted!r}")
    if not re.fullmatch(rf"dsh_plugins\.{re.escape(package)}(\.\w+)*:\w+", texts["entry"]):
        faults.add(
            place,
            "plugin-toml",
            f"entry is {texts['entry']!r}",
            f"write dsh_plugins.{package}:<object>",
        )
    if lists["dependencies"] and not texts["extra"]:
        faults.add(
            place, "plugin-toml", "dependencies without an extra", "name the extra they belong to"
        )
    return PluginInfo(
        name=name,
        package=package,
        entry=texts["entry"],
        summary=texts["summary"],
        folder=f"plugins/{path.parent.name}",
        extra=texts["extra"],
        dependencies=lists["dependencies"],
        profiles=lists["profiles"],
        known_as=lists["known_as"],
    )


def _texts(value: object, key: str, place: Place, faults: Faults) -> tuple[str, ...]:
    """A list of texts."""
    items = cast("list[object]", value) if isinstance(value, list) else None
    if items is None or not all(isinstance(item, str) for item in items):
        faults.add(place, "plugin-toml", f"{key!r} is not a list of texts", f'write {key} = ["…"]')
        return ()
    return tuple(str(item) for item in items)


def distribution_version(root: Path) -> str:
    """The version that pyproject.toml states, which owns the events that plugins declare."""
    path = root / "pyproject.toml"
    if not path.exists():
        return "0"
    data = cast("dict[str, dict[str, object]]", tomllib.loads(path.read_text(encoding="utf-8")))
    return str(data.get("project", {}).get("version", "0"))
