"""The wait before another attempt, in words: what failed, which try comes, when, who decided.

What comes in: `llm/retry` events of one session, in order. What goes out: one line for each. The
server's words are said once; an attempt that fails in the same way says just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from dsh.cli.screen.cards import seconds
from dsh.cli.screen.inert import one_line
from dsh.hooks import frozen

if TYPE_CHECKING:
    from dsh import catalog as ev

__all__ = ["Retries", "Waiting"]


@frozen(slots=True)
class Waiting:
    """A wait that goes on. `until`: epoch milliseconds; `why`: the server's words, inert."""

    words: str
    until: int
    why: str


@final
class Retries:
    """What was said so far."""

    def __init__(self) -> None:
        self._said: tuple[int, int, str] | None = None

    def line(self, retry: ev.llm.Retry, *, hint: str = "") -> str:
        """The line of one wait; `hint`: what a person can do, said with the words."""
        why = one_line(retry.failure.message)
        place = (retry.turn, retry.step, why)
        told, self._said = self._said == place, place
        by = f" [{one_line(retry.plugin)}]" if retry.plugin is not None else ""
        reason = "the same again" if told else f'"{why}"{hint}'
        return f"{_words(retry)} in {seconds(int(retry.delay_ms))}{by}: {reason}"

    @staticmethod
    def waiting(retry: ev.llm.Retry, time: int) -> Waiting:
        """The wait that began at `time`."""
        return Waiting(_words(retry), time + int(retry.delay_ms), one_line(retry.failure.message))


def _words(retry: ev.llm.Retry) -> str:
    failure = retry.failure
    status = f" ({failure.status})" if failure.status is not None else ""
    tries = f"try {retry.retry + 1}"
    if retry.max_retries is not None:
        tries += f" of {retry.max_retries + 1}"
    return f"{one_line(failure.code)}{status}, {tries}"
