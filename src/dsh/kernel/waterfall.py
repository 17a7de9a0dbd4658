"""Waterfalls: an onion of async listeners around a default, with exact guards.

What comes in: an event, a payload, the chain of its listeners, the default. What goes out: the
outermost answer, checked, and whose it is. `call_next` means the rest of the chain, for each
listener its own. A dispatch adds no checkpoint, and nothing at all when nobody listens.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

from typing_extensions import override

from dsh.errors import WaterfallMisuse
from dsh.kernel.answers import Answered, check_answer
from dsh.kernel.stack import Frame, pop, push

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from dsh.hooks import Hook, Waterfall
    from dsh.kernel.listeners import Entry

__all__ = ["run_waterfall", "run_waterfall_by"]

F = TypeVar("F")
P = TypeVar("P")
R = TypeVar("R")
Chain = tuple["Entry", ...]

_UNSET: Final = object()


class Answering(Protocol):
    """A waterfall's token, whatever it carries."""

    @property
    def answers(self) -> tuple[type, ...]:
        """The classes a listener may return; empty: any."""
        ...

    @property
    def rerun(self) -> bool:
        """Whether `call_next()` may be called again."""
        ...


class Asker(Protocol):
    """A context, as far as a waterfall needs it."""

    def chain_of(self, event: Hook[F], payload: object) -> Chain:
        """Who hears this payload."""
        ...


@final
class _Run(Frame):
    """One waterfall dispatch. `value` and `by` tell whose answer is on its way out."""

    __slots__ = ("by", "chain", "default", "event", "payload", "top", "value")

    event: Answering
    chain: Chain
    payload: object
    default: Callable[[], Awaitable[object]]
    value: object
    by: Entry | None
    top: _Link | None

    @override
    def holds(self) -> Iterable[object]:
        link = self.top
        while link is not None:
            yield link.entry
            link = link.outer

    @property
    def plugin(self) -> str | None:
        """Whose answer it is; None: the default's."""
        return None if self.by is None else self.by.plugin

    def decided(self, entry: Entry, answer: object) -> None:
        """A listener decided itself: check what it gave, and remember whose it is."""
        answers = self.event.answers
        if answers and answer.__class__ not in answers:
            check_answer(entry, answer, answers)
        self.value = answer
        self.by = entry


# How far a listener is with its `call_next`. Numbers, not words: they are compared at each step.
_OPEN: Final = 0
_RUNNING: Final = 1
_RETURNED: Final = 2
_CLOSED: Final = 3

_MISUSE: Final = {
    _RUNNING: ("while an earlier call_next() was still running", "await it first"),
    _RETURNED: ("twice", "call it at most once and keep its answer"),
    _CLOSED: ("after its listener returned", "await it before returning"),
}


@final
class _Link:
    """One started listener. Its `call_next` is the rest of the chain, legal while it runs."""

    __slots__ = ("entry", "index", "outer", "run", "state")

    run: _Run
    index: int
    entry: Entry
    outer: _Link | None
    state: int

    async def call_next(self) -> object:
        """The rest: the next listener that is still there, or the default."""
        if self.state != _OPEN and not (self.state == _RETURNED and self.run.event.rerun):
            raise self.misuse()
        self.state = _RUNNING
        run = self.run
        chain = run.chain
        index = self.index
        try:
            while index < len(chain) and not chain[index].active:
                index += 1
            if index == len(chain):
                answer = run.value = await run.default()
                run.by = None
                return answer
            # From here on as in `_dispatch`.
            entry = chain[index]
            link = _Link()
            link.run = run
            link.index = index + 1
            link.entry = entry
            link.outer = run.top
            link.state = _OPEN
            run.top = link
            entry.runs += 1
            entry.running += 1
            try:
                answer = await entry.ask(run.payload, link.call_next)
            except BaseException:
                run.value = _UNSET
                raise
            finally:
                link.state = _CLOSED
                run.top = link.outer
                entry.running -= 1
                if entry.idle is not None:
                    entry.went_idle()
            if answer is not run.value:
                run.decided(entry, answer)
            return answer
        finally:
            if self.state == _RUNNING:
                self.state = _RETURNED

    def misuse(self) -> WaterfallMisuse:
        """The error that names who called wrongly, and where."""
        entry = self.entry
        what, remedy = _MISUSE[self.state]
        error = WaterfallMisuse(
            f"plugin {entry.plugin!r} called call_next() {what} in its listener of "
            f"{entry.event.name!r} ({entry.place}); {remedy}"
        )
        if self.state == _CLOSED:
            _warn(entry, error)  # Whoever called so late is seldom awaited.
        return error


# The first listener is run here, not by a `call_next`, and both make the link where they need it.
# That repeats twenty lines; without it each dispatch has a coroutine more and each listener two
# calls, and a dispatch with one listener costs an eighth more.
async def _dispatch(
    event: Answering,
    chain: Chain,
    payload: object,
    default: Callable[[], Awaitable[object]],
    answered: type[Answered[object]] | None = None,
) -> object:
    """Run the chain from its beginning, as one level of the task's stack."""
    run = _Run()
    run.event = event
    run.chain = chain
    run.payload = payload
    run.default = default
    run.value = _UNSET
    run.by = None
    run.top = None
    push(run)
    try:
        index = 0
        while index < len(chain) and not chain[index].active:
            index += 1
        if index == len(chain):
            answer = await default()
        else:
            entry = chain[index]
            link = _Link()
            link.run = run
            link.index = index + 1
            link.entry = entry
            link.outer = None
            link.state = _OPEN
            run.top = link
            entry.runs += 1
            entry.running += 1
            try:
                answer = await entry.ask(payload, link.call_next)
            finally:
                link.state = _CLOSED
                run.top = None
                entry.running -= 1
                if entry.idle is not None:
                    entry.went_idle()
            if answer is not run.value:
                run.decided(entry, answer)
    finally:
        pop(run)
    if answered is not None:
        return answered(answer, run.plugin)
    return answer


def run_waterfall(
    asked: tuple[Asker, Waterfall[P, R]], payload: P, default: Callable[[], Awaitable[R]]
) -> Coroutine[object, None, R]:
    """Ask the chain as it is now; nobody in it: the default, and nothing around it.

    Exceptions pass through the outer listeners as they do through calls.
    """
    ctx, event = asked
    chain = ctx.chain_of(event, payload)
    # Every answer on its way out was checked, or came from the default. No cast(): it costs as
    # much as a third of a listener.
    if not chain:
        return default()  # type: ignore[return-value]
    return _dispatch(event, chain, payload, default)  # type: ignore[return-value]


def run_waterfall_by(
    asked: tuple[Asker, Waterfall[P, R]], payload: P, default: Callable[[], Awaitable[R]]
) -> Coroutine[object, None, Answered[R]]:
    """`run_waterfall` that tells whose answer it is."""
    ctx, event = asked
    chain = ctx.chain_of(event, payload)
    if not chain:
        return _default_answered(default)
    return _dispatch(event, chain, payload, default, Answered)  # type: ignore[return-value]


async def _default_answered(default: Callable[[], Awaitable[R]]) -> Answered[R]:
    return Answered(await default(), None)


def _warn(entry: Entry, error: WaterfallMisuse) -> None:
    logging.getLogger(f"dsh.plugin.{entry.plugin}").warning("%s", error)
