"""dsh: an agent harness whose plugin contract is a reviewed schema.

What comes in: nothing. What goes out, each loaded at its first use: what a plugin file needs
(`Context`, `Logged`, `Next`, `catalog`, `plugin`, `required`, `optional`, `late`, `define_tool`)
and what an embedding program needs (`open_harness`, `user_message`). Nothing runs at import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dsh import catalog
    from dsh.agent import user_message
    from dsh.boot import open_harness
    from dsh.hooks import Logged, Next
    from dsh.kernel import Context, late, optional, plugin, required
    from dsh.tools import define_tool

    __version__: str

__all__ = [
    "Context",
    "Logged",
    "Next",
    "__version__",
    "catalog",
    "define_tool",
    "late",
    "open_harness",
    "optional",
    "plugin",
    "required",
    "user_message",
]

if not TYPE_CHECKING:
    # Hidden from type checkers: with a visible __getattr__ a misspelt name would pass.
    _HOMES: Final = {
        "Context": "dsh.kernel",
        "Logged": "dsh.hooks",
        "Next": "dsh.hooks",
        "define_tool": "dsh.tools",
        "late": "dsh.kernel",
        "open_harness": "dsh.boot",
        "optional": "dsh.kernel",
        "plugin": "dsh.kernel",
        "required": "dsh.kernel",
        "user_message": "dsh.agent",
    }

    def __getattr__(name: str) -> object:
        if name == "catalog":
            return import_module("dsh.catalog")
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - slow, seldom needed

            value: object = version("dsh-trio")
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(
                f"module 'dsh' has no attribute {name!r}; it has {', '.join(__all__)}"
            )
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
