"""The two outputs of a command and how they are used: who is a terminal, colours, widths.

What comes in: the process's descriptors, the `--color` choice, the environment. What goes out: a
`Screen` that the views write to. Terminals are recognised once, at the start; how wide they are is
asked each time, because a person may change it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from dsh.cli.screen.outlet import Outlet

if TYPE_CHECKING:
    from dsh.cli.grammar.shared import Color
    from dsh.seams.environ import Environ

__all__ = ["Screen", "Style", "open_screen"]

Style: TypeAlias = Literal["plain", "bold", "red", "green", "yellow", "cyan"]

SGR: Final[dict[Style, str]] = {
    "bold": "1",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
NARROWEST: Final = 30
#: Descriptors of our own are above those that shells and scripts name.
FREE_ABOVE: Final = 10


@final
class Screen:
    """Standard output for data, standard error for everything else."""

    def __init__(
        self, out: Outlet, err: Outlet, *, colored: bool, width: int | None = None
    ) -> None:
        self.out: Final = out
        self.err: Final = err
        self.colored: Final = colored
        self._width: Final = width
        dot = err.encodable("·", "-")
        self.separator: Final = f" {dot} "
        #: Whether somebody can be asked: questions go to standard error, answers come from input.
        self.asks: Final = err.is_terminal and _is_terminal(sys.stdin)

    @property
    def width(self) -> int:
        """Columns, as of now; 80 where there is no terminal."""
        return max(_width(self.err) if self._width is None else self._width, NARROWEST)

    def styled(self, text: str, style: Style) -> str:
        """`text` in a style, where colours are wanted; the same characters otherwise."""
        if not self.colored or style == "plain":
            return text
        return f"\x1b[{SGR[style]}m{text}\x1b[0m"

    def say(self, text: str) -> None:
        """Write to standard error. A closed standard error is nobody's failure."""
        if not self.err.failed:
            self.err.attempt(text)

    async def flushed(self) -> None:
        """Return when both outputs took everything. Cancellable; raises OutletClosed."""
        await self.err.flushed()
        await self.out.flushed()

    def finish(self) -> None:
        """Outside of trio: write what still waits, for a bounded time. Never raises."""
        for outlet in (self.err, self.out):
            outlet.finish()


def open_screen(color: Color, environ: Environ) -> Screen:
    """The screen of this process. Descriptors that were closed at the start count as /dev/null.

    They are written through descriptors of our own, so that a tool that closes 1 or 2 closes
    nothing, and what is opened next under such a number gets nothing that was meant for a person.
    """
    out = Outlet(_own(1), "standard output", _encoding(sys.stdout))
    err = Outlet(_own(2), "standard error", _encoding(sys.stderr))
    colored = color == "always" or (
        color == "auto"
        and err.is_terminal
        and not environ.get("NO_COLOR")
        and (environ.get("TERM") or "dumb") != "dumb"
    )
    return Screen(out, err, colored=colored)


def _own(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE_ABOVE)


def _is_terminal(stream: object) -> bool:
    return stream is not None and os.isatty(0)


def _encoding(stream: object) -> str | None:
    found: object = getattr(stream, "encoding", None)
    return found if isinstance(found, str) else None


def _width(err: Outlet) -> int:
    if err.is_terminal:
        try:
            return os.get_terminal_size(err.fd).columns or 80
        except OSError:
            return 80
    return 80
