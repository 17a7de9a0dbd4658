"""Renders the typing matrix: every event and every kind of misuse, each beside its right twin.

What comes in: resolved catalogs. What goes out: one module for each domain and one for
configuration. They are checked, never run: a line that ends in `# E: <mypy> <basedpyright>` must
give exactly that error under each, every other line none. `-` stands for no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..names import module_of
from . import matrix_classes, matrix_events
from .matrix_case import ATTR, Case, Writer, mark
from .modules import CORE_COMMAND, own_names
from .spelling import imports
from .templating import header, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Catalog, Domain, PluginInfo

__all__ = ["matrix_modules"]

NAMES = {
    "collections.abc": ("AsyncIterator", "Awaitable", "Callable", "Mapping"),
    "contextlib": ("AbstractAsyncContextManager", "asynccontextmanager"),
    "typing": ("Literal",),
}
DSH = {
    "dsh": ("Context", "Logged", "Next", "catalog as ev"),
    "dsh.hooks": ("AnyDurable", "JsonObject", "JsonValue", "StreamNext", "live"),
}


def matrix_modules(
    core: Catalog, extensions: Sequence[tuple[PluginInfo, Catalog]]
) -> dict[str, str]:
    """All files of the matrix by name."""
    files = {f"{domain.module}.py": _events(core, domain) for domain in core.domains}
    files["config.py"] = _config(core, "ev.config.")
    for plugin, catalog in extensions:
        name = module_of(plugin.name)
        for domain in catalog.domains:
            files[f"plugin_{name}_{domain.module}.py"] = _events(catalog, domain)
        if catalog.sections:
            files[f"plugin_{name}_config.py"] = _config(catalog, "")
    return files


def _writer(catalog: Catalog, domain_prefix: str) -> Writer:
    prefix = {"records": "ev.records.", "config": "ev.config."}
    if catalog.owner != "core":
        prefix[f"{catalog.package}.records"] = ""
        prefix[f"{catalog.package}.config"] = ""
    return Writer(domain_prefix, prefix)


def _events(catalog: Catalog, domain: Domain) -> str:
    """The matrix of one domain."""
    own = catalog.owner != "core"
    writer = _writer(catalog, f"{domain.module}." if own else f"ev.{domain.module}.")
    cases: list[Case] = []
    if not own:
        line = f"    ctx.on(ev.{domain.module}x.{domain.events[0].token})"
        head = "def unknown_domain(ctx: Context) -> None:"
        cases.append(Case("unknown-domain", [head, mark(line, ATTR)]))
    for event in domain.events:
        cases += matrix_events.cases(writer, event)
    return _module(catalog, domain.source, cases, [domain.module] if own else [])


def _config(catalog: Catalog, prefix: str) -> str:
    """The matrix of all config classes."""
    writer = _writer(catalog, prefix)
    cases: list[Case] = []
    for section in catalog.sections:
        for record in section.records:
            cases += matrix_classes.constructor_cases(writer, record.name, record.fields, prefix)
        name, fields = section.class_name, section.fields
        cases += matrix_classes.constructor_cases(writer, name, fields, prefix)
    names = [section.class_name for section in catalog.sections]
    names += [record.name for section in catalog.sections for record in section.records]
    source = (
        "schema/config/*.yaml" if catalog.owner == "core" else f"plugins/{catalog.owner}/schema/"
    )
    return _module(catalog, source, cases, names if catalog.owner != "core" else [])


def _module(catalog: Catalog, source: str, cases: list[Case], own: list[str]) -> str:
    code = "\n".join(line for case in cases for line in case.lines)
    groups = [imports(code, NAMES), imports(code, DSH)]
    if catalog.owner != "core":
        groups[1] += imports(code, {catalog.package: [*own, *own_names(catalog)]})
    return render(
        "matrix.py.j2",
        header=header(source, CORE_COMMAND),
        imports=[group for group in groups if group],
        cases=cases,
    )
