"""The messages of running conversations, joined: a request costs the messages it adds.

What comes in: the messages of a request, and a function that encodes one. What goes out: all of
them as JSON with commas between. A request whose messages begin with those of the conversation's
last request (the same objects, by identity or equality) only adds to what was joined then. A
conversation is forgotten when its newest message is: nothing is kept alive beyond that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh.catalog.records import Message

__all__ = ["JoinedSeries"]


@final
class _Series:
    """What was sent last: all messages but the newest, the newest, and their joined bytes."""

    __slots__ = ("earlier", "joined", "newest")

    earlier: tuple[Message, ...]
    newest: ref[Message]
    joined: bytearray


@final
class JoinedSeries:
    """The conversations of one provider route, by session id."""

    __slots__ = ("__weakref__", "_encode", "_series")

    def __init__(self, encode: Callable[[Message], bytes]) -> None:
        self._encode: Final = encode
        self._series: Final[dict[str, _Series]] = {}

    def joined(self, session_id: str | None, messages: tuple[Message, ...]) -> bytes | bytearray:
        """All messages, encoded and joined. The bytes are the caller's until its next call."""
        if session_id is None or not messages:
            return self._join(messages)
        series = self._series.get(session_id)
        if series is None or not _continues(series, messages):
            series = self._series[session_id] = _Series()
            series.joined = bytearray(self._join(messages))
        elif len(messages) > len(series.earlier) + 1:
            more = self._join(messages[len(series.earlier) + 1 :])
            if more:
                if series.joined:
                    series.joined += b","
                series.joined += more
        series.earlier = messages[:-1]
        series.newest = ref(messages[-1], self._forgetting(session_id))
        return series.joined

    def _join(self, messages: Iterable[Message]) -> bytes:
        # An empty encoding is a message that has nothing to say on the wire.
        return b",".join(filter(None, map(self._encode, messages)))

    def _forgetting(self, session_id: str) -> Callable[[ref[Message]], None]:
        known = self._series

        def forget(gone: ref[Message]) -> None:
            series = known.get(session_id)
            if series is not None and series.newest is gone:
                del known[session_id]

        return forget


def _continues(series: _Series, messages: tuple[Message, ...]) -> bool:
    """Whether `messages` begin with all that was joined. Shared objects compare at once."""
    sent = len(series.earlier)
    return (
        len(messages) > sent
        and messages[sent] is series.newest()
        and messages[:sent] == series.earlier
    )
