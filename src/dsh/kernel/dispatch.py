"""Dispatch: one function for each kind of event, with exact guards.

What comes in: an event, a payload, and the chain of its listeners. What goes out: the answer, the
answers, or nothing; failures as the event's own policy says. A dispatch adds no checkpoint and no
nursery (`parallel` excepted), and allocates nothing when nobody listens.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeVar, cast, final

import trio
from typing_extensions import override

from dsh.errors import BadAnswer
from dsh.kernel.answers import check_answer
from dsh.kernel.faults import in_a_line
from dsh.kernel.places import uncontained
from dsh.kernel.stack import Frame, pop, push

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable

    from dsh.hooks import AnyDurable, Emit, Logged, Serial
    from dsh.kernel.listeners import Entry

__all__ = [
    "contain",
    "run_emit",
    "run_parallel",
    "run_publish",
    "run_serial",
]

F = TypeVar("F")
P = TypeVar("P")
R = TypeVar("R")
Chain = tuple["Entry", ...]


@final
class _Calls(Frame):
    """The entries that run right now in one serial or parallel dispatch."""

    __slots__ = ("running",)

    def __init__(self) -> None:
        self.running: list[Entry] = []

    @override
    def holds(self) -> Iterable[object]:
        return self.running


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
            except BaseException as error:  # noqa: BLE001 - the policy decides
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
            except BaseException as error:  # noqa: BLE001 - the policy decides
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
        entry.runs += 1
        try:
            result = entry.fn(argument)
            if result is not None:
                _refuse_coroutine(entry, result)
        except BaseException as error:  # noqa: BLE001 - observers cannot change what was committed
            failure, onward = uncontained(error)
            if failure is not None:
                contain(entry, failure)
            if onward is not None:
                raise onward from None


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
    if result is not None:
        _refuse_coroutine(entry, result)


def _refuse_coroutine(entry: Entry, result: object) -> None:
    if inspect.iscoroutine(result):
        result.close()
        raise BadAnswer(
            f"plugin {entry.plugin!r} returned a coroutine from its listener of "
            f"{entry.event.name!r} ({entry.place}), which is not awaited; use ctx.observe"
        )


def contain(entry: Entry, error: Exception) -> None:
    """Log a listener's failure under its plugin's name."""
    _log(entry).warning(
        "plugin %r failed in its listener of %r (%s): %s",
        entry.plugin, entry.event.name, entry.place, in_a_line(error), exc_info=error,
    )  # fmt: skip


def _failed(entry: Entry, error: BaseException, failures: list[Exception]) -> None:
    failure, onward = uncontained(error)
    if failure is not None:
        match entry.event.errors:
            case "contain":
                contain(entry, failure)
            case "veto" if onward is None:
                raise failure
            case _:
                failures.append(failure)
    if onward is not None:
        raise onward from None


def _raise_all(name: str, failures: list[Exception]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} listeners of {name!r} failed", failures)


def _log(entry: Entry) -> logging.Logger:
    import logging  # noqa: PLC0415

    return logging.getLogger(f"dsh.plugin.{entry.plugin}")
