"""Which stored session a person means: an id, the beginning of one, `last`, or part of its title.

What comes in: what was typed, the workspace, and the store. What goes out: one summary, or a
UsageError that names the nearest. Logs are read for their titles only where no id begins so.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from dsh.cli.screen.inert import clipped
from dsh.cli.sessions.summaries import Told, told_of_newest
from dsh.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dsh.seams.persistence import SessionPersistence, SessionSummary

__all__ = ["LAST", "chosen", "is_here"]

LAST: Final = "last"
NEAREST: Final = 3
TITLE_CELLS: Final = 32


async def chosen(
    store: SessionPersistence, typed: str, cwd: Path, *, by_title: bool = True
) -> SessionSummary:
    """The session that `typed` means. Raises UsageError; cancellable.

    `by_title`: words of its title will do, if no other's has them. Not for what cannot be undone.
    """
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
    titled = await _titled(store, stored, typed) if typed and by_title else []
    if len(titled) == 1:
        return titled[0][0]
    if titled:
        named = ", ".join(
            f"{one.id} ({clipped(title, TITLE_CELLS)})" for one, title in titled[:NEAREST]
        )
        raise UsageError(f"{len(titled)} sessions are titled with {typed!r}; type an id: {named}")
    raise UsageError(f"no session {typed!r} is stored{_nearest(typed, stored)}")


async def _titled(
    store: SessionPersistence, stored: Sequence[SessionSummary], typed: str
) -> list[tuple[SessionSummary, str]]:
    """The sessions with this title, else those whose titles contain it, and their titles."""
    told = await told_of_newest(store, stored)
    titles = [(one, known.title) for one in stored if isinstance(known := told.get(one.id), Told)]
    wanted = typed.casefold()
    whole = [(one, title) for one, title in titles if title.casefold() == wanted]
    return whole or [(one, title) for one, title in titles if wanted in title.casefold()]


def is_here(summary: SessionSummary, cwd: Path) -> bool:
    """Whether the session's recorded workspace is `cwd`."""
    header = summary.header
    return header is not None and header.cwd == str(cwd)


def _nearest(typed: str, stored: Sequence[SessionSummary]) -> str:
    ids = [one.id for one in stored]
    near = get_close_matches(typed, ids, n=NEAREST, cutoff=0.5) or ids[:NEAREST]
    return f"; the nearest: {', '.join(near)}" if near else "; none is stored yet"
