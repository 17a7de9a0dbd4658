"""What a person knows a stored session by: its title, how many turns it has, how it ended.

What comes in: a log, or a store and a session of it. What goes out: a `Told`, or the reason why the
log cannot be read. Reading every log takes long where there are many, so the newest are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.catalog.records import TextBlock, UserSource
from dsh.cli.screen.inert import one_line
from dsh.cli.screen.progress import reason_in_words
from dsh.errors import SessionError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.seams.persistence import SessionPersistence, SessionSummary
    from dsh.wire import StoredLog

__all__ = ["READ_MAX", "Told", "told_of", "told_of_newest"]

#: Logs that are opened for what is told of them; of older ones only their first line is read.
READ_MAX: Final = 60


@frozen(kw_only=True, slots=True)
class Told:
    """One session in words, inert. `title` is its name, else its first prompt, else ""."""

    title: str
    turns: int
    state: str

    @property
    def count(self) -> str:
        """`1 turn`, `3 turns`."""
        return "1 turn" if self.turns == 1 else f"{self.turns} turns"


def told_of(log: StoredLog) -> Told:
    """What a log says of itself."""
    title, named, turns, state = "", "", 0, "open"
    for event in log.events:
        match event.data:
            case ev.user.Message(message=message) if isinstance(message.source, UserSource):
                texts = (b.text for b in message.content if isinstance(b, TextBlock))
                title = title or one_line(" ".join(texts)).strip()
            case ev.session.Title(title=given):
                named = one_line(given)
            case ev.turn.Start():
                turns, state = turns + 1, f"interrupted in turn {turns + 1}"
            case ev.turn.End(reason=reason):
                state = one_line(reason_in_words(reason))
            case _:
                pass
    return Told(title=named or title, turns=turns, state=state)


async def told_of_newest(
    store: SessionPersistence, stored: Sequence[SessionSummary]
) -> dict[str, Told | str]:
    """What is told of the first `READ_MAX` of these, by id; a reason for each that is unreadable.

    `stored` is the store's list, newest first. An older one is there only if it is known to be
    unreadable. Cancellable; changes nothing.
    """
    found: dict[str, Told | str] = {}
    for at, one in enumerate(stored):
        if one.problem is not None:
            found[one.id] = one.problem
        elif at < READ_MAX and one.header is not None:
            try:
                found[one.id] = told_of(await store.read(one.id))
            except SessionError as error:
                found[one.id] = error.message
    return found
