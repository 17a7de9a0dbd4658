"""The end of a kernel: work first, then everything undone within a grace, and holders are named.

What comes in: a kernel whose block was left. What goes out: the ends of work that needs every
plugin, one after the other; then one line for each plugin that is still in the way when the grace
is over. Trio cannot end a task that shields itself; such a task is named before it is waited for,
and the program may leave on its own.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from dsh.kernel.blame import Blame
from dsh.kernel.bounded import MERCY
from dsh.kernel.places import contained
from dsh.kernel.states import FiberState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from dsh.kernel.blame import Culprit
    from dsh.kernel.effects import Owner
    from dsh.kernel.fibers import Shared

__all__ = ["GRACE", "end_work", "name_holders"]

#: Seconds in which everything has to be undone after a kernel's block was left.
GRACE: Final = 10.0
#: Seconds more after which the undoing itself, whose waits are all bounded, is what holds it up.
LATE: Final = 5.0

_log: Final = logging.getLogger("dsh.kernel")


async def end_work(shared: Shared, leaving: Collection[Owner]) -> None:
    """Let those of `leaving` who asked for it end their work, while all plugins are still there.

    The latest first, each within what the grace allows. A failure is logged, and so is whoever
    holds up an end; then it is gone on without.
    """
    with trio.CancelScope(shield=True):
        for effect, end in reversed(tuple(shared.shutdowns.items())):
            owner = effect.owner
            if owner not in leaving:
                continue
            limit = shared.limit(math.inf)
            report = partial(owner.note_teardown, effect.label)
            with contained(report), trio.move_on_after(limit) as scope:
                await end()
            if scope.cancelled_caught:
                by = "".join(f", held up by {one}" for one in _in_the_way(shared, owner))
                problem = f"not done after {limit:g} s{by}; gone on without"
                owner.note_teardown(effect.label, problem)


def _in_the_way(shared: Shared, owner: Owner) -> dict[Culprit, None]:
    """Whose code the tasks of `owner` wait in."""
    tasks = [task for task in shared.nursery.child_tasks if _belongs(task, owner.path)]
    found = map(Blame(shared).waiting, (leaf for task in tasks for leaf in _leaves(task)))
    return dict.fromkeys(culprit for culprit in found if culprit is not None)


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
        if stuck and not any(_belongs(task, fiber.path) for fiber in stuck):
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


def _belongs(task: trio.lowlevel.Task, path: str) -> bool:
    """Whether it is a fiber's driver, or one of its host tasks; both are named after it."""
    return task.name == f"fiber {path}" or task.name.startswith(f"{path}: ")


def _leaves(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    """The tasks that `task` waits for, or itself if it waits for none."""
    below = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    for child in below:
        yield from _leaves(child)
    if not below:
        yield task
