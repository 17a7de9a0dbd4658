"""Which tools exist, for whom, and in which order a model sees them.

What comes in: registrations and restrictions, each owned by the context that made it. What goes
out: one view per scope, from which presentation, lookup and dispatch all read, so that the three
cannot disagree. Nothing here runs a tool or asks a policy.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from attrs import field, mutable

from dsh.catalog import records
from dsh.errors import PluginError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dsh.hooks import EffectHandle, Scope
    from dsh.kernel import Context
    from dsh.tools.tool import Tool

__all__ = ["Registry", "View"]

LISTED_MAX: Final = 40
NAME_SHOWN: Final = 80


@frozen(slots=True, eq=False)
class _Entry:
    tool: Tool
    owner: str


@frozen(slots=True, eq=False)
class _Restriction:
    allow: frozenset[str] | None
    deny: frozenset[str]

    def lets(self, name: str) -> bool:
        return name not in self.deny and (self.allow is None or name in self.allow)


@frozen(slots=True, eq=False)
class View:
    """What one scope sees: its tools by name in canonical order, and their schemas."""

    tools: Mapping[str, Tool]
    schemas: tuple[records.ToolSchema, ...]

    def missing(self, name: str) -> str:
        """The text for a name that is not there: nearest name, and what is registered."""
        near = get_close_matches(name, self.tools, n=1)
        shown = name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN]}…"
        hint = f"; did you mean {near[0]!r}?" if near else "."
        listed = list(self.tools)
        rest = len(listed) - LISTED_MAX
        names = ", ".join(listed[:LISTED_MAX]) + (f" and {rest} more" if rest > 0 else "")
        return f"no tool named {shown!r} in this scope{hint} Registered: {names or 'none'}"


@mutable(slots=True, eq=False)
class _Layer:
    """Registrations of one scope (None: global). Dropped with its last registration."""

    scope: Scope | None
    entries: dict[str, _Entry] = field(factory=dict)
    restrictions: list[_Restriction] = field(factory=list)
    view: View | None = None
    built: int = -1


class Registry:
    """The layers: one global, one per scope that registered or restricted anything."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._global = _Layer(None)
        self._layers: dict[Scope, _Layer] = {}
        self._generation = 0

    def register(self, ctx: Context, tool: Tool) -> EffectHandle:
        """Add a tool to the layer of `ctx`. Raises PluginError if the layer has that name."""

        def setup() -> Callable[[], None]:
            layer = self._layer(ctx.scope)
            taken = layer.entries.get(tool.name)
            if taken is not None:
                raise PluginError(
                    f"plugin {ctx.plugin!r}: tool {tool.name!r} is already registered here by "
                    f"plugin {taken.owner!r}; rename one of them, or disable one of the rows",
                    code="DUPLICATE_TOOL",
                )
            entry = _Entry(tool, ctx.plugin)
            layer.entries[tool.name] = entry
            self._touch()

            def undo() -> None:
                if layer.entries.get(tool.name) is entry:
                    del layer.entries[tool.name]
                    self._drop(layer)
                    self._touch()

            return undo

        return ctx.effect(setup, label=f"tool {tool.name}")

    def restrict(
        self, ctx: Context, *, allow: Iterable[str] | None, deny: Iterable[str] | None
    ) -> EffectHandle:
        """Filter what the scope of `ctx` inherits. Several restrictions intersect."""
        restriction = self._compiled(ctx, allow, deny)

        def setup() -> Callable[[], None]:
            layer = self._layer(ctx.scope)
            layer.restrictions.append(restriction)
            self._touch()

            def undo() -> None:
                layer.restrictions.remove(restriction)
                self._drop(layer)
                self._touch()

            return undo

        return ctx.effect(setup, label="tool restriction")

    def _compiled(
        self, ctx: Context, allow: Iterable[str] | None, deny: Iterable[str] | None
    ) -> _Restriction:
        scope = ctx.scope
        if scope is None:
            raise self._refused(ctx, "restricts tools without a scope; use the context of an agent")
        allowed = frozenset(allow) if allow is not None else None
        denied = frozenset(deny) if deny is not None else frozenset[str]()
        named = denied | (allowed or frozenset[str]())
        if not named:
            raise self._refused(ctx, "restricts tools but names none; give allow= or deny=")
        own = self._layers.get(scope)
        inherited = self._inherited(scope)
        for name in sorted(named):
            if name in inherited:
                continue
            if own is not None and name in own.entries:
                raise self._refused(
                    ctx,
                    f"restricts {name!r}, which this scope registered itself; dispose it instead",
                )
            raise self._refused(ctx, self.view(scope.parent).missing(name))
        return _Restriction(allowed, denied)

    @staticmethod
    def _refused(ctx: Context, text: str) -> PluginError:
        return PluginError(f"plugin {ctx.plugin!r}: {text}", code="BAD_RESTRICTION")

    def _layer(self, scope: Scope | None) -> _Layer:
        if scope is None:
            return self._global
        layer = self._layers.get(scope)
        if layer is None:
            layer = self._layers[scope] = _Layer(scope)
        return layer

    def _drop(self, layer: _Layer) -> None:
        empty = not layer.entries and not layer.restrictions
        if empty and layer.scope is not None and self._layers.get(layer.scope) is layer:
            del self._layers[layer.scope]

    def _touch(self) -> None:
        self._generation += 1
        self._changed()

    def names(self) -> frozenset[str]:
        """The names registered in any layer, restricted away or not."""
        layers = (self._global, *self._layers.values())
        return frozenset(name for layer in layers for name in layer.entries)

    def _nearest(self, scope: Scope | None) -> _Layer:
        if scope is not None and self._layers:
            for ancestor in scope.lineage():
                layer = self._layers.get(ancestor)
                if layer is not None:
                    return layer
        return self._global

    def _inherited(self, scope: Scope) -> Mapping[str, Tool]:
        return self.view(scope.parent).tools

    def view(self, scope: Scope | None) -> View:
        """What `scope` sees now. The same object until a registration changes it."""
        layer = self._nearest(scope)
        if layer.view is not None and layer.built == self._generation:
            return layer.view
        tools: dict[str, Tool] = {}
        if layer.scope is not None:
            tools = {
                name: tool
                for name, tool in self._inherited(layer.scope).items()
                if all(restriction.lets(name) for restriction in layer.restrictions)
            }
        tools.update({name: entry.tool for name, entry in layer.entries.items()})
        ordered = {name: tools[name] for name in sorted(tools)}
        layer.view = View(
            ordered,
            tuple(
                records.ToolSchema(
                    name=tool.name, description=tool.description, parameters=tool.parameters
                )
                for tool in ordered.values()
            ),
        )
        layer.built = self._generation
        return layer.view
