"""Parts of the window: a question that waits, a list that waits, and the output without colours.

What comes in: what the trio thread asks for, what is typed. What goes out: rows to show and the
answer. Nothing here draws or reads keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from attrs import define
from prompt_toolkit.output.vt100 import Vt100_Output
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.cli.chat.front import Marked, Picked, PickRows

__all__ = ["Asking", "Picking", "WindowOutput"]

PICK_ROWS: Final = 10
PICK_KEYS: Final = "Enter opens · Tab here/all · Ctrl-V views · Ctrl-F forks · Esc"


@define(slots=True, eq=False)
class Asking:
    """A question that waits for a line."""

    prompt: str
    since: float
    answered: trio.Event
    answer: str | None = None


@define(slots=True, eq=False)
class Picking:
    """A list that waits for a choice."""

    title: str
    lists: Sequence[PickRows]
    chosen: trio.Event
    shown: int
    index: int = 0
    #: What filtered the list when it was left.
    needle: str = ""
    choice: Picked | None = None

    @classmethod
    def begun(cls, title: str, lists: Sequence[PickRows], marked: Marked) -> Picking:
        """The choosing where it was left; at first in the first list that has rows."""
        shown = marked.shown
        if shown is None:
            shown = next((at for at, one in enumerate(lists) if one.rows), 0)
        picking = cls(title, lists, trio.Event(), shown)
        rows = [row for row, _ in picking.rows(marked.needle)]
        picking.index = rows.index(marked.row) if marked.row in rows else 0
        return picking

    def left(self, marked: Marked) -> None:
        """Remember where the person stood at the end."""
        rows = self.rows(self.needle)
        marked.shown, marked.needle = self.shown, self.needle
        marked.row = rows[min(self.index, len(rows) - 1)][0] if rows else None

    def rows(self, needle: str) -> list[tuple[int, str]]:
        """The rows of the shown list that contain what was typed."""
        every = self.lists[self.shown].rows
        wanted = needle.lower()
        return [(at, row) for at, row in enumerate(every) if wanted in row.lower()]

    def shown_rows(self, needle: str) -> list[str]:
        """The rows to show: a title, what matches, and which of it is marked."""
        tabs = " · ".join(
            f"[{one.label} ({len(one.rows)})]"
            if at == self.shown
            else f"{one.label} ({len(one.rows)})"
            for at, one in enumerate(self.lists)
        )
        found = self.rows(needle)
        self.index = max(0, min(self.index, len(found) - 1))
        first = max(0, self.index - PICK_ROWS + 1)
        rows = [f"{self.title}   {tabs}   type to filter"]
        for at, (_, row) in enumerate(found[first : first + PICK_ROWS], start=first):
            rows.append(f"{'>' if at == self.index else ' '} {row}")
        if not found:
            rows.append("  (none)")
        rows.append(PICK_KEYS)
        return rows


class WindowOutput(Vt100_Output):
    """The terminal, without any colour where none is wanted."""

    colored: bool = True

    @override
    def reset_attributes(self) -> None:
        if self.colored:
            super().reset_attributes()
