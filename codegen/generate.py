"""Generates everything: reads the schema, renders, compares with what is there.

What comes in: the repository's root. What goes out: the wanted text of every generated file, and
the difference to the files on disk. Writing is one small step at the end, so that `--check` and
tests see exactly what would be written.
"""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING

from attrs import frozen

from .build import Origin, SchemaFile, build_catalog, symbols_of
from .faults import Faults
from .lint import lint
from .past import read_past
from .plugins import distribution_version, read_plugins
from .render.blocks import fill_blocks
from .render.changelog import fill_changelog
from .render.codecs import core_codec, refusal_module
from .render.events_doc import events_document
from .render.extension import extension_modules
from .render.history import history_module
from .render.json_schema import composition_schema, log_schema
from .render.matrix import matrix_modules
from .render.modules import (
    config_module,
    domain_module,
    front_door,
    records_module,
    registry_module,
)
from .render.reach import configured_names
from .render.reference import reference_module
from .review import judge
from .samples import Samples

if TYPE_CHECKING:
    from pathlib import Path

    from .faults import Fault
    from .model import Catalog, PluginInfo
    from .past import Past
    from .review import Review

__all__ = ["CORE", "Change", "Loaded", "changes", "load", "schema_files", "wanted_files"]

CATALOG = "src/dsh/catalog"
MATRIX = "tests/typing/generated"
ONCE = ("history", "golden")
CORE = Origin(owner="core", package="dsh.catalog", module="records", home="schema/")


@frozen
class Change:
    """A file that is not as it should be: `wanted` None means it should not exist."""

    path: str
    found: str | None
    wanted: str | None

    @property
    def word(self) -> str:
        """missing, orphan or stale."""
        if self.found is None:
            return "missing"
        return "orphan" if self.wanted is None else "stale"

    def diff(self) -> str:
        """The change as a unified diff."""
        lines = unified_diff(
            (self.found or "").splitlines(keepends=True),
            (self.wanted or "").splitlines(keepends=True),
            f"a/{self.path}" if self.found is not None else "/dev/null",
            f"b/{self.path}" if self.wanted is not None else "/dev/null",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@frozen
class Loaded:
    """The repository's catalogs: the core's, and one for each plugin with a schema of its own.

    `reviews` say what each schema folder still owes, the core's first.
    """

    core: Catalog
    extensions: tuple[tuple[PluginInfo, Catalog], ...]
    plugins: tuple[PluginInfo, ...]
    reviews: tuple[Review, ...]

    @property
    def demands(self) -> tuple[Fault, ...]:
        """Everything that must still be said, in order of place."""
        return tuple(sorted(fault for review in self.reviews for fault in review.demands))


def schema_files(folder: Path, root: Path) -> list[SchemaFile]:
    """All YAML files below a folder that declare something, in the order of their names."""
    paths = sorted((*folder.rglob("*.yaml"), *folder.rglob("*.yml")))
    return [
        SchemaFile(path.relative_to(root).as_posix(), path.read_bytes())
        for path in paths
        if not set(ONCE) & set(path.relative_to(folder).parts) and path.name != "changes.yaml"
    ]


def load(root: Path) -> Loaded:
    """Read and judge all schemas below `root`. Raises SchemaError with every fault."""
    faults = Faults()
    core = build_catalog(schema_files(root / "schema", root), faults, CORE, {})
    pasts: list[Past] = [read_past(root, "schema", faults)]
    plugins = read_plugins(root, faults)
    extensions: list[tuple[PluginInfo, Catalog]] = []
    for plugin in plugins:
        folder = f"{plugin.folder}/schema"
        files = schema_files(root / folder, root)
        if files:
            package = f"dsh_plugins.{plugin.package}.catalog"
            origin = Origin(
                owner=plugin.name,
                package=package,
                module=f"{package}.records",
                home=f"{folder}/",
            )
            catalog = build_catalog(files, faults, origin, symbols_of(core))
            extensions.append((plugin, catalog))
            pasts.append(read_past(root, folder, faults))
    catalogs = (core, *(catalog for _, catalog in extensions))
    lint(core, catalogs[1:], faults)
    faults.raise_if_any()
    since = distribution_version(root)
    reviews = tuple(
        judge(
            catalog,
            None if catalog is core else core,
            past,
            since=since,
            samples=Samples((core, catalog)),
        )
        for catalog, past in zip(catalogs, pasts, strict=True)
    )
    return Loaded(core, tuple(extensions), plugins, reviews)


def wanted_files(loaded: Loaded, root: Path) -> dict[str, str]:
    """The wanted text of every generated file, by its path below `root`."""
    core = loaded.core
    catalogs = (core, *(catalog for _, catalog in loaded.extensions))
    version = distribution_version(root)
    wanted = {
        f"{CATALOG}/__init__.py": front_door(core),
        f"{CATALOG}/records.py": records_module(core, configured_names(catalogs)),
        f"{CATALOG}/config.py": config_module(core),
        f"{CATALOG}/registry.py": registry_module(core),
        f"{CATALOG}/refusal.py": refusal_module(),
        f"{CATALOG}/codec.py": core_codec(core),
        f"{CATALOG}/history.py": history_module(core, loaded.reviews[0].steps),
        f"{CATALOG}/reference.py": reference_module(core, Samples((core,))),
        "docs/events.md": events_document(core, loaded.extensions),
        "docs/schema/log.schema.json": log_schema(catalogs),
        "docs/schema/composition.schema.json": composition_schema(catalogs, loaded.plugins),
    }
    for review in loaded.reviews:
        wanted |= review.files
    for domain in core.domains:
        wanted[f"{CATALOG}/{domain.module}.py"] = domain_module(core, domain)
    for (plugin, catalog), review in zip(loaded.extensions, loaded.reviews[1:], strict=True):
        folder = f"{plugin.folder}/dsh_plugins/{plugin.package}/catalog"
        for name, text in extension_modules(core, catalog, version, review.steps).items():
            wanted[f"{folder}/{name}"] = text
    for name, text in matrix_modules(core, loaded.extensions).items():
        wanted[f"{MATRIX}/{name}"] = text
    changelog = root / "CHANGELOG.md"
    if changelog.exists():
        entries = [entry for review in loaded.reviews for entry in review.entries]
        wanted["CHANGELOG.md"] = fill_changelog(changelog.read_text(encoding="utf-8"), entries)
    project = root / "pyproject.toml"
    if project.exists():
        text = project.read_text(encoding="utf-8")
        wanted["pyproject.toml"] = fill_blocks(text, loaded.plugins, loaded.extensions)
    return wanted


def _present(root: Path) -> set[str]:
    """All files in folders that hold generated files only."""
    folders = [root / CATALOG, root / MATRIX, root / "docs" / "schema"]
    folders += root.glob("plugins/*/dsh_plugins/*/catalog")
    return {
        path.relative_to(root).as_posix()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def changes(root: Path, wanted: dict[str, str]) -> list[Change]:
    """Every file that is missing, stale or an orphan, sorted by path."""
    found: list[Change] = []
    for path in sorted({*wanted, *_present(root)}):
        file = root / path
        text = file.read_bytes().decode("utf-8", "replace") if file.exists() else None
        if text != wanted.get(path):
            found.append(Change(path, text, wanted.get(path)))
    return found
