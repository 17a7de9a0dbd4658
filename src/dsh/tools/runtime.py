"""The service `tools`: what plugins register with, and what runs a call from end to end.

What comes in: registrations through the caller's context, and single calls. What goes out: views
for presentation, and finished results. The runtime knows nothing of turns, steps or logs; the
order of several calls is `run_batch`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from dsh import catalog as ev
from dsh.catalog.config import ToolsConfig
from dsh.hooks import frozen
from dsh.kernel import Context, Late, ServiceKey, core_of, late, plugin
from dsh.seams.approval import APPROVAL, ApprovalService
from dsh.tools.admission import Desk, RewriteNote
from dsh.tools.guards import Guard, Guards
from dsh.tools.pipeline import Call, Finished
from dsh.tools.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh.catalog import records
    from dsh.hooks import EffectHandle, JsonObject, JsonValue, Scope
    from dsh.kernel import CoreContext
    from dsh.tools.execution import CallInput
    from dsh.tools.tool import Tool

__all__ = ["TOOLS", "ToolRuntime", "tools_plugin"]


def _no_log(_plugin: str, _arguments: JsonObject) -> None:
    """A call outside a session has no log for its rewrite."""


class ToolRuntime:
    """Registry, visibility, guards and the pipeline. One per kernel, found under `TOOLS`.

    `finish_timeout`: seconds that the finishing tail of a started call may take.
    """

    def __init__(
        self,
        ctx: CoreContext,
        approval: Late[ApprovalService],
        *,
        finish_timeout: float,
    ) -> None:
        self._registry = Registry(lambda: ctx.emit(ev.tools.Change()))
        self._guards = Guards()
        self._desk = Desk(
            ctx=ctx,
            registry=self._registry,
            guards=self._guards,
            approval=approval,
            finish_timeout=finish_timeout,
        )

    def register(self, ctx: Context, tool: Tool) -> EffectHandle:
        """Make `tool` visible where `ctx` is: to everyone, or to its scope, where it shadows.

        Undone when the plugin of `ctx` unloads. Raises PluginError (DUPLICATE_TOOL) naming the
        owner if this layer has the name already.
        """
        return self._registry.register(ctx, tool)

    def restrict(
        self,
        ctx: Context,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] | None = None,
    ) -> EffectHandle:
        """Filter what the scope of `ctx` inherits; never what it registers itself.

        With `allow` only those names pass, later ones not; with `deny` alone later tools pass.
        Several restrictions intersect. Raises PluginError (BAD_RESTRICTION): no scope, no name,
        an unknown name, or one of the scope's own.
        """
        return self._registry.restrict(ctx, allow=allow, deny=deny)

    def guard(self, ctx: Context, fn: Guard) -> EffectHandle:
        """Let `fn` refuse calls by their final arguments: it returns the reason, or None.

        It runs after every rewrite, and again after a person was asked. If it raises, the call is
        refused. Scoped like `ctx`.
        """
        return self._guards.add(ctx, fn)

    def get(self, name: str, scope: Scope | None = None) -> Tool | None:
        """The tool that a call of `name` in `scope` would run now."""
        return self._registry.view(scope).tools.get(name)

    def schemas(self, scope: Scope | None = None) -> tuple[records.ToolSchema, ...]:
        """What a model in `scope` is shown, in canonical order. Equal views are the same object."""
        return self._registry.view(scope).schemas

    def names(self) -> frozenset[str]:
        """The names of all tools that are registered anywhere, in whatever scope."""
        return self._registry.names()

    def is_parallel(self, name: str, arguments: JsonValue, scope: Scope | None = None) -> bool:
        """Whether this call may overlap others, asked of the tool as it is visible now.

        Anything but a clear answer is False: an unknown tool, arguments that do not fit, a
        predicate that raises or returns something else.
        """
        tool = self.get(name, scope)
        if tool is None:
            return False
        try:
            mode: object = tool.bind(arguments).mode()
        except Exception:  # noqa: BLE001 - fail closed: what cannot be classified runs alone
            return False
        return mode == "parallel"

    def open(self, given: CallInput, note: RewriteNote = _no_log) -> Call:
        """A call to be taken through its stages one by one. `note` logs a rewrite."""
        return Call(self._desk, given, note)

    async def execute(self, given: CallInput, note: RewriteNote = _no_log) -> Finished:
        """Run one call from end to end.

        Never raises for what a tool, listener, guard or wrapper does. Cancelled by the signal: the
        result says so. Cancelled from outside: the result is sealed, then `Cancelled` goes on.
        """
        call = self.open(given, note)
        if await call.admit():
            await call.dispatch()
        finished = await call.finish()
        await trio.lowlevel.checkpoint_if_cancelled()
        return finished


TOOLS: Final[ServiceKey[ToolRuntime]] = ServiceKey("tools")


@frozen
class _Deps:
    approval: Late[ApprovalService] = late(APPROVAL)


@plugin(name="tools", config=ToolsConfig, deps=_Deps, provides=(TOOLS,))
async def tools_plugin(ctx: Context, config: ToolsConfig, deps: _Deps) -> None:
    """The row `tools`: provides the runtime."""
    seconds = config.finish_timeout_ms / 1000
    ctx.provide(TOOLS, ToolRuntime(core_of(ctx), deps.approval, finish_timeout=seconds))
