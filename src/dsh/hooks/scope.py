"""Scopes: the identity that tags a registration as "for that agent only".

What comes in: a label and, for a nested scope, its parent. What goes out: an identity that
registrations and dispatches compare. A scope never holds an agent and never runs code of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Scope"]


class Scope:
    """One agent's (or preset's) tag. Events flow up to ancestors, never down or sideways."""

    __slots__ = ("__weakref__", "label", "parent")

    def __init__(self, label: str, parent: Scope | None = None) -> None:
        self.label = label
        self.parent = parent

    def lineage(self) -> Iterator[Scope]:
        """This scope, then its parent, up to the outermost."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    @override
    def __repr__(self) -> str:
        return f"<Scope {self.label}>"
