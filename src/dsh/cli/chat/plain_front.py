"""The plain conversation: whole lines out, whole lines in, nothing redrawn.

What comes in: finished lines from the trio thread, lines from standard input. What goes out: text
on standard output without cursor movement, carriage returns or timers. For screen readers, pipes
and terminals that know no escape sequences.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Final, final

import trio
from attrs import define

from dsh.cli.chat.front import Picked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.cli.chat.front import Hands, Marked, PickAction, PickRows, View
    from dsh.cli.screen.outputs import Screen

__all__ = ["PlainFront"]

QUIET: Final = 0.7
PIECE: Final = 65_536
PROMPT: Final = "> "


@define(slots=True, eq=False)
class _Asking:
    since: float
    answered: trio.Event
    answer: str | None = None


@final
class PlainFront:
    """A `Front` of whole lines. `asks`: somebody sits at standard input."""

    def __init__(self, screen: Screen, *, prompts: bool) -> None:
        self._screen: Final = screen
        self._prompts: Final = prompts
        self._asking: _Asking | None = None
        self._picking: _Asking | None = None
        self._hands: Hands | None = None
        #: A prompt stands there, and its line is open.
        self._prompted = False
        self._left = False
        self._said_since = True
        self._since = 0.0

    @property
    def width(self) -> int:
        """Columns, as of now."""
        return self._screen.width

    async def run(
        self, hands: Hands, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Read lines until cancelled. What is half typed is then dropped."""
        self._hands = hands
        task_status.started()
        try:
            await self._read(hands)
        finally:
            self._end_prompt()

    async def _read(self, hands: Hands) -> None:
        rest = b""
        while True:
            piece = await trio.to_thread.run_sync(os.read, 0, PIECE, abandon_on_cancel=True)
            *lines, rest = (rest + piece).split(b"\n")
            if not piece and rest:
                lines.append(rest)
            for line in lines:
                self._typed(line.decode("utf-8", "replace").rstrip("\r"))
            if not piece:
                break
        self._left = True
        self._end_prompt()
        for one in (self._asking, self._picking):
            if one is not None:
                one.answered.set()
        hands.ended()
        await trio.sleep_forever()

    def _typed(self, line: str) -> None:
        self._prompted = False  # Enter has ended its line
        for one in (self._picking, self._asking):
            if one is not None and not one.answered.is_set():
                if one is self._asking and monotonic() < one.since + QUIET:
                    continue  # typed before the question could be read
                one.answer = line
                one.answered.set()
                return
        if line.strip() and self._hands is not None:
            self._hands.submit(line)

    def print(self, line: str) -> None:
        """Add one finished line."""
        self._said_since = True
        self._end_prompt()
        self._screen.out.attempt(line + "\n")

    def _ask(self, prompt: str) -> None:
        """Show a prompt, with its line left open where somebody types into it."""
        self._end_prompt()
        self._screen.out.attempt(prompt if self._prompts else prompt.rstrip() + "\n")
        self._prompted = self._prompts

    def _end_prompt(self) -> None:
        """End the line of a prompt that nobody typed into."""
        if self._prompted:
            self._screen.out.attempt("\n")
            self._prompted = False

    def page(self, text: str) -> None:
        """Show a long text, whole."""
        self.print(text)

    def show(self, view: View) -> None:
        """Say that it is the person's turn, once; timers and columns are for other places."""
        answering = self._asking is not None or self._picking is not None
        if self._prompts and not (view.busy or answering or self._prompted or self._left):
            self._screen.out.attempt(PROMPT)
            self._prompted = True

    def notice(self, text: str) -> None:
        """Say it, in a line."""
        self.print(text)

    def draft(self, text: str) -> None:
        """There is no editor: say what was taken back."""
        self.print(f'taken back: "{text}"')

    def clear(self) -> None:
        """There is no editor."""

    def interrupt(self) -> None:
        """The signal of Ctrl-C."""
        if self._hands is not None:
            self._hands.interrupt("")

    async def line(self, prompt: str) -> str | None:
        """The next line that was typed well after the question."""
        if self._left:
            return None
        self._ask(prompt)
        if self._said_since:
            self._since, self._said_since = monotonic(), False
        asking = self._asking = _Asking(self._since, trio.Event())
        try:
            await asking.answered.wait()
        finally:
            self._asking = None
        return asking.answer

    async def pick(self, title: str, lists: Sequence[PickRows], marked: Marked) -> Picked | None:
        """A numbered list, and one line with a number; `3 view`, `3 fork`. Nothing is marked."""
        shown = next((at for at, one in enumerate(lists) if one.rows), 0)
        one = lists[shown]
        self.print(f"{title}: {one.label}")
        for number, row in enumerate(one.rows, start=1):
            self.print(f"{number}  {row}")
        if not one.rows or self._left:
            self.print("(none)")
            return None
        self._ask("number (then view or fork, if wanted): ")
        picking = self._picking = _Asking(monotonic(), trio.Event())
        try:
            await picking.answered.wait()
        finally:
            self._picking = None
        which, _, word = (picking.answer or "").strip().partition(" ")
        if not which.isdecimal() or not 0 < int(which) <= len(one.rows):
            return None
        action: PickAction = "view" if word == "view" else "fork" if word == "fork" else "open"
        return Picked(shown, int(which) - 1, action)

    def clipboard(self, encoded: str) -> None:
        """No escapes here: the file has to do."""
