"""What a listener may answer, checked by class, and who decided.

What comes in: an answer and the entry that gave it. What goes out: nothing, or BadAnswer naming
plugin, event, place and the allowed types. A type checker says the same earlier; this is for
authors who use none.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from typing_extensions import override

from dsh.errors import BadAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.kernel.listeners import Entry
    from dsh.kernel.places import Call

__all__ = ["Answered", "awaited", "check_answer"]

R_co = TypeVar("R_co", covariant=True)


@final
class Answered(Generic[R_co]):
    """A waterfall's answer and who gave it; `plugin` is None when the default answered."""

    __slots__ = ("plugin", "value")

    # Written by hand: a frozen attrs class costs 0.3 µs more, and this is made for every dispatch.
    def __init__(self, value: R_co, plugin: str | None) -> None:
        self.value: Final = value
        self.plugin: Final = plugin

    @override
    def __repr__(self) -> str:
        return f"Answered({self.value!r}, plugin={self.plugin!r})"


def check_answer(entry: Entry, answer: object, allowed: tuple[type, ...]) -> None:
    """Raise BadAnswer unless `answer` is an instance of an allowed class."""
    if isinstance(answer, allowed):
        return
    names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in allowed)
    got = "None" if answer is None else type(answer).__name__
    hint = "return one of them"
    if inspect.iscoroutine(answer):
        answer.close()
        hint = "is an `await` missing before `call_next()`?"
    elif answer is None:
        hint = "is a `return` missing?"
    raise BadAnswer(
        f"plugin {entry.plugin!r} answered {got} to {entry.event.name!r} ({entry.place}); "
        f"allowed: {names}; {hint}"
    )


def awaited(fn: Call, describe: Callable[[], str]) -> Call:
    """A listener that is no `async def` but may return an awaitable (a lambda, a partial)."""

    async def listener(*args: object) -> object:
        result = fn(*args)
        if not inspect.isawaitable(result):
            raise BadAnswer(
                f"{describe()} returned {type(result).__name__} at once; make it `async def`"
            )
        return await result

    return listener
