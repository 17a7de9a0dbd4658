"""Renders the catalog of a plugin with a schema of its own: events, records, configuration, codec.

What comes in: the core's catalog and the plugin's. What goes out: file texts by their name in the
plugin's `catalog` package. They import nothing of dsh but hooks, records, codec and `wire.ext`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..samples import Samples
from .codecs import extension_codec
from .history import history_module
from .modules import (
    HOOKS,
    code_of,
    domain_module,
    exports,
    import_groups,
    own_names,
    records_blocks,
    sections_of,
)
from .reach import configured_names
from .reference import reference_module
from .spelling import Speller, docstring, wrapped_names
from .templating import header, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..history import Step
    from ..model import Catalog

__all__ = ["extension_modules"]

CORE: Final[dict[str, Sequence[str]]] = {"dsh.catalog": ("records",), "dsh.hooks": HOOKS}


def extension_modules(
    core: Catalog, catalog: Catalog, version: str, steps: Sequence[Step] = ()
) -> dict[str, str]:
    """All files of a plugin's catalog package. `steps` lead from its earlier versions."""
    files: dict[str, str] = {}
    exported: dict[str, list[str]] = {}
    package, source, command = catalog.package, catalog.home, catalog.command
    records = f"{package}.records"
    if own_names(catalog):
        prefix = {"records": "records.", records: ""}
        blocks, names = records_blocks(catalog, prefix, configured_names((core, catalog)))
        exported["records"] = names
        files["records.py"] = render(
            "module.py.j2",
            header=header(source, command),
            doc=docstring(f"Records of the plugin `{catalog.owner}`."),
            imports=import_groups(code_of(blocks), CORE),
            preamble=[exports(names)],
            blocks=blocks,
        )
    if catalog.sections:
        prefix = {"records": "records.", records: "", f"{package}.config": ""}
        blocks, names = sections_of(catalog, Speller(prefix, config=True))
        exported["config"] = names
        files["config.py"] = render(
            "module.py.j2",
            header=header(source, command),
            doc=docstring(f"Configuration of the plugin `{catalog.owner}`."),
            imports=import_groups(code_of(blocks), {**CORE, records: own_names(catalog)}),
            preamble=[exports(names)],
            blocks=blocks,
        )
    for domain in catalog.domains:
        files[f"{domain.module}.py"] = domain_module(catalog, domain)
    if any(domain.has_durable for domain in catalog.domains):
        exported["codec"] = ["CATALOG"]
        files["codec.py"] = extension_codec(core, catalog, version, steps)
    if steps or catalog.retired:
        files["history.py"] = history_module(catalog, steps)
    if catalog.events:
        files["reference.py"] = reference_module(catalog, Samples((core, catalog)))
    files["__init__.py"] = _front_door(catalog, exported)
    return files


def _front_door(catalog: Catalog, exported: dict[str, list[str]]) -> str:
    """`__init__.py`: configuration, records and domain modules under one name."""
    lines: list[str] = []
    modules = sorted(domain.module for domain in catalog.domains)
    if modules:
        lines += wrapped_names(modules, f"from {catalog.package} import ", "")
    for module in sorted(exported):
        names = sorted(exported[module], key=lambda name: (not name.isupper(), name))
        line = f"from {catalog.package}.{module} import {', '.join(names)}"
        if len(line) > 100:  # noqa: PLR2004
            lines += [
                f"from {catalog.package}.{module} import (",
                *(f"    {name}," for name in names),
                ")",
            ]
        else:
            lines.append(line)
    names = [name for group in exported.values() for name in group]
    return render(
        "module.py.j2",
        header=header(catalog.home, catalog.command),
        doc=docstring(f"The catalog of the plugin `{catalog.owner}`."),
        imports=[lines] if lines else [],
        preamble=[exports([*modules, *names])],
        blocks=[],
    )
