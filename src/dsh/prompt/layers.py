"""Named registrations in layers: one for everybody, one for each scope; the nearest shadows.

What comes in: entries, each with the context that owns it. What goes out: what one scope sees. An
entry leaves when its owner unloads or its scope closes. The same shape serves sections, contexts
and variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from dsh.errors import PromptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import EffectHandle, Scope
    from dsh.kernel import Context

__all__ = ["Layers"]

E = TypeVar("E")


class Layers(Generic[E]):
    """The registrations of one kind (`kind` is the word its messages use)."""

    def __init__(self, kind: str, changed: Callable[[], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._layers: dict[Scope | None, dict[str, E]] = {}
        self._owners: dict[tuple[Scope | None, str], str] = {}

    def add(self, ctx: Context, name: str, entry: E) -> EffectHandle:
        """Register `entry` in the layer of `ctx`'s scope, for as long as `ctx` lives.

        Raises PromptError if that layer has the name; another layer may have it.
        """

        def setup() -> Callable[[], None]:
            layer = self._layers.setdefault(ctx.scope, {})
            if name in layer:
                owner = self._owners[ctx.scope, name]
                raise PromptError(
                    f"{ctx.plugin} registers the {self._kind} {name!r}, which {owner} has "
                    "registered in the same layer; choose another name, or register it through "
                    "an agent's own context to shadow it there"
                )
            layer[name] = entry
            self._owners[ctx.scope, name] = ctx.plugin
            self._changed()
            return lambda: self._drop(ctx.scope, name, entry)

        return ctx.effect(setup, label=f"{self._kind} {name!r}")

    def _drop(self, scope: Scope | None, name: str, entry: E) -> None:
        layer = self._layers.get(scope, {})
        if layer.get(name) is not entry:
            return
        del layer[name], self._owners[scope, name]
        if not layer:
            del self._layers[scope]
        self._changed()

    def visible(self, scope: Scope | None) -> dict[str, E]:
        """Everything `scope` sees, by name: the outermost layer first, nearer ones shadowing."""
        seen: dict[str, E] = dict(self._layers.get(None, {}))
        if scope is not None:
            for nearer in reversed(tuple(scope.lineage())):
                seen.update(self._layers.get(nearer, {}))
        return seen
