"""Who is running right now: the listeners, setups and disposers below the current line of code.

What comes in: frames, pushed by dispatches and by the tasks that unwind effects. What goes out:
an answer to one question, "would waiting for this wait for myself?", which keeps a plugin that
unloads itself from its own listener from waiting for ever. Nothing here waits or runs anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trio.lowlevel import Task, current_task
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Frame", "Held", "held", "pop", "push"]


class Frame:
    """One level of a task's stack: what cannot finish before the code above it returns."""

    __slots__ = ("depth", "outer", "task")

    #: Filled by `push`: the level below, its task, how many nurseries that task had open.
    outer: Frame | None
    task: Task
    depth: int

    def holds(self) -> Iterable[object]:
        """The entries, effects or fibers that are in the middle of running at this level."""
        raise NotImplementedError("frames say what they hold; use `Held` for fixed things")


class Held(Frame):
    """A level that holds what it was made with."""

    __slots__ = ("things",)

    def __init__(self, *things: object) -> None:
        self.things = things

    @override
    def holds(self) -> Iterable[object]:
        """What was given."""
        return self.things


# Keyed by task, not a ContextVar: a task copies its starter's context, so one that was started
# from inside a listener but lives on elsewhere would seem to run inside that listener for ever.
# The tree of nurseries tells exactly which task waits for which. It costs a third as much, too.
_TOPS: Final[dict[Task, Frame]] = {}


def push(frame: Frame) -> None:
    """Begin a level of the current task. Always undone by `pop`, in a `finally`."""
    task = current_task()
    frame.task = task
    frame.depth = len(task.child_nurseries)
    frame.outer = _TOPS.get(task)
    _TOPS[task] = frame


def pop(frame: Frame) -> None:
    """End a level; levels above it that were left open end with it."""
    if frame.outer is None:
        _TOPS.pop(frame.task, None)
    else:
        _TOPS[frame.task] = frame.outer


def held() -> Iterator[object]:
    """Everything that cannot finish before the caller returns, innermost first.

    A nursery keeps its task waiting; so what a parent task holds counts, if it held it before it
    opened the nursery in which the caller runs.
    """
    task = current_task()
    opened: int | None = None
    while True:
        frame = _TOPS.get(task)
        while frame is not None:
            if opened is None or frame.depth <= opened:
                yield from frame.holds()
            frame = frame.outer
        nursery = task.parent_nursery
        if nursery is None:
            return
        task = nursery.parent_task
        if nursery not in task.child_nurseries:
            return  # It is closing: nobody below waits any more.
        opened = task.child_nurseries.index(nursery)
