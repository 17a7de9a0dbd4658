"""Dispatch: one function for each kind of event, with exact guards.

What comes in: an event, a payload, and the chain of its listeners. What goes out: the answer, the
answers, or nothing; failures as the event's own policy says. A dispatch adds no checkpoint and no
nursery (`parallel` excepted), and allocates nothing when nobody listens.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, final

import trio
from typing_extensions import override

from dsh.errors import BadAnswer, WaterfallMisuse
from dsh.kernel.answers import Answered, check_answer
from dsh.kernel.places import uncontained
from dsh.kernel.stack import Frame, pop, push

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from dsh.hooks import AnyDurable, Emit, Hook, Logged, Serial, Waterfall
    from dsh.kernel.listeners import Entry

__all__ = [
    "contain",
    "run_emit",
    "run_parallel",
    "run_publish",
    "run_serial",
    "run_waterfall",
    "run_waterfall_by",
]

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
class _Calls(Frame):
    """The entries that run right now in one serial or parallel dispatch."""

    __slots__ = ("running",)

    def __init__(self) -> None:
        self.running: list[Entry] = []

    @override
    def holds(self) -> Iterable[object]:
        return self.running


@final
class _Run(Frame):
    """One waterfall dispatch. `value` and `by` tell whose answer is on its way out."""

    __slots__ = ("by", "chain", "default", "event", "named", "payload", "top", "value")

    event: Answering
    chain: Chain
    payload: object
    default: Callable[[], Awaitable[object]]
    #: True: the dispatch gives an `Answered`.
    named: bool
    value: object
    by: Entry | None
    top: _Link | None

    @override
    def holds(self) -> Iterable[object]:
        link = self.top
        while link is not None:
            yield link.entry
            link = link.outer


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

    def call_next(self) -> Coroutine[object, None, object]:
        """The rest: the next listener that is still there, or the default."""
        if self.state != _OPEN and not (self.state == _RETURNED and self.run.event.rerun):
            raise self.misuse()
        self.state = _RUNNING
        return _step(self.run, self.index, self)

    def misuse(self) -> WaterfallMisuse:
        """The error that names who called wrongly, and where."""
        entry = self.entry
        what, remedy = _MISUSE[self.state]
        error = WaterfallMisuse(
            f"plugin {entry.plugin!r} called call_next() {what} in its listener of "
            f"{entry.event.name!r} ({entry.place}); {remedy}"
        )
        if self.state == _CLOSED:
            _log(entry).warning("%s", error)  # Whoever called so late is seldom awaited.
        return error


async def _step(run: _Run, index: int, caller: _Link | None) -> object:
    """Run the chain from `index` on, for the listener of `caller` (None: for the dispatch).

    The dispatch's own frame is the first step's: one coroutine less for each dispatch.
    """
    if caller is None:
        push(run)
    elif caller.state == _CLOSED:
        raise caller.misuse()
    chain = run.chain
    try:
        while index < len(chain) and not chain[index].active:
            index += 1
        if index == len(chain):
            answer = run.value = await run.default()
            run.by = None
        else:
            entry = chain[index]
            link = _link(run, index + 1, entry)
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
                answers = run.event.answers
                if answers and answer.__class__ not in answers:
                    check_answer(entry, answer, answers)
                run.value = answer
                run.by = entry
        if caller is None and run.named:
            return Answered(answer, None if run.by is None else run.by.plugin)
        return answer
    finally:
        if caller is None:
            pop(run)
        elif caller.state == _RUNNING:
            caller.state = _RETURNED


def _link(run: _Run, index: int, entry: Entry) -> _Link:
    # No __init__: this is made for every listener of every dispatch.
    link = _Link()
    link.run = run
    link.index = index
    link.entry = entry
    link.outer = run.top
    link.state = _OPEN
    run.top = link
    entry.runs += 1
    entry.running += 1
    return link


def _run_of(
    event: Answering,
    chain: Chain,
    payload: object,
    default: Callable[[], Awaitable[object]],
    *,
    named: bool,
) -> _Run:
    run = _Run()
    run.event = event
    run.chain = chain
    run.payload = payload
    run.default = default
    run.named = named
    run.value = _UNSET
    run.by = None
    run.top = None
    return run


def run_waterfall(
    ctx: Asker, event: Waterfall[P, R], payload: P, default: Callable[[], Awaitable[R]]
) -> Coroutine[object, None, R]:
    """Ask the chain as it is now; nobody in it: the default, and nothing around it.

    Exceptions pass through the outer listeners as they do through calls.
    """
    chain = ctx.chain_of(event, payload)
    # Every answer on its way out was checked, or came from the default. No cast(): it costs as
    # much as a third of a listener.
    if not chain:
        return default()  # type: ignore[return-value]
    return _step(_run_of(event, chain, payload, default, named=False), 0, None)  # type: ignore[return-value]


def run_waterfall_by(
    ctx: Asker, event: Waterfall[P, R], payload: P, default: Callable[[], Awaitable[R]]
) -> Coroutine[object, None, Answered[R]]:
    """`run_waterfall` that tells whose answer it is."""
    chain = ctx.chain_of(event, payload)
    if not chain:
        return _default_answered(default)
    return _step(_run_of(event, chain, payload, default, named=True), 0, None)  # type: ignore[return-value]


async def _default_answered(default: Callable[[], Awaitable[R]]) -> Answered[R]:
    return Answered(await default(), None)


async def run_serial(event: Serial[P, R], chain: Chain, payload: P) -> tuple[R, ...]:
    """Call every listener, one after the other; the answers that are not None, in order.

    contain: failures are logged. veto: the first one is raised at once. propagate: all listeners
    run, then one failure is raised as it is, several as a group.
    """
    answers: list[R] = []
    failures: list[Exception] = []
    frame = _Calls()
    push(frame)
    try:
        for entry in chain:
            if not entry.active:
                continue
            try:
                answer = cast("R | None", await _call(entry, frame, payload))
                if answer is not None:
                    if event.answers:
                        check_answer(entry, answer, event.answers)
                    answers.append(answer)
            except Exception as error:  # noqa: BLE001 - the policy decides
                _failed(entry, error, failures)
    finally:
        pop(frame)
    _raise_all(event.name, failures)
    return tuple(answers)


async def run_parallel(name: str, chain: Chain, payload: object) -> None:
    """Run all listeners together, each to its own end; raise the failures as one ExceptionGroup."""
    failures: list[Exception] = []
    frame = _Calls()

    async def one(entry: Entry) -> None:
        try:
            await _call(entry, frame, payload)
        except BaseException as error:  # noqa: BLE001 - divided below
            failure, onward = uncontained(error)
            if failure is not None:
                failures.append(failure)
            if onward is not None:
                raise onward from None

    push(frame)
    try:
        live = [entry for entry in chain if entry.active]
        if len(live) == 1:
            await one(live[0])
        else:
            async with trio.open_nursery() as nursery:
                for entry in live:
                    nursery.start_soon(one, entry)
    finally:
        pop(frame)
    if failures:
        raise ExceptionGroup(f"{len(failures)} listener(s) of {name!r} failed", failures)


def run_emit(event: Emit[P], chain: Chain, payload: object) -> None:  # type: ignore[type-var]
    """Call every listener now. What a failure means is the event's policy, as in `run_serial`."""
    failures: list[Exception] = []
    for entry in chain:
        if entry.active:
            try:
                _call_now(entry, payload)
            except Exception as error:  # noqa: BLE001 - the policy decides
                _failed(entry, error, failures)
    if failures:
        _raise_all(event.name, failures)


def run_publish(chain: Chain, event: Logged[AnyDurable], feed: str) -> None:
    """Call the listeners of one committed log event and of the whole feed. All are contained."""
    wrapped: object = None
    for entry in chain:
        if not entry.active:
            continue
        argument: object = event
        if entry.event.name == feed:
            if wrapped is None:
                wrapped = entry.event.payload(session=event.session, event=event)
            argument = wrapped
        try:
            _call_now(entry, argument)
        except Exception as error:  # noqa: BLE001 - observers cannot change what was committed
            contain(entry, error)


async def _call(entry: Entry, frame: _Calls, payload: object) -> object:
    entry.runs += 1
    entry.running += 1
    frame.running.append(entry)
    try:
        return await entry.ask(payload)
    finally:
        frame.running.remove(entry)
        entry.running -= 1
        if entry.idle is not None:
            entry.went_idle()


def _call_now(entry: Entry, payload: object) -> None:
    entry.runs += 1
    result = entry.fn(payload)
    if result is not None and inspect.iscoroutine(result):
        result.close()
        raise BadAnswer(
            f"plugin {entry.plugin!r} returned a coroutine from its listener of "
            f"{entry.event.name!r} ({entry.place}), which is not awaited; use ctx.observe"
        )


def contain(entry: Entry, error: Exception) -> None:
    """Log a listener's failure under its plugin's name."""
    _log(entry).warning(
        "plugin %r failed in its listener of %r (%s): %s",
        entry.plugin, entry.event.name, entry.place, error, exc_info=error,
    )  # fmt: skip


def _failed(entry: Entry, error: Exception, failures: list[Exception]) -> None:
    match entry.event.errors:
        case "contain":
            contain(entry, error)
        case "veto":
            raise error
        case "propagate":
            failures.append(error)


def _raise_all(name: str, failures: list[Exception]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} listeners of {name!r} failed", failures)


def _log(entry: Entry) -> logging.Logger:
    import logging  # noqa: PLC0415

    return logging.getLogger(f"dsh.plugin.{entry.plugin}")
