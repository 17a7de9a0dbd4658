"""Failures of one tool call as data: what the model reads, and what the log keeps of them.

What comes in: any exception, however hostile, or a plain reason. What goes out: `ToolFailed` values
whose text is bounded, well-formed Unicode. Nothing here raises for what it is given, and nothing
here decides whether a call failed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

import trio

from dsh.catalog import records
from dsh.errors import HarnessError
from dsh.hooks import frozen
from dsh.hooks.live import ToolFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ABORTED",
    "ABORTED_BEFORE_DISPATCH",
    "INVALID_ARGS",
    "INVALID_TOOL_OUTPUT",
    "UNKNOWN_TOOL",
    "Described",
    "aborted",
    "describe",
    "failed",
    "failed_by",
    "own_failure",
    "wellformed",
]

UNKNOWN_TOOL: Final = "UNKNOWN_TOOL"
INVALID_ARGS: Final = "INVALID_ARGS"
INVALID_TOOL_OUTPUT: Final = "INVALID_TOOL_OUTPUT"
ABORTED: Final = "ABORTED"
ABORTED_BEFORE_DISPATCH: Final = "ABORTED_BEFORE_DISPATCH"

MESSAGE_MAX: Final = 8_000
LEAVES_MAX: Final = 10


@frozen(kw_only=True, slots=True)
class Described:
    """An exception in words. `info` is there only for errors of dsh's own tree."""

    message: str
    info: records.ToolErrorInfo | None


def wellformed(text: str) -> str:
    r"""`text` as exact `str` without lone surrogates: they are shown as `\udcXX`."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def own_failure(error: BaseException) -> BaseException | None:
    """The part of `error` that is not trio's cancellation; None if it is nothing else.

    Two cancelled children of a nursery raise a group, not `Cancelled`; that is still only a
    cancellation. KeyboardInterrupt is nobody's failure and is raised again.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if group.subgroup(KeyboardInterrupt) is not None:
            raise group
        return group.split(trio.Cancelled)[1]
    if isinstance(error, KeyboardInterrupt):
        raise error
    return None if isinstance(error, trio.Cancelled) else error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _text(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        text = wellformed(str(error))
    except Exception:  # noqa: BLE001 - a hostile __str__ must not become a failure of its own
        return f"{kind} (its text could not be read)"
    if isinstance(error, KeyError) or not text.strip():
        text = f"{kind}: {text}" if text.strip() else kind
    if len(text) > MESSAGE_MAX:
        text = f"{text[:MESSAGE_MAX]}… ({len(text) - MESSAGE_MAX} characters more)"
    return text


def _info(error: BaseException) -> records.ToolErrorInfo | None:
    if not isinstance(error, HarnessError):
        return None
    # A subclass written elsewhere may have skipped __init__, overwritten the field, or raise there.
    code: object = None
    with suppress(Exception):
        code = getattr(error, "code", None)
    return records.ToolErrorInfo(
        name=type(error).__name__, code=wellformed(code) if isinstance(code, str) else "INTERNAL"
    )


def describe(error: BaseException) -> Described:
    """Say what happened. One-element groups are unwrapped; larger ones list their members.

    Never raises, whatever the exception does when it is asked for its text.
    """
    leaves = list(_leaves(error))
    if len(leaves) == 1:
        return Described(message=_text(leaves[0]), info=_info(leaves[0]))
    shown = "; ".join(_text(leaf) for leaf in leaves[:LEAVES_MAX])
    rest = len(leaves) - LEAVES_MAX
    tail = f"; and {rest} more" if rest > 0 else ""
    info = next((found for leaf in leaves if (found := _info(leaf)) is not None), None)
    return Described(message=f"{len(leaves)} failures: {shown}{tail}", info=info)


def failed(
    message: str,
    *,
    code: str | None = None,
    name: str = "ToolError",
    contexts: Sequence[records.UserMessage] = (),
) -> ToolFailed:
    """A failure in our own words. The model reads `Error: <message>`."""
    text = wellformed(message)
    return ToolFailed(
        message=text,
        content=(records.TextBlock(text=f"Error: {text}"),),
        info=records.ToolErrorInfo(name=name, code=code) if code is not None else None,
        contexts=tuple(contexts),
    )


def failed_by(
    error: BaseException, *, contexts: Sequence[records.UserMessage] = (), prefix: str = ""
) -> ToolFailed:
    """A failure that an exception reports; `code` of dsh's own errors is kept."""
    told = describe(error)
    message = f"{prefix}{told.message}"
    return ToolFailed(
        message=message,
        content=(records.TextBlock(text=f"Error: {message}"),),
        info=told.info,
        contexts=tuple(contexts),
    )


def aborted(*, started: bool, contexts: Sequence[records.UserMessage] = ()) -> ToolFailed:
    """The result of a cancelled call. `started`: its body had been entered."""
    if started:
        text = "tool call aborted; what it had already done stays done"
        return failed(text, code=ABORTED, name="AbortError", contexts=contexts)
    text = "tool call aborted before dispatch"
    return failed(text, code=ABORTED_BEFORE_DISPATCH, name="AbortError", contexts=contexts)
