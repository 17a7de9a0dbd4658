"""News: what a live change came to, in one sentence that a person can act on.

What comes in: errors and the outcome of a reload or of an edited composition. What goes out: a
`News`, for a console to show or a log to keep. It decides nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dsh.hooks import frozen
from dsh.kernel import in_a_line

if TYPE_CHECKING:
    from dsh.kernel import Fiber

__all__ = ["News", "NewsKind", "log_news", "why_not_active"]

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
