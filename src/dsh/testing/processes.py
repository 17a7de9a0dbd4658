"""Processes that tests started, or that something started for them: whether they still run.

What comes in: process ids. What goes out: whether they run. Linux only; nothing here ends a
process, and nobody is told when one ends, so waiting is asking again and again.
"""

from __future__ import annotations

from pathlib import Path

import trio

__all__ = ["alive", "all_gone"]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie, which nobody has waited for, does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # The name before the last ")" may hold anything.
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


async def all_gone(*pids: int, within: float = 10) -> bool:
    """Whether none of these processes runs any more after at most `within` seconds."""
    with trio.move_on_after(within):
        while any(alive(pid) for pid in pids):  # noqa: ASYNC110 - nothing tells of a stranger's end
            await trio.sleep(0.01)
        return True
    return False
