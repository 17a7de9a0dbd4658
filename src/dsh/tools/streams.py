"""Standard input, output and error stay open, whatever a tool does to them.

What comes in: which of the three were open before a body ran. What goes out: those that it closed
are /dev/null, so that no file or socket that is opened next gets such a number, and with it what
somebody prints. Where a program keeps its own outputs is its own affair; nothing is written here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["open_streams", "reopened"]

NAMES = ("standard input", "standard output", "standard error")


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def open_streams() -> tuple[int, ...]:
    """Which of the three descriptors are open. About a microsecond."""
    return tuple(fd for fd in range(len(NAMES)) if _is_open(fd))


def reopened(before: Iterable[int]) -> str | None:
    """Put /dev/null where one of `before` was closed; which ones, in words, None if none was."""
    closed = [fd for fd in before if not _is_open(fd)]
    for fd in closed:
        null = os.open(os.devnull, os.O_RDWR)
        if null != fd:
            os.dup2(null, fd)
            os.close(null)
    return " and ".join(NAMES[fd] for fd in closed) or None
