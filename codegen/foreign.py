"""`python -m dsh_codegen generate`: the catalog of another distribution.

What comes in: a schema folder outside of this repository, and the package its modules go into. What
goes out: that package, the folder's lock, and files that are written once; or faults. The schema
stands on the core's, which lies beside this generator. Domains of others have a dot in their names,
so that the core can never take one.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, cast

from attrs import frozen

from .build import Origin, build_catalog, symbols_of
from .faults import Faults, Place
from .generate import CORE, Change, schema_files
from .lint import lint_one
from .output import tell_demands, write
from .past import read_past
from .render.extension import extension_modules
from .review import judge
from .samples import Samples

if TYPE_CHECKING:
    from .model import Catalog
    from .review import Review

__all__ = ["generate_command"]

_PACKAGE = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)+")


@frozen
class _Wanted:
    """What one run was asked for. `root` is the folder above the schema."""

    root: Path
    schema: str
    package: str
    target: Path
    name: str
    version: str


def core_catalog(faults: Faults) -> Catalog:
    """The core's catalog, from the schema beside this generator or inside its package."""
    here = Path(__file__).parent
    folder = here / "schema" if (here / "schema").is_dir() else here.parent / "schema"
    return build_catalog(schema_files(folder, folder.parent), faults, CORE, {})


def _project(root: Path, faults: Faults) -> tuple[str, str]:
    """Name and version of the distribution, from its pyproject.toml."""
    place = Place("pyproject.toml", 1, 1)
    try:
        text = (root / "pyproject.toml").read_text(encoding="utf-8")
        project = cast("dict[str, dict[str, object]]", tomllib.loads(text)).get("project", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        faults.add(place, "no-project", f"cannot be read: {error}", "or give --owner NAME@VERSION")
        return "unknown", "0"
    name, version = project.get("name"), project.get("version")
    if not isinstance(name, str) or not isinstance(version, str):
        what = "has no [project] with name and version"
        faults.add(place, "no-project", what, "add them, or give --owner NAME@VERSION")
        return "unknown", "0"
    return name, version


def generate_command(given: list[str]) -> int:
    """Run `generate`; returns the exit code. Raises SchemaError with every fault."""
    parser = argparse.ArgumentParser(
        prog="python -m dsh_codegen generate", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--schema", type=Path, required=True, metavar="DIR", help="its schema")
    parser.add_argument(
        "--package", required=True, metavar="NAME", help="where modules go: acme_deploy.catalog"
    )
    parser.add_argument(
        "--source", type=Path, metavar="DIR", help="the import root (default: src, if it is there)"
    )
    parser.add_argument(
        "--owner", metavar="NAME@VERSION", help="the distribution (default: from pyproject.toml)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    options = parser.parse_args(given)
    schema: Path = options.schema.resolve()
    if not schema.is_dir():
        parser.error(f"--schema {options.schema}: no such folder")
    package: str = options.package
    if not _PACKAGE.fullmatch(package):
        parser.error(
            f"--package {package}: write a package inside yours, as in acme_deploy.catalog"
        )
    faults = Faults()
    root = schema.parent
    owner: str = options.owner or ""
    name, _, version = owner.partition("@")
    if not owner:
        name, version = _project(root, faults)
    source: Path = (options.source or (root / "src" if (root / "src").is_dir() else root)).resolve()
    if not source.is_relative_to(root):
        parser.error(f"--source {options.source}: not inside {root}")
    wanted = _Wanted(
        root=root,
        schema=schema.name,
        package=package,
        target=source.joinpath(*package.split(".")),
        name=name,
        version=version,
    )
    return _generate(wanted, faults, check=options.check)


def _generate(wanted: _Wanted, faults: Faults, *, check: bool) -> int:
    command = (
        f"python -m dsh_codegen generate --schema ./{wanted.schema} --package {wanted.package}"
    )
    core = core_catalog(faults)
    origin = Origin(
        owner=wanted.name,
        package=wanted.package,
        module=f"{wanted.package}.records",
        home=f"{wanted.schema}/",
        command=command,
        foreign=True,
    )
    files = schema_files(wanted.root / wanted.schema, wanted.root)
    if not files:
        place = Place(wanted.schema, 1, 1)
        faults.add(
            place, "empty-schema", "no YAML file in it", "write events, see schema/README.md"
        )
    catalog = build_catalog(files, faults, origin, symbols_of(core))
    past = read_past(wanted.root, wanted.schema, faults)
    lint_one(catalog, (core,), faults, incomplete=bool(faults.found))
    faults.raise_if_any()
    samples = Samples((core, catalog))
    review = judge(catalog, core, past, since=wanted.version, samples=samples)
    if review.demands:
        tell_demands([review])
        return 1
    return write(wanted.root, _changes(wanted, core, catalog, review), check=check, command=command)


def _changes(wanted: _Wanted, core: Catalog, catalog: Catalog, review: Review) -> list[Change]:
    """Every file of the package, and of the schema, that is not as it should be."""
    folder = wanted.target.relative_to(wanted.root).as_posix()
    texts = dict(review.files)
    for name, text in extension_modules(core, catalog, wanted.version, review.steps).items():
        texts[f"{folder}/{name}"] = text
    present = {
        path.relative_to(wanted.root).as_posix()
        for path in wanted.target.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found: list[Change] = []
    for path in sorted({*texts, *present}):
        file = wanted.root / path
        there = file.read_bytes().decode("utf-8", "replace") if file.exists() else None
        if there != texts.get(path):
            found.append(Change(path, there, texts.get(path)))
    hand_made = [
        each.path
        for each in found
        if each.wanted is None and "@generated" not in (each.found or "")[:200]
    ]
    if hand_made:
        # A package that somebody filled by hand is not emptied.
        names = ", ".join(hand_made)
        sys.exit(f"codegen: {names} is not generated; --package must be a package of its own")
    return found
