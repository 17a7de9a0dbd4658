"""How a trajectory puts things into words: functions that its user brings along.

What comes in: calls, results, reasons. What goes out: short texts. The command line has such
functions for its own output; taking them from there keeps one wording everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh import catalog as ev
    from dsh.catalog.records import TurnEndReason

__all__ = ["Outcome", "Words"]


class Outcome(Protocol):
    """How a tool call ended, for a line."""

    @property
    def summary(self) -> str:
        """`exit 1`, `12 lines`, `denied by permissions`."""
        ...

    @property
    def denied_by(self) -> str | None:
        """Who refused it, if it was refused."""
        ...

    @property
    def failed(self) -> bool:
        """Whether it failed, as the model reads it."""
        ...


@frozen(kw_only=True, slots=True)
class Words:
    """The wording. All texts come back inert and on one line."""

    subject: Callable[[ev.tool.Call], str]
    outcome: Callable[[ev.tool.Result], Outcome]
    ending: Callable[[TurnEndReason], str]
    line: Callable[[str], str]
    seconds: Callable[[int], str]
