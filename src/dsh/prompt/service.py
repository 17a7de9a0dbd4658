"""The system prompt: who says what in it, in which order, for whom.

What comes in: sections, contexts, variables and tool providers, each owned by the plugin that
registered it. What goes out: one assembly per step, through `system-prompt/assemble`, and its
rendered text. Nothing here is sent or logged; the loop does that.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from dsh import catalog as ev
from dsh.catalog import records
from dsh.errors import PromptError
from dsh.hooks import frozen, live
from dsh.kernel import ServiceKey
from dsh.prompt.layers import Layers
from dsh.prompt.runtime_context import (
    RUNTIME_CONTEXT,
    due_snapshot,
    rendered_contexts,
)
from dsh.prompt.template import VARIABLE_NAME, substitute
from dsh.prompt.tool_order import check_order, order_tools

if TYPE_CHECKING:
    from dsh.catalog.config import SystemPromptConfig
    from dsh.hooks import EffectHandle, Scope
    from dsh.kernel import Context, CoreContext
    from dsh.session import Session

__all__ = ["PROMPT", "SystemPrompt", "Text", "TextProvider", "ToolProvider", "VariableProvider"]

TextProvider: TypeAlias = Callable[[live.AssembleContext], "str | Awaitable[str]"]
Text: TypeAlias = "str | TextProvider"
VariableProvider: TypeAlias = Callable[[live.AssembleContext], "str | None"]
ToolProvider: TypeAlias = Callable[[live.AssembleContext], Sequence[records.ToolSchema]]

ORDER_MAX: Final = 1_000_000


@frozen(eq=False)
class _Entry:
    order: int
    text: Text
    complete: bool = False


@frozen(eq=False)
class _Tools:
    provider: ToolProvider
    registered: Callable[[], Collection[str]]
    scope: Scope | None


class SystemPrompt:
    """The service.

    Registrations take the caller's context first: it owns them, and its scope decides who sees
    them; a scoped one shadows the global one of the same name.
    """

    def __init__(self, ctx: CoreContext, config: SystemPromptConfig) -> None:
        self._ctx = ctx
        self._order = check_order(config.tool_order)
        self._sections: Layers[_Entry] = Layers("section", self._changed)
        self._contexts: Layers[_Entry] = Layers("runtime context", self._changed)
        self._variables: Layers[VariableProvider] = Layers("variable", self._changed)
        self._silenced: Layers[None] = Layers("runtime-context suppression", self._changed)
        self._tools: list[_Tools] = []

    def section(
        self, ctx: Context, name: str, text: Text, *, order: int = 0, complete: bool = False
    ) -> EffectHandle:
        """Add a piece of the prompt; `order` ascending, then by name.

        Bands: -100 identity, 0 persona, 100 to 199 guidance for tools. `text` may be a function of
        the AssembleContext, sync or async, asked once per step; empty text is left out. A
        `complete` section, if exactly one has text, is the whole prompt. Raises PromptError for a
        name that this layer has.
        """
        return self._sections.add(ctx, name, _Entry(_sane(order, name), text, complete))

    def context(self, ctx: Context, name: str, text: Text, *, order: int = 0) -> EffectHandle:
        """Add a fact about the surroundings; it reaches the model as a message, when it changed."""
        return self._contexts.add(ctx, name, _Entry(_sane(order, name), text))

    def variable(self, ctx: Context, name: str, provider: VariableProvider) -> EffectHandle:
        """Give `{{name}}` a value per step; None means that it has none here."""
        if not VARIABLE_NAME.fullmatch(name):
            raise PromptError(
                f"{ctx.plugin} registers the variable {name!r}, which no text could refer to; "
                "use lower-case letters, digits and _, beginning with a letter"
            )
        return self._variables.add(ctx, name, provider)

    def tools(
        self,
        ctx: Context,
        provider: ToolProvider,
        *,
        registered: Callable[[], Collection[str]] = frozenset,
    ) -> EffectHandle:
        """Add a source of tool schemas, asked once per step.

        `registered` names the tools that exist in any scope; `toolOrder` may list them even where
        they are restricted away.
        """
        entry = _Tools(provider, registered, ctx.scope)

        def setup() -> Callable[[], None]:
            self._tools.append(entry)
            self._changed()
            return lambda: self._drop_tools(entry)

        return ctx.effect(setup, label="prompt tools")

    def suppress_runtime_context(self, ctx: Context) -> EffectHandle:
        """Leave runtime context out, for everybody or for the scope of `ctx`; no provider runs."""
        return self._silenced.add(ctx, ctx.plugin, None)

    async def assemble(self, context: live.AssembleContext) -> live.PromptAssembly:
        """The assembly of one step: what `context` sees, in order, through the waterfall.

        Raises PromptError, or whatever a provider or listener raises. Cancellable at every
        provider and listener; nothing has happened then.
        """
        built = live.PromptAssembly(
            sections=await self._texts(self._sections, context),
            contexts=()
            if self._is_silenced(context.scope)
            else await self._texts(self._contexts, context),
            tools=self._schemas(context),
            variables=tuple(
                (name, provider(context))
                for name, provider in sorted(self._variables.visible(context.scope).items())
            ),
        )

        async def default() -> live.PromptAssembly:
            return built

        assembly = await self._ctx.waterfall(ev.system_prompt.ASSEMBLE)(
            ev.system_prompt.Assemble(assembly=built, context=context), default
        )
        _complete(assembly.sections)
        return assembly

    def render(self, assembly: live.PromptAssembly) -> str:
        """The prompt's text: sections with their references replaced, a blank line between.

        Raises PromptError naming section and reference. Equal assemblies give equal bytes.
        """
        values = dict(assembly.variables)
        whole = _complete(assembly.sections)
        sections = assembly.sections if whole is None else (whole,)
        texts = (
            substitute(entry.text, values, where=f"section {entry.name!r}").strip()
            for entry in sections
        )
        return "\n\n".join(text for text in texts if text)

    def due_context(
        self, session: Session, assembly: live.PromptAssembly, new_id: Callable[[], str]
    ) -> records.UserMessage | None:
        """The runtime-context message that would bring `session`'s model up to date, or None.

        A proposal: it counts once the loop has admitted it.
        """
        sections = rendered_contexts(assembly.contexts, dict(assembly.variables))
        return due_snapshot(sections, session.projection(RUNTIME_CONTEXT), new_id)

    def _changed(self) -> None:
        self._ctx.emit(ev.system_prompt.Change())

    def _drop_tools(self, entry: _Tools) -> None:
        self._tools = [other for other in self._tools if other is not entry]
        self._changed()

    def _is_silenced(self, scope: Scope | None) -> bool:
        return bool(self._silenced.visible(scope))

    async def _texts(
        self, layers: Layers[_Entry], context: live.AssembleContext
    ) -> tuple[live.AssembledText, ...]:
        entries = sorted(
            layers.visible(context.scope).items(), key=lambda item: (item[1].order, item[0])
        )
        return tuple(
            [
                live.AssembledText(
                    name=name,
                    text=await _resolved(entry.text, context),
                    order=entry.order,
                    complete=entry.complete,
                )
                for name, entry in entries
            ]
        )

    def _schemas(self, context: live.AssembleContext) -> tuple[records.ToolSchema, ...]:
        seen = tuple(context.scope.lineage()) if context.scope is not None else ()
        visible = [entry for entry in self._tools if entry.scope is None or entry.scope in seen]
        schemas = [schema for entry in visible for schema in entry.provider(context)]
        if self._order is None:
            return order_tools(schemas, None, ())
        registered = {name for entry in visible for name in entry.registered()}
        return order_tools(schemas, self._order, registered)


#: The system prompt of the house.
PROMPT: Final[ServiceKey[SystemPrompt]] = ServiceKey("system-prompt")


def _sane(order: int, name: str) -> int:
    if not _is_order(order):
        raise PromptError(
            f"{name!r} has order {order!r}; give it an integer, -{ORDER_MAX} to {ORDER_MAX}"
        )
    return order


def _is_order(value: object) -> bool:
    """Not every author checks types."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= ORDER_MAX


async def _resolved(text: Text, context: live.AssembleContext) -> str:
    if isinstance(text, str):
        return text
    given = text(context)
    return await given if inspect.isawaitable(given) else given


def _complete(sections: Iterable[live.AssembledText]) -> live.AssembledText | None:
    whole = [entry for entry in sections if entry.complete and entry.text.strip()]
    if len(whole) > 1:
        raise PromptError(
            f"sections {', '.join(repr(entry.name) for entry in whole)} each claim to be the "
            "complete prompt; keep one, or shadow it in the agent's own scope"
        )
    return whole[0] if whole else None
