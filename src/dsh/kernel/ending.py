"""The end of a kernel: everything undone within a grace, and whoever holds it up is named.

What comes in: a kernel whose block was left. What goes out: one line for each plugin that is still
in the way when the grace is over. Trio cannot end a task that shields itself; such a task is named
before it is waited for, and the program may leave on its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from dsh.kernel.bounded import MERCY
from dsh.kernel.states import FiberState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh.kernel.blame import Blame
    from dsh.kernel.fibers import Fiber, Shared

__all__ = ["GRACE", "name_holders"]

#: Seconds in which everything has to be undone after a kernel's block was left.
GRACE: Final = 10.0
LATE: Final = 5.0

_log: Final = logging.getLogger("dsh.kernel")


async def name_holders(
    shared: Shared,
    blame: Blame,
    disposed: trio.Event,
    gone: trio.Event,
    held: Callable[[tuple[str, ...]], None] | None,
) -> None:
    """Log who holds up the end when all that could be undone is undone; tell `held` all of it.

    Nobody does when `gone` is set soon after `disposed`.
    """
    with trio.CancelScope(shield=True):
        # Each wait of the undoing is bounded; if it goes on all the same, that is a culprit, too.
        with trio.move_on_at(shared.close_by + LATE):
            await disposed.wait()
        with trio.move_on_after(MERCY):
            await gone.wait()
    if not gone.is_set():
        lines = tuple(dict.fromkeys(_holders(shared, blame)))
        for line in lines:
            _log.warning("%s", line)
        if held is not None:
            held(lines)


def _holders(shared: Shared, blame: Blame) -> Iterator[str]:
    stuck = [
        fiber
        for fiber in shared.fibers
        if fiber.parent is not None and fiber.state in (FiberState.LOADING, FiberState.UNLOADING)
    ]
    blamed = False
    for task in shared.nursery.child_tasks:
        # Without a fiber that is stuck, everything else has ended: whoever is left is in the way.
        if stuck and not any(_belongs(task, fiber) for fiber in stuck):
            continue
        for leaf in _leaves(task):
            culprit = blame.waiting(leaf)
            if culprit is not None:
                blamed = True
                yield f"the end is held up by {culprit}, which ignores cancellation ({task.name})"
    if not blamed:
        for fiber in stuck:
            effects = fiber.activation.effects
            label = f", undoing {next(reversed(effects)).label}" if effects else ""
            yield (
                f"the end is held up by plugin {fiber.path!r} "
                f"({fiber.state.value}{label}; {fiber.spec.place})"
            )


def _belongs(task: trio.lowlevel.Task, fiber: Fiber) -> bool:
    """Whether it is the fiber's driver, or one of its host tasks; both are named after it."""
    return task.name == f"fiber {fiber.path}" or task.name.startswith(f"{fiber.path}: ")


def _leaves(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    """The tasks that `task` waits for, or itself if it waits for none."""
    below = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    for child in below:
        yield from _leaves(child)
    if not below:
        yield task
