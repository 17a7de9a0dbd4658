"""News: what a live change came to, in one sentence that a person can act on.

What comes in: errors and the outcome of a reload or of an edited composition. What goes out: a
`News`, for a console to show or a log to keep. It decides nothing.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import frozen

from dsh.boot.discovery import ROOMS_FOLDER

if TYPE_CHECKING:
    from dsh.kernel import Fiber

__all__ = ["News", "NewsKind", "in_a_line", "log_news", "why_not_active"]

#: reloaded, changed: done. kept: refused, and what ran before runs on. restart: takes effect when
#: dsh is started again. agents: a loop restarts, and its agents with it.
NewsKind: TypeAlias = Literal["reloaded", "changed", "kept", "restart", "agents"]

_log: Final = logging.getLogger("dsh.boot")


@frozen(slots=True)
class News:
    """One outcome. `text` is a sentence, or a sentence and one line for each mistake."""

    kind: NewsKind
    text: str


def log_news(news: News) -> None:
    """Write it to the log: refusals and restarts as warnings, the rest as information."""
    quiet = news.kind in ("reloaded", "changed")
    _log.log(logging.INFO if quiet else logging.WARNING, "%s", news.text)


def in_a_line(error: BaseException) -> str:
    """`file:line: Class: message`, with the innermost line that is not of dsh or Python itself."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    where = ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _foreign(f.filename)]
    if frames:
        where = f"{frames[-1].filename}:{frames[-1].lineno}: "
    return f"{where}{type(error).__name__}: {error}"


def why_not_active(fiber: Fiber) -> str | None:
    """Why a fiber that has settled does not run; None: it does."""
    if fiber.error is not None:
        return in_a_line(fiber.error)
    missing = ", ".join(need.key.name for need in fiber.missing())
    if missing:
        return f"it waits for the service {missing}, which nobody provides"
    if fiber.busy:
        return f"its apply has not returned ({fiber.spec.place})"
    return None


def _foreign(filename: str) -> bool:
    return not (
        filename.startswith(("<", ROOMS_FOLDER))
        or "/importlib/" in filename
        or "/site-packages/trio/" in filename
    )
