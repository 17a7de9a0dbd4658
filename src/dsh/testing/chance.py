"""The dice of one life, and the account of what they did.

What comes in: a seed. What goes out: raises, hangs and waits, choices, cancels, and counts of what
happened. While it is calm nothing happens.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio
from attrs import field, frozen, mutable

from dsh.catalog import records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.hooks import Next, live

__all__ = ["Cancel", "Chance", "Life"]

CAUSES: Final[tuple[records.CancelCause, ...]] = (
    records.UserCause(),
    records.ParentCause(),
    records.HookCause(reason="rain"),
)

R = TypeVar("R")
T = TypeVar("T")

#: Of all gusts so many raise; so many raise or hang; so many raise, hang or wait.
RAISES, HANGS, WAITS = 0.04, 0.07, 0.3


@mutable
class Life:
    """What became of one seed. `broken`: laws that did not hold; `met`: what happened, counted."""

    seed: int
    broken: list[str] = field(factory=list[str])
    met: dict[str, int] = field(factory=dict[str, int])

    def meet(self, what: str) -> None:
        """Count something that happened."""
        self.met[what] = self.met.get(what, 0) + 1


@frozen(kw_only=True)
class Cancel:
    """One cancel of the weather's."""

    cause: records.CancelCause
    keep_inbox: bool


@final
class Chance:
    """Everything random of one life."""

    def __init__(self, life: Life) -> None:
        self.life: Final = life
        self.calm = False
        #: How often anything was cancelled, taken back or refused so far.
        self.cancels = 0
        #: Who is told of each cancel, before it and after it.
        self.before_cancel: Callable[[Cancel], None] = _nobody
        self.after_cancel: Callable[[Cancel], None] = _nobody
        self._dice: Final = random.Random(life.seed)

    def pick(self, among: Sequence[T]) -> T:
        """One of these."""
        return self._dice.choice(among)

    def number(self, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return self._dice.randint(least, most)

    def share(self) -> float:
        """At least 0, below 1."""
        return self._dice.random()

    def happens(self, what: str, share: float) -> bool:
        """Whether it happens this time; counted if so."""
        happens = not self.calm and self._dice.random() < share
        if happens:
            self.life.meet(what)
        return happens

    def cancel(self, agent: live.Agent, *, keep_inbox: bool | None = None) -> None:
        """Cancel for some cause; keep the inbox or not."""
        keep = self.pick((True, False)) if keep_inbox is None else keep_inbox
        cancel = Cancel(cause=self.pick(CAUSES), keep_inbox=keep)
        self.cancels += 1
        self.before_cancel(cancel)
        agent.cancel(cancel.cause, keep_inbox=cancel.keep_inbox)
        self.after_cancel(cancel)

    async def gust(self, where: str) -> None:
        """Nothing, a wait, a hang or a failure."""
        roll = 1.0 if self.calm else self._dice.random()
        if roll < RAISES:
            self.life.meet(f"{where} raised")
            raise ValueError(f"{where}: thunder")
        if roll < HANGS:
            self.life.meet(f"{where} hung")
            await trio.sleep(self.pick((5, 50, 500)))
        elif roll < WAITS:
            await trio.lowlevel.checkpoint()

    async def around(self, where: str, call_next: Next[R]) -> R:
        """The rest of a chain, between two gusts."""
        await self.gust(where)
        answer = await call_next()
        await self.gust(where)
        return answer


def _nobody(_cancel: Cancel) -> None:
    """Nobody watches yet."""
