"""Which stored session a person means: an exact id, the beginning of one, or `last`.

What comes in: what was typed, the workspace, and the store's list. What goes out: one summary, or
a UsageError that names the nearest ids. It reads the list and nothing else.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from dsh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dsh.seams.persistence import SessionPersistence, SessionSummary

__all__ = ["LAST", "chosen", "is_here"]

LAST: Final = "last"
NEAREST: Final = 3


async def chosen(store: SessionPersistence, typed: str, cwd: Path) -> SessionSummary:
    """The session that `typed` means. Raises UsageError; cancellable."""
    stored = await store.list()
    if typed == LAST:
        here = [one for one in stored if is_here(one, cwd)]
        if not here:
            raise UsageError(
                f"no session was run in {cwd} yet{_nearest('', stored)}; "
                "see: dsh sessions list --all"
            )
        return here[0]
    for one in stored:
        if one.id == typed:
            return one
    matching = [one for one in stored if one.id.startswith(typed)] if typed else []
    if len(matching) == 1:
        return matching[0]
    if matching:
        ids = ", ".join(one.id for one in matching[:NEAREST])
        raise UsageError(f"{len(matching)} sessions begin with {typed!r}; type more of it: {ids}")
    raise UsageError(f"no session {typed!r} is stored{_nearest(typed, stored)}")


def is_here(summary: SessionSummary, cwd: Path) -> bool:
    """Whether the session's recorded workspace is `cwd`."""
    header = summary.header
    return header is not None and header.cwd == str(cwd)


def _nearest(typed: str, stored: Sequence[SessionSummary]) -> str:
    ids = [one.id for one in stored]
    near = get_close_matches(typed, ids, n=NEAREST, cutoff=0.5) or ids[:NEAREST]
    return f"; the nearest: {', '.join(near)}" if near else "; none is stored yet"
