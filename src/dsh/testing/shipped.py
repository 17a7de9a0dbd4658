"""Our own plugins, for tests that stand below them.

What comes in: a plugin's name. What goes out: the plugin, found as a composition finds it. Nothing
here imports one by itself.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from dsh.kernel import Plugin

__all__ = ["shipped"]


def shipped(name: str) -> Plugin:
    """One of our own plugins."""
    [entry] = entry_points(group="dsh.plugins", name=name)
    found: object = entry.load()
    assert isinstance(found, Plugin)
    return found
