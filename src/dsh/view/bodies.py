"""What a log holds in full, for the page: one JSON text for each event that is not a chunk.

What comes in: stored events, and what cut attempts had said. What goes out: pairs of key and JSON
text, the key being the seq, or `p` and a row. Texts of more than 64 KiB are cut, and say how long
they were. It changes no event and reads no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import orjson

from dsh import catalog as ev
from dsh.wire import encode_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dsh.wire import StoredEvent

__all__ = ["Bodies", "Body", "blocks_of", "cut"]

Body: TypeAlias = tuple[str, str]

LIMIT: Final = 64 * 1024
#: How much of one text is kept in an event that is too long.
KEPT: Final = 16 * 1024
BLOCK: Final = 256 * 1024


@final
class Bodies:
    """The bodies of one growing log, in log order."""

    def __init__(self, *, full: bool) -> None:
        self.cut = 0
        self._full: Final = full
        self._all: Final[list[Body]] = []
        self._partials = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, events: Iterable[StoredEvent], partials: Mapping[int, str]) -> None:
        """Take in further events, and what attempts among them had said."""
        for event in events:
            if not isinstance(event.data, ev.assistant.Chunk):
                self._all.append((str(event.seq), self._text(encode_line(event))))
        for row in list(partials)[self._partials :]:
            self._all.append((f"p{row}", self._text(orjson.dumps({"partial": partials[row]}))))
        self._partials = len(partials)

    def since(self, place: int) -> Sequence[Body]:
        """The bodies from a place on."""
        return self._all[place:]

    def _text(self, line: bytes) -> str:
        if self._full or len(line) <= LIMIT:
            return line.decode()
        self.cut += 1
        event = cast("dict[str, object]", cut(orjson.loads(line), KEPT))
        return orjson.dumps({**event, "cut": len(line)}).decode()


def cut(value: object, kept: int) -> object:
    """A JSON value with its long texts cut, each saying how long it was."""
    if isinstance(value, str):
        if len(value) <= kept:
            return value
        return f"{value[:kept]}\n[cut here: {len(value):,} characters in all]"
    if isinstance(value, list):
        return [cut(one, kept) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return {name: cut(one, kept) for name, one in named.items()}
    return value


def blocks_of(bodies: Sequence[Body]) -> Iterator[tuple[list[str], str]]:
    """Bodies in blocks of some 256 kB: the keys of each, and its JSON, one object by key."""
    keys: list[str] = []
    parts: list[str] = []
    size = 0
    for key, text in bodies:
        keys.append(key)
        parts.append(f'"{key}":{text}')
        size += len(text)
        if size >= BLOCK:
            yield keys, "{" + ",".join(parts) + "}"
            keys, parts, size = [], [], 0
    if parts:
        yield keys, "{" + ",".join(parts) + "}"
