"""Fills the blocks between markers in pyproject.toml from what the plugins' plugin.toml say.

What comes in: the file's text and the plugins. What goes out: the text with each block replaced.
Everything outside the markers stays byte for byte.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .spelling import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Catalog, PluginInfo

__all__ = ["MissingBlockError", "fill_blocks"]

CODE = ("src", "codegen", "plugins", "tests", "benchmarks", "noxfile.py")
_BLOCK = re.compile(
    r"(?P<open># >>> generated: (?P<name>[a-z ]+)\n)(?P<body>.*?)"
    r"(?P<close># <<< generated: (?P=name)\n)",
    re.DOTALL,
)


class MissingBlockError(Exception):
    """A block's markers are not in the file; the text says which lines to add."""


def _array(key: str, items: Sequence[str]) -> str:
    """A TOML array, on one line if it fits."""
    line = f"{key} = [{', '.join(map(quoted, items))}]\n"
    if len(line) <= 101:  # noqa: PLR2004
        return line
    return f"{key} = [\n" + "".join(f"    {quoted(item)},\n" for item in items) + "]\n"


def _entry_points(
    plugins: Sequence[PluginInfo], extensions: Sequence[tuple[PluginInfo, Catalog]]
) -> str:
    storing = [p for p, c in extensions if any(domain.has_durable for domain in c.domains)]
    lines = ['[project.entry-points."dsh.plugins"]']
    lines += [f"{plugin.name} = {quoted(_entry(plugin))}" for plugin in plugins]
    if storing:
        lines += ["", '[project.entry-points."dsh.catalogs"]']
        lines += [f'{p.name} = "dsh_plugins.{p.package}.catalog:CATALOG"' for p in storing]
    return "\n".join(lines) + "\n"


def _entry(plugin: PluginInfo) -> str:
    """The entry point; its extra tells an installation without it what to install."""
    return f"{plugin.entry} [{plugin.extra}]" if plugin.extra else plugin.entry


def _extras(plugins: Sequence[PluginInfo]) -> str:
    extras: dict[str, list[str]] = {}
    for plugin in plugins:
        if plugin.extra:
            extras.setdefault(plugin.extra, []).extend(plugin.dependencies)
    return "".join(_array(extra, sorted(set(extras[extra]))) for extra in sorted(extras))


def _build(folders: Sequence[str], packages: Sequence[str]) -> str:
    sources = ['"src" = ""', *(f'"{folder}" = ""' for folder in folders)]
    sources += ['"codegen" = "dsh_codegen"', '"schema" = "dsh_codegen/schema"']
    return (
        "[tool.hatch.build]\n"
        + _array("dev-mode-dirs", ["src", *folders])
        + "\n[tool.hatch.build.targets.wheel]\n"
        + _array("only-include", ["src/dsh", "codegen", "schema", *packages])
        + "\n[tool.hatch.build.targets.wheel.sources]\n"
        + "\n".join(sources)
        + "\n"
    )


def fill_blocks(
    text: str, plugins: Sequence[PluginInfo], extensions: Sequence[tuple[PluginInfo, Catalog]]
) -> str:
    """The file with its blocks replaced. Raises MissingBlockError when markers are not there."""
    folders = [plugin.folder for plugin in plugins]
    packages = [f"{plugin.folder}/dsh_plugins" for plugin in plugins]
    paths = ["src", ".", *folders]
    bodies = {
        "entry points": _entry_points(plugins, extensions),
        "extras": _extras(plugins),
        "build": _build(folders, packages),
        "mypy": _array("files", CODE)
        + _array("mypy_path", paths)
        # Plugins' conftests share one name, which mypy refuses; basedpyright checks them.
        + _array("exclude", ["^tests/typing/generated/", "^plugins/[^/]+/tests/conftest[.]py$"]),
        "basedpyright": _array("include", CODE)
        + _array("exclude", ["tests/typing/generated", "**/__pycache__", "**/.*"])
        + _array("extraPaths", paths),
        "ruff": _array("src", paths),
    }
    found = {match["name"] for match in _BLOCK.finditer(text)}
    for name in bodies:
        if name not in found:
            raise MissingBlockError(
                f"pyproject.toml has no block {name!r}; add the two lines "
                f"'# >>> generated: {name}' and '# <<< generated: {name}' where it belongs"
            )

    def replaced(match: re.Match[str]) -> str:
        return match["open"] + bodies.get(match["name"], match["body"]) + match["close"]

    return _BLOCK.sub(replaced, text)
