"""The modules of a plugin: set aside, imported again from source, put back if that fails.

What comes in: the package of a plugin. What goes out: new modules under the old names, or an error
and everything as it was, also as attributes of parents. Modules below `<package>.catalog` stay:
their classes are the vocabulary that others hold. Compiled files are neither read nor written, for
they miss an edit of the same size within the same second. Nothing here mounts anything.
"""

from __future__ import annotations

import importlib
import linecache
import sys
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from typing_extensions import override

from dsh.kernel import Plugin

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from types import CodeType, ModuleType

__all__ = ["ModuleSwap", "catalog_digest", "source_folders"]


@final
class ModuleSwap:
    """One package's modules, while it is decided whether the new ones stay."""

    def __init__(self, package: str) -> None:
        self.package: Final = package
        self._aside: dict[str, ModuleType] = {}

    def names(self) -> tuple[str, ...]:
        """The loaded modules of the package that may be exchanged."""
        return tuple(name for name in sys.modules if self._exchangeable(name))

    def anew(self, plugins: Iterable[Plugin]) -> Mapping[Plugin, Plugin]:
        """Import again; the new plugin for each old one. Raises whatever the import raises.

        LookupError: a plugin is no attribute of its modules any more, or never was. After a
        failure everything is as it was.
        """
        addresses = {plugin: self._address(plugin) for plugin in plugins}
        self._aside = {name: sys.modules.pop(name) for name in self.names()}
        try:
            with _from_source(self):
                return {plugin: _found(*where) for plugin, where in addresses.items()}
        except BaseException:
            self.back()
            raise

    def back(self) -> None:
        """Put every old module back where it was, and take the new ones out."""
        for name in self.names():
            module = sys.modules.pop(name)
            parent, _, child = name.rpartition(".")
            above = sys.modules.get(parent)
            if getattr(above, child, None) is module:
                delattr(above, child)
        sys.modules.update(self._aside)
        for name, module in self._aside.items():
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], child, module)
        self._aside = {}

    def _exchangeable(self, name: str) -> bool:
        catalog = f"{self.package}.catalog"
        return (name == self.package or name.startswith(f"{self.package}.")) and not (
            name == catalog or name.startswith(f"{catalog}.")
        )

    def _address(self, plugin: Plugin) -> tuple[str, str]:
        """Module and attribute under which the plugin is found; its own module first."""
        names = sorted(self.names(), key=lambda name: (name != plugin.module, name))
        for name in names:
            for attribute, value in vars(sys.modules[name]).items():
                if value is plugin:
                    return name, attribute
        raise LookupError(
            f"plugin {plugin.name!r} is not an attribute of a module of {self.package!r}; "
            "define it at the top of a module"
        )

    def find(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Where a module of the package comes from, with a loader that reads source only."""
        if not self._exchangeable(name):
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Finder):
                continue
            spec = finder.find_spec(name, path, None)
            if spec is not None:
                if type(spec.loader) is SourceFileLoader:
                    spec.loader = _SourceOnly(spec.loader.name, spec.loader.path)
                    spec.cached = None
                return spec
        return None


def _found(module: str, attribute: str) -> Plugin:
    value: object = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(value, Plugin):
        raise LookupError(f"{module} has no plugin {attribute!r} any more; restart dsh if it moved")
    return value


@final
class _SourceOnly(SourceFileLoader):
    """Compiles what stands in the file now."""

    @override
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        linecache.checkcache(path)
        with suppress(OSError, NotImplementedError):
            # A compiled file of an earlier version might be taken for this one at the next start.
            Path(cache_from_source(path)).unlink()
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    @override
    def exec_module(self, module: ModuleType) -> None:
        # What stays loaded is not imported again, so nobody else would make it an attribute.
        prefix = f"{module.__name__}."
        for name, kept in tuple(sys.modules.items()):
            if name.startswith(prefix) and "." not in name[len(prefix) :]:
                setattr(module, name[len(prefix) :], kept)
        super().exec_module(module)


@final
class _Finder(MetaPathFinder):
    def __init__(self, swap: ModuleSwap) -> None:
        self._swap: Final = swap

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        return self._swap.find(fullname, path)


@contextmanager
def _from_source(swap: ModuleSwap) -> Generator[None]:
    finder = _Finder(swap)
    importlib.invalidate_caches()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def source_folders(package: str) -> tuple[Path, ...]:
    """Where the source of a package is: its folders, or the folder of a single module."""
    module = sys.modules.get(package)
    paths: object = getattr(module, "__path__", None)
    if paths is not None:
        return tuple(Path(str(one)) for one in list(module.__path__ if module else ()))
    file = getattr(module, "__file__", None)
    return (Path(file).parent,) if isinstance(file, str) else ()


def catalog_digest(package: str) -> str:
    """A fingerprint of the catalog's source as it is on disk; the same text, the same digest."""
    digest = sha256()
    for folder in source_folders(package):
        for path in sorted({*folder.glob("catalog.py"), *folder.glob("catalog/**/*.py")}):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
