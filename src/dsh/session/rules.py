"""The rules of an append that need no log: source seqs, and what a rewritten result may change.

What comes in: what the appender gave, and facts of the log. What goes out: the normalised value,
or InvalidAppend that says what was given and what is due. Nothing here changes anything.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import orjson
from attrs import evolve

from dsh.catalog import assistant, codec, tool
from dsh.catalog.records import Append, Replace
from dsh.errors import InvalidAppend
from dsh.hooks import AnyDurable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.hooks import CoreSurface
    from dsh.wire import StoredEvent

__all__ = ["checked_sources", "refuse_broken_rewrite", "refuse_foreign"]


_OPERATIONS: Final = (Append, Replace, type(None))


def refuse_foreign(payload: object, surface: object) -> None:
    """Refuse what only an author without a type checker can give: no payload, no operation."""
    if not isinstance(payload, AnyDurable):
        raise InvalidAppend(
            f"{type(payload).__qualname__} is no event of a log; append a durable payload of "
            "the catalog, as in ev.turn.Start(turn=1)"
        )
    if not isinstance(surface, _OPERATIONS):
        raise InvalidAppend(
            f"{payload.TOKEN.name}: `surface` is {surface!r}, not Append() or Replace(…)"
        )


def checked_sources(
    payload: CoreSurface, sources: Sequence[int] | None, *, seq: int, hidden: Sequence[int]
) -> tuple[int, ...] | None:
    """The sources of a surface event, ascending.

    They must be unique seqs of earlier events. An empty list is an answer for `assistant/message`
    alone: the stream is known and had no chunk. A replacement cites every node it hides.
    """
    name = payload.TOKEN.name
    if sources is None:
        if hidden:
            raise InvalidAppend(
                f"{name} at seq {seq} replaces the nodes {list(hidden)} and cites nothing; "
                f"give sources that include all of them"
            )
        return None
    given = tuple(sources)
    if not given:
        if type(payload) is assistant.Message and not hidden:
            return given
        raise InvalidAppend(f"{name} at seq {seq} has an empty list of sources; leave it out")
    for source in given:
        if type(source) is not int or not 0 <= source < seq:
            raise InvalidAppend(
                f"{name} at seq {seq} cites {source!r}, which is no earlier event of this log"
            )
    if any(later <= earlier for earlier, later in pairwise(given)):
        given = tuple(sorted(given))
        if len(set(given)) != len(given):
            raise InvalidAppend(f"{name} at seq {seq} cites an event twice: {given}")
    if hidden and not set(hidden) <= set(given):
        missing = sorted(set(hidden) - set(given))
        raise InvalidAppend(
            f"{name} at seq {seq} hides the nodes {missing} and does not cite them; "
            "a replacement cites every node it hides"
        )
    return given


def refuse_broken_rewrite(new: tool.Result, hidden: Sequence[StoredEvent], *, seq: int) -> None:
    """A `tool/result` that replaces may stand for one result only, and change its content alone."""
    old = hidden[0].data
    if len(hidden) != 1 or not isinstance(old, tool.Result):
        shown = ", ".join(f"{event.type} {event.seq}" for event in hidden)
        raise InvalidAppend(
            f"tool/result at seq {seq} would replace {shown}; it may replace one tool/result"
        )
    if old is new:
        return
    kept = evolve(old, message=evolve(old.message, content=new.message.content))
    # As JSON text: in Python true equals 1, in the log it does not.
    if _text(kept) != _text(new):
        raise InvalidAppend(
            f"tool/result at seq {seq} replaces {hidden[0].seq} and changes more than its content; "
            "turn, step, ids, error and meta must stay as they are"
        )


def _text(result: tool.Result) -> bytes:
    return orjson.dumps(codec.encode(result), option=orjson.OPT_SORT_KEYS)
