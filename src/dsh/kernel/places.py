"""Where a listener was written, what it accepts, and what went wrong: the facts of every message.

What comes in: callables and caught exceptions. What goes out: `file:line` texts, refusals of
callables whose shape an event cannot use, and the part of an exception that may be contained.
Nothing here registers or calls a listener.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, cast

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable

__all__ = [
    "AsyncCall",
    "Call",
    "caller_place",
    "contained",
    "did_you_mean",
    "is_async",
    "is_bare_async_generator",
    "place_of",
    "takes",
    "uncontained",
]


class AsyncCall(Protocol):
    """A listener that is awaited."""

    def __call__(self, *args: object) -> Awaitable[object]:
        """Call it."""
        ...


class Call(Protocol):
    """Any listener, after its shape was checked: what it takes is its event's business."""

    def __call__(self, *args: object) -> object:
        """Call it."""
        ...


def _innermost(fn: object) -> object:
    """The function under partials, bound methods and `functools.wraps`."""
    while True:
        wrapped: object = getattr(fn, "__wrapped__", None)
        inner = _unpartial(fn)
        if inner is not fn:
            fn = inner
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif wrapped is not None:
            fn = wrapped
        elif not inspect.isroutine(fn) and not isinstance(fn, type):
            fn = _call_of(fn)
        else:
            return fn


def _call_of(instance: object) -> object:
    """The `__call__` that the class of a callable instance defines."""
    return getattr(type(instance), "__call__", None)  # noqa: B004 - wanted: the function itself


def place_of(fn: object) -> str | None:
    """`file:line` of the function's definition, or None for something written in C."""
    code = getattr(_innermost(fn), "__code__", None)
    if not inspect.iscode(code):
        return None
    return f"{code.co_filename}:{code.co_firstlineno}"


def caller_place(depth: int = 1) -> str:
    """`file:line` of the code that called the caller (1), or of its callers further out."""
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        if frame is None:
            break
        frame = frame.f_back
    return "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _unpartial(fn: object) -> object:
    while isinstance(fn, functools.partial):
        fn = cast("object", fn.func)
    return fn


def is_async(fn: object) -> bool:
    """True when calling `fn` certainly gives a coroutine or an async generator."""
    inner = _unpartial(fn)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = _call_of(inner)
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def is_bare_async_generator(fn: object) -> bool:
    """True for an `async def` with `yield` that lacks `@asynccontextmanager`."""
    return inspect.isasyncgenfunction(_unpartial(fn))


def takes(fn: object, count: int) -> str | None:
    """None when `fn` can be called with `count` positional arguments, else its own signature."""
    if not callable(fn):
        return f"{type(fn).__name__}, not a function"
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None  # Something written in C without a signature: the call itself will tell.
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return str(signature)
    return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no known name is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def uncontained(error: BaseException) -> tuple[Exception | None, BaseException | None]:
    """Split an exception into what may be contained, and what must go on (cancellation, Ctrl-C).

    A group that holds both is divided; its parts keep their traceback. SystemExit is contained: a
    plugin that calls `sys.exit` fails alone.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        onward, rest = group.split((trio.Cancelled, KeyboardInterrupt, GeneratorExit))
        return (None if rest is None else _as_exception(rest)), onward
    if isinstance(error, trio.Cancelled | KeyboardInterrupt | GeneratorExit):
        return None, error
    return _as_exception(error), None


@contextmanager
def contained(report: Callable[[Exception], None]) -> Generator[None]:
    """Report what the block raises, as far as it may be contained; the rest goes on."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - divided below
        failure, onward = uncontained(error)
        if failure is not None:
            report(failure)
        if onward is not None:
            raise onward from None


def _as_exception(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
