"""Plugins: what `@plugin` makes of a function.

What comes in: an async function with one of three shapes and the classes of its config and deps.
What goes out: a `Plugin` record, checked once, that any number of fibers may run. A mistake in the
declaration is refused at the decorator, before anything is mounted.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Never, TypeVar, final, overload

from dsh.errors import PluginError
from dsh.hooks import frozen
from dsh.kernel.places import Call, is_async, place_of, takes
from dsh.kernel.services import AnyKey, DepField, dep_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.kernel.context import Context

__all__ = ["Plugin", "plugin"]

C = TypeVar("C")
D = TypeVar("D")


@final
@frozen(eq=False, slots=True, kw_only=True)
class Plugin:
    """One plugin. Compared by identity; the same one may be mounted many times."""

    name: str
    apply: Call
    config: type | None = None
    deps: type | None = None
    needs: tuple[DepField, ...] = ()
    provides: tuple[AnyKey, ...] = ()
    place: str = "an unknown place"
    module: str = ""


@overload
def plugin(
    *, name: str, provides: tuple[AnyKey, ...] = ()
) -> Callable[[Callable[[Context], Awaitable[None]]], Plugin]: ...


@overload
def plugin(
    *, name: str, config: type[C], provides: tuple[AnyKey, ...] = ()
) -> Callable[[Callable[[Context, C], Awaitable[None]]], Plugin]: ...


@overload
def plugin(
    *, name: str, deps: type[D], config: None = None, provides: tuple[AnyKey, ...] = ()
) -> Callable[[Callable[[Context, None, D], Awaitable[None]]], Plugin]: ...


@overload
def plugin(
    *, name: str, config: type[C], deps: type[D], provides: tuple[AnyKey, ...] = ()
) -> Callable[[Callable[[Context, C, D], Awaitable[None]]], Plugin]: ...


def plugin(
    *,
    name: str,
    config: type | None = None,
    deps: type | None = None,
    provides: tuple[AnyKey, ...] = (),
) -> Callable[[Never], Plugin]:
    """Declare a plugin: decorate `async def apply(ctx)`, `(ctx, config)` or `(ctx, config, deps)`.

    Args:
        name: The name of its row in a composition, kebab-case.
        config: The class of its config (generated from its schema), or None.
        deps: An attrs class whose fields are `required(KEY)`, `optional(KEY)` or `late(KEY)`.
        provides: The keys of the services it provides; others it may not provide.

    Raises PluginError for a function that has another shape than declared.
    """
    needs = () if deps is None else tuple(dep_fields(deps))
    count = 3 if deps is not None else 2 if config is not None else 1
    own = {key.name for key in provides} & {need.key.name for need in needs}
    if own:
        raise PluginError(
            f"plugin {name!r} both needs and provides {', '.join(sorted(own))}; remove it from deps"
        )
    shape = ("ctx", "ctx, config", "ctx, config, deps")[count - 1]

    def declare(apply: Call) -> Plugin:
        place = place_of(apply) or "an unknown place"
        if not is_async(apply) or inspect.isasyncgenfunction(apply):
            raise PluginError(
                f"plugin {name!r} ({place}): apply must be an `async def` without `yield`"
            )
        signature = takes(apply, count)
        if signature is not None:
            raise PluginError(
                f"plugin {name!r} ({place}): apply is {signature}, expected ({shape})"
            )
        return Plugin(
            name=name,
            apply=apply,
            config=config,
            deps=deps,
            needs=needs,
            provides=provides,
            place=place,
            module=str(getattr(apply, "__module__", "")),
        )

    return declare
