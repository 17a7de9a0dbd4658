"""Small events, services and managers for tests of the kernel: what most of them need.

What comes in: lists that note what happened. What goes out: tokens that no schema declares, plugins
that provide, managers that say when they are entered and left. Nothing here asserts anything.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import trio
from attrs import frozen

from dsh.hooks import CoreBarrier, Durable, Emit, LogOnly, Notice, Parallel, Waterfall
from dsh.kernel import Context, Plugin, ServiceKey, plugin, required

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

__all__ = [
    "ASK",
    "BARRIER",
    "CACHE",
    "DB",
    "FACT",
    "RERUN",
    "TOLD",
    "Ask",
    "Barrier",
    "Fact",
    "NeedsCache",
    "NeedsDb",
    "No",
    "Told",
    "Yes",
    "managed",
    "plain",
    "provider",
    "yes_by_default",
]


@frozen
class Told(Notice):
    """A notice, contained."""

    n: int = 0


@frozen
class Barrier(CoreBarrier):
    """An awaited notice."""

    n: int = 0


@frozen
class Fact(LogOnly):
    """A durable event."""

    n: int = 0


@frozen
class Ask:
    """What is asked."""

    text: str = ""


@frozen
class Yes:
    """One answer, and who gave it."""

    by: str = "default"


@frozen
class No:
    """The other answer."""

    why: str


TOLD: Final[Emit[Told]] = Emit("test/told", Told, errors="contain", scope_of=None, owner="core")
BARRIER: Final[Parallel[Barrier]] = Parallel(
    "test/barrier", Barrier, errors="propagate", scope_of=None, owner="core"
)
FACT: Final[Durable[Fact]] = Durable("test/fact", Fact, owner="core")
ASK: Final[Waterfall[Ask, Yes | No]] = Waterfall(
    "test/ask", Ask, answers=(Yes, No), errors="propagate", scope_of=None, owner="core"
)
#: One in which a listener may ask the rest of the chain again.
RERUN: Final[Waterfall[Ask, int]] = Waterfall(
    "test/rerun", Ask, answers=(int,), errors="propagate", scope_of=None, owner="core", rerun=True
)
DB: Final[ServiceKey[str]] = ServiceKey("database")
CACHE: Final[ServiceKey[str]] = ServiceKey("cache")


async def yes_by_default() -> Yes | No:
    """The default of ASK."""
    return Yes()


@frozen
class NeedsDb:
    """Dependencies: DB."""

    db: str = required(DB)


@frozen
class NeedsCache:
    """Dependencies: CACHE."""

    cache: str = required(CACHE)


def provider(key: ServiceKey[str], value: str, trail: list[str], name: str = "") -> Plugin:
    """A plugin that provides `value`, and notes when it is there and when it is gone."""

    @plugin(name=name or key.name, provides=(key,))
    async def provides(ctx: Context) -> None:
        trail.append(f"+{value}")
        ctx.effect(lambda: lambda: trail.append(f"-{value}"), label="own")
        ctx.provide(key, value)

    return provides


@contextmanager
def plain(trail: list[str], name: str) -> Generator[str]:
    """A manager that notes when it is entered and left."""
    trail.append(f"+{name}")
    try:
        yield name
    finally:
        trail.append(f"-{name}")


@asynccontextmanager
async def managed(trail: list[str], name: str) -> AsyncGenerator[str]:
    """The same around a nursery in which something runs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        trail.append(f"+{name}")
        try:
            yield name
        finally:
            trail.append(f"-{name}")
            nursery.cancel_scope.cancel()
