"""What a conversation needs of the place where a person sits, whichever place it is.

What comes in: finished lines, a view of what is going on, questions. What goes out: what was typed,
as calls in the trio thread. The two places are `window` (a terminal that can be redrawn) and
`plain_front` (whole lines), beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from attrs import define

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import trio

__all__ = ["Front", "Hands", "Marked", "PickAction", "PickRows", "Picked", "View"]


@frozen(kw_only=True, slots=True)
class View:
    """What is going on. `rows` and `status` fit the width they were made for.

    `busy`: a turn is open, or a word with a slash is being done. `queued`: something can be taken
    back.
    """

    rows: tuple[str, ...] = ()
    status: str = ""
    busy: bool = False
    queued: bool = False


@frozen(kw_only=True, slots=True)
class Hands:
    """What a person can do. Each is called in the trio thread, and returns at once.

    `submit` gets a line or a message; `send` one that is no command whatever it begins with.
    `ended`: no more input will come; what runs is finished first.
    `interrupt` is Ctrl-C, or its signal, with the draft that stands in the editor.
    """

    submit: Callable[[str], None]
    send: Callable[[str], None]
    take_back: Callable[[], None]
    interrupt: Callable[[str], None]
    leave: Callable[[], None]
    ended: Callable[[], None]


@frozen(slots=True)
class PickRows:
    """One list to choose from: what it is called, its rows."""

    label: str
    rows: tuple[str, ...]


PickAction: TypeAlias = Literal["open", "view", "fork"]


@frozen(slots=True)
class Picked:
    """A choice: the list's number, the row's, and what is to be done with it."""

    shown: int
    row: int
    action: PickAction = "open"


@define(slots=True)
class Marked:
    """Where a person stood in the lists when they were left: which list, its row, what filtered.

    `shown` and `row` are None where nobody has chosen anything yet.
    """

    shown: int | None = None
    row: int | None = None
    needle: str = ""


class Front(Protocol):
    """A place where a person sits. All methods are called in the trio thread."""

    @property
    def width(self) -> int:
        """Columns, as of now."""
        ...

    async def run(self, hands: Hands, *, task_status: trio.TaskStatus[None] = ...) -> None:
        """Listen until cancelled, or until nobody sits there any more."""
        ...

    def print(self, line: str) -> None:
        """Add one finished line (without its end) to what stays."""
        ...

    def show(self, view: View) -> None:
        """Show what is going on, in place of what was shown before."""
        ...

    def notice(self, text: str) -> None:
        """Say something that need not stay."""
        ...

    def draft(self, text: str) -> None:
        """Put text back into the editor, before what stands there."""
        ...

    def clear(self) -> None:
        """Empty the editor."""
        ...

    def interrupt(self) -> None:
        """The signal of Ctrl-C came: do what the key does."""
        ...

    async def line(self, prompt: str) -> str | None:
        """The next line that answers a question; None: nobody sits there."""
        ...

    async def pick(self, title: str, lists: Sequence[PickRows], marked: Marked) -> Picked | None:
        """Let one row be chosen. None: none of them.

        `marked` is where to begin, and is told where the person stood at the end.
        """
        ...

    def page(self, text: str) -> None:
        """Show a long text, whole."""
        ...

    def clipboard(self, encoded: str) -> None:
        """Offer a text (base64) to the terminal's clipboard, where there is one."""
        ...
