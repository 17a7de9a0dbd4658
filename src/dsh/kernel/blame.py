"""Blame: which plugin wrote the code that runs, or waits, on a given stack.

What comes in: the frames of a thread or of a task. What goes out: the plugin, the line, and in
which of its listeners that is; for reports only. It reads frames and changes nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, final

from typing_extensions import override

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    import trio

    from dsh.kernel.fibers import Shared

__all__ = ["Blame", "Culprit", "package_of"]

OURS: Final = "dsh"
MACHINERY: Final = frozenset({"dsh", "trio", "outcome", "contextlib"})


@frozen(slots=True)
class Culprit:
    """The plugin whose code stands on a stack. `where`: `file:line`; `what`: its part in it."""

    plugin: str
    where: str
    function: str
    what: str

    @override
    def __str__(self) -> str:
        return f"plugin {self.plugin!r}, in {self.function} at {self.where}{self.what}"


def package_of(module: str) -> str:
    """The plugin package that a module belongs to: the outermost regular package above it.

    Namespace packages (such as `dsh_plugins`) belong to nobody and end the search.
    """
    name = module
    while "." in name:
        above = name.rpartition(".")[0]
        if getattr(sys.modules.get(above), "__file__", None) is None:
            break
        name = above
    return name


@final
class Blame:
    """Answers for one kernel."""

    __slots__ = ("_shared",)

    def __init__(self, shared: Shared) -> None:
        self._shared: Final = shared

    def running(self, frame: FrameType | None) -> Culprit | None:
        """The plugin on the stack of a running thread, given its innermost frame."""
        return self.of(_outwards(frame))

    def waiting(self, task: trio.lowlevel.Task) -> Culprit | None:
        """The plugin that a suspended task stands in."""
        return self.of(reversed(list(task.iter_await_frames())))

    def of(self, frames: Iterable[tuple[FrameType, int]]) -> Culprit | None:
        """The plugin that the innermost foreign frame belongs to. `frames`: innermost first."""
        packages = {
            package_of(module): plugin
            for module, plugin in self._shared.authors.items()
            if not _is_ours(module)
        }
        listeners = {entry.place: entry for entry in self._shared.registry.entries()}
        applies = {f.spec.place: f.spec.plugin for f in self._shared.fibers}
        found: tuple[str, str] | None = None
        plugin: str | None = None
        for frame, line in frames:
            code = frame.f_code
            module = str(frame.f_globals.get("__name__", ""))
            if found is None:
                if module.partition(".")[0] in MACHINERY:
                    continue
                plugin = packages.get(package_of(module))
                if plugin is not None:
                    found = (f"{code.co_filename}:{line}", code.co_qualname)
            if found is None:
                continue
            definition = f"{code.co_filename}:{code.co_firstlineno}"
            if definition in listeners:
                entry = listeners[definition]
                return Culprit(entry.plugin, *found, f", its listener of {entry.event.name!r}")
            if definition in applies:
                return Culprit(applies[definition], *found, ", its apply")
        return None if found is None or plugin is None else Culprit(plugin, *found, "")


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == OURS


def _outwards(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back
