"""A run in which nothing is left to chance: mock clock, and a scheduler that follows a seed.

What comes in: a seed and an async function. What goes out: what the function returns, the same
each time. It blocks; it is for use outside of trio.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

import trio
from trio.testing import MockClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["run_seeded"]

T = TypeVar("T")


def run_seeded(seed: int, fn: Callable[[], Awaitable[T]]) -> T:
    """Run `fn` to its end. Raises what it raises."""
    scheduler = import_module("trio._core._run")
    chance: object = vars(scheduler)["_r"]
    assert isinstance(chance, random.Random)
    vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    chance.seed(seed)
    before = random.getstate()
    random.seed(seed)  # a plugin's jitter is chance, too
    try:
        return trio.run(fn, clock=MockClock(autojump_threshold=0))
    finally:
        random.setstate(before)
        vars(scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = False
