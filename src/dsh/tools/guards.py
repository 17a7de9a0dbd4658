"""Guards: owner policies that may refuse a call's final arguments, and nothing else.

What comes in: functions and a call. What goes out: the first refusal with its owner, or None. A
guard cannot allow, so their order can never turn a refusal into a permission; one that raises
refuses.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from dsh.hooks import frozen
from dsh.tools.failures import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.hooks import EffectHandle, Scope
    from dsh.hooks.live import ToolExecution
    from dsh.kernel import Context

__all__ = ["Guard", "Guards", "Refusal"]

Guard: TypeAlias = "Callable[[ToolExecution], str | None]"

#: A guard may register guards; one that does so for ever is refused instead of followed.
ROUNDS_MAX: Final = 1_000


@frozen(slots=True, eq=False)
class _Held:
    fn: Guard
    owner: str
    scope: Scope | None
    slot: float


@frozen(slots=True)
class Refusal:
    """Why a guard refused. `broken`: it raised, or answered something that is no reason."""

    reason: str
    plugin: str
    broken: bool = False


class Guards:
    """Registered guards: global ones first, then along the scopes; in each, by mount slot."""

    def __init__(self) -> None:
        self._held: list[_Held] = []

    def add(self, ctx: Context, fn: Guard) -> EffectHandle:
        """Register a guard for the scope of `ctx`."""

        def setup() -> Callable[[], None]:
            held = _Held(fn, ctx.plugin, ctx.scope, ctx.activation.slot)
            insort(self._held, held, key=lambda one: one.slot)
            return lambda: self._held.remove(held)

        return ctx.effect(setup, label="tool guard")

    def _matching(self, scope: Scope | None) -> list[_Held]:
        chain: list[Scope | None] = [None]
        if scope is not None:
            chain.extend(reversed(list(scope.lineage())))
        return [held for layer in chain for held in self._held if held.scope is layer]

    def judge(self, execution: ToolExecution) -> Refusal | None:
        """Ask every matching guard, also those that a guard registers meanwhile."""
        scope = execution.agent.scope if execution.agent is not None else None
        asked: set[_Held] = set()
        while len(asked) < ROUNDS_MAX:
            held = next((one for one in self._matching(scope) if one not in asked), None)
            if held is None:
                return None
            asked.add(held)
            try:
                reason = cast("object", held.fn(execution))
            except Exception as error:  # noqa: BLE001 - fail closed, whatever it raised
                return Refusal(
                    f"a guard of {held.owner} failed: {describe(error).message}",
                    held.owner,
                    broken=True,
                )
            if reason is None:
                continue
            if not isinstance(reason, str):
                text = f"a guard of {held.owner} returned {type(reason).__name__}, not text or None"
                return Refusal(text, held.owner, broken=True)
            return Refusal(reason, held.owner)
        return Refusal("guards register guards without end", "tools", broken=True)
