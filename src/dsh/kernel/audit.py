"""The audit: why a fiber is not active, in words a person can act on.

What comes in: the fibers and the services of a kernel that has settled. What goes out: one
problem for each fiber that waits, failed or never finished loading. It changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from dsh.errors import HarnessError
from dsh.hooks import frozen
from dsh.kernel.faults import advised, in_a_line
from dsh.kernel.places import did_you_mean
from dsh.kernel.states import FiberState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh.kernel.fibers import Fiber
    from dsh.kernel.services import ServiceTable

__all__ = ["FiberProblem", "audit"]


REPAIR: Final = "repair it, or disable its row"


@frozen(slots=True, kw_only=True)
class FiberProblem:
    """One fiber that is not active. `missing` names services, `cycle` fibers."""

    id: str
    plugin: str
    state: FiberState
    reason: str
    missing: tuple[str, ...] = ()
    cycle: tuple[str, ...] = ()
    error: Exception | None = attrs.field(default=None, eq=False)


def audit(fibers: Sequence[Fiber], services: ServiceTable) -> list[FiberProblem]:
    """One problem for each fiber that is neither active nor on its way out."""
    givers: dict[str, Fiber] = {}
    for fiber in fibers:
        for name in fiber.spec.provides:
            givers.setdefault(name, fiber)
    return [
        _problem(fiber, givers, services)
        for fiber in fibers
        if fiber.state in (FiberState.PENDING, FiberState.FAILED, FiberState.LOADING)
    ]


def _problem(fiber: Fiber, givers: Mapping[str, Fiber], services: ServiceTable) -> FiberProblem:
    who = f"plugin {fiber.path!r}"
    missing: tuple[str, ...] = ()
    cycle: tuple[str, ...] = ()
    match fiber.state:
        case FiberState.FAILED:
            error = fiber.error
            said = f"{who} failed: {'' if error is None else in_a_line(error)}"
            reason = said if isinstance(error, HarnessError) else advised(said, REPAIR)
        case FiberState.LOADING:
            reason = f"{who} is still loading: its apply has not returned ({fiber.spec.place})"
        case _:
            missing = tuple(need.key.name for need in fiber.missing())
            cycle = _cycle(fiber, givers)
            parts = [_why(name, givers, services) for name in missing]
            if cycle:
                parts.append(f"they wait for each other: {' → '.join((*cycle, cycle[0]))}")
            reason = f"{who} waits for {'; '.join(parts) or 'its turn'}"
    return FiberProblem(
        id=fiber.path,
        plugin=fiber.spec.plugin,
        state=fiber.state,
        reason=reason,
        missing=missing,
        cycle=cycle,
        error=fiber.error,
    )


def _why(name: str, givers: Mapping[str, Fiber], services: ServiceTable) -> str:
    giver = givers.get(name)
    if giver is not None:
        return f"service {name!r}, which plugin {giver.path!r} ({giver.state.value}) provides"
    known = sorted({*services.names(), *givers})
    hint = did_you_mean(name, known)
    return f"service {name!r}, which no mounted plugin provides{hint}"


def _cycle(fiber: Fiber, givers: Mapping[str, Fiber]) -> tuple[str, ...]:
    """The shortest circle of pending fibers through this one, beginning with it."""
    paths: list[tuple[Fiber, ...]] = [(fiber,)]
    seen: set[Fiber] = set()
    while paths:
        path = paths.pop(0)
        for need in path[-1].missing():
            giver = givers.get(need.key.name)
            if giver is fiber:
                return tuple(each.path for each in path)
            if giver is not None and giver not in seen and giver.state is FiberState.PENDING:
                seen.add(giver)
                paths.append((*path, giver))
    return ()
