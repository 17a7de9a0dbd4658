"""The terminal's settings, as they were: taken at the start, put back on every way out.

What comes in: a descriptor. What goes out: the same terminal, whatever happened in between: line
mode and echo as before, paste mode off, cursor visible, no attributes. Off a terminal it does
nothing.
"""

from __future__ import annotations

import os
import termios
from contextlib import suppress
from typing import Final, final

__all__ = ["TerminalState"]

#: Paste mode off, cursor visible, attributes plain.
PLAIN: Final = b"\x1b[?2004l\x1b[?25h\x1b[0m"


@final
class TerminalState:
    """Taken when made. `escapes`: whether the terminal was sent any."""

    def __init__(self, fd: int, *, escapes: bool, colored: bool) -> None:
        self._fd: Final = fd
        self._plain: Final = PLAIN if colored else PLAIN.removesuffix(b"\x1b[0m")
        self._escapes: Final = escapes
        self._saved: Final = termios.tcgetattr(fd) if os.isatty(fd) else None

    def restore(self) -> None:
        """Put it back. May be called again; never raises."""
        if self._saved is None:
            return
        with suppress(termios.error, OSError):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)
            if self._escapes:
                os.write(self._fd, self._plain)
