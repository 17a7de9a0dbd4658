"""Failures in the words of a person: any exception to one paragraph and an exit code.

What comes in: whatever a command raised, groups included, and records of contained failures. What
goes out: text for standard error. A traceback is shown with `--debug`, or when dsh itself is at
fault; never for a mistake of a person or a plugin.
"""

from __future__ import annotations

import errno
import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import trio
from typing_extensions import override

from dsh.cli.screen.inert import inert
from dsh.errors import HarnessError, SessionBusy, SessionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "EXIT_CANCELLED",
    "EXIT_FAILED",
    "EXIT_USAGE",
    "ContainedFailures",
    "explained",
    "loop_is_lost",
]

#: Where the event loop's own code is.
LOOP: Final = Path(trio.__file__).parent

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_CANCELLED: Final = 130


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The single exceptions inside groups, however deep."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for inner in group.exceptions:
            yield from leaves(inner)
    else:
        yield error


def explained(error: BaseException, *, debug: bool, before_session: bool) -> tuple[str, int]:
    """The paragraph for standard error (it ends with a newline) and the exit code.

    `before_session`: nothing was started yet, so a refusal is a usage error.
    """
    singles = list(leaves(error))
    paragraphs = list(dict.fromkeys(_sentence(single) for single in singles))
    text = "".join(f"dsh: {inert(paragraph)}\n" for paragraph in paragraphs)
    if debug:
        text += inert("".join(traceback.format_exception(error)))
    return text, max(_code(single, before_session=before_session) for single in singles)


def loop_is_lost(error: BaseException) -> bool:
    """Whether the event loop itself can do nothing any more, as its descriptors were closed.

    It never ends then, nor does what it ran; all that is left is to end the process.
    """
    if not isinstance(error, OSError) or error.errno != errno.EBADF:
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).is_relative_to(LOOP)


def _sentence(error: BaseException) -> str:
    if isinstance(error, HarnessError):
        return str(error)
    if loop_is_lost(error):
        return (
            "the event loop lost its descriptors: a tool or a plugin closed what it had not "
            "opened. What was acknowledged is in the session's log; resume it to go on"
        )
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    place = ""
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        place = f" at {frames[-1].filename}:{frames[-1].lineno}"
    return (
        f"an unexpected {type(error).__name__}{place}: {error}. "
        "Run again with --debug for the details; what was acknowledged is in the session's log"
    )


def _code(error: BaseException, *, before_session: bool) -> int:
    if isinstance(error, KeyboardInterrupt):
        return EXIT_CANCELLED
    if isinstance(error, (UsageError, SessionBusy)):
        return EXIT_USAGE
    if before_session and isinstance(error, (SessionError, HarnessError)):
        return EXIT_USAGE
    return EXIT_FAILED


class ContainedFailures(logging.Handler):
    """Shows what was contained (loggers `dsh…`) as one line each, through `say`."""

    def __init__(self, say: Callable[[str], None], *, debug: bool) -> None:
        super().__init__(logging.DEBUG if debug else logging.WARNING)
        self._say: Final = say
        self._debug: Final = debug

    @override
    def emit(self, record: logging.LogRecord) -> None:
        name = record.name.removeprefix("dsh.plugin.")
        origin = f"plugin {name}" if name != record.name else record.name
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not self._debug:
            singles = (str(one) for one in leaves(error))
            missing = [single for single in dict.fromkeys(singles) if single not in text]
            text = ": ".join((text, *missing))
        self._say(f"{record.levelname.lower()}: {origin}: {inert(text)}\n")
        if error is not None and self._debug:
            self._say(inert("".join(traceback.format_exception(error))))
