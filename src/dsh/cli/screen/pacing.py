"""When what a running tool shows is worth another line of a transcript that only grows.

What comes in: a call's last line of output, many times a second, and the clock. What goes out:
whether to print it: at once the first time, then after one second, two, four, at most every thirty,
and never the same line twice. A long build says that it lives without filling the screen.
"""

from __future__ import annotations

from typing import Final, final

__all__ = ["Pacing"]

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 30.0


@final
class Pacing:
    """One of these per session that is watched."""

    def __init__(self) -> None:
        #: By call: the last line printed, when the next one may be, and the wait after that.
        self._calls: Final[dict[str, tuple[str, float, float]]] = {}

    def is_due(self, call_id: str, line: str, now: float) -> bool:
        """Whether to print this line at `now`, seconds of a steady clock. True: it was printed."""
        last, due, wait = self._calls.get(call_id, ("", now, FIRST_WAIT))
        if line == last or now < due:
            return False
        self._calls[call_id] = (line, now + wait, min(2 * wait, LONGEST_WAIT))
        return True

    def forget(self, call_id: str) -> None:
        """The call has ended."""
        self._calls.pop(call_id, None)
