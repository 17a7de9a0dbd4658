"""What a call would change, as lines: the text that goes and the text that comes.

What comes in: the arguments of a call. What goes out: marked lines and how many come and go; or
None where the arguments are no edit. It knows the habits of tool parameters (an old text and a new
one, a path and a content), never a particular tool's code, and looks at no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, cast

import orjson

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Change", "change_of", "parsed_arguments"]

OLD: Final = "old_string"
NEW: Final = "new_string"
CONTENT: Final = "content"
PATH: Final = "path"
#: From so many lines on, what two texts have in common is not looked for: it costs their product.
COMPARED_MAX: Final = 2000


@frozen(kw_only=True, slots=True)
class Change:
    """`lines` begin with `- `, `+ ` or two spaces. `shown` are the parameters they stand for."""

    path: str
    lines: tuple[str, ...]
    added: int
    removed: int
    shown: frozenset[str]

    @property
    def counts(self) -> str:
        """`+1 -1`, `+5`."""
        parts = [f"{sign}{count}" for sign, count in (("+", self.added), ("-", self.removed))]
        return " ".join(part for part in parts if part[1:] != "0") or "+0"


def parsed_arguments(raw: str) -> object:
    """The arguments of a call as they are in the log; the raw text where they are no JSON."""
    try:
        parsed: object = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw
    return parsed


def change_of(arguments: object) -> Change | None:
    """The change that these arguments ask for."""
    if not isinstance(arguments, Mapping):
        return None
    given = cast("Mapping[str, object]", arguments)
    path, old, new, content = (given.get(key) for key in (PATH, OLD, NEW, CONTENT))
    if not isinstance(path, str):
        return None
    if isinstance(old, str) and isinstance(new, str):
        return _change(path, old, new, frozenset({PATH, OLD, NEW}))
    if isinstance(content, str) and set(given) == {PATH, CONTENT}:
        return _change(path, "", content, frozenset({PATH, CONTENT}))
    return None


def _change(path: str, old: str, new: str, shown: frozenset[str]) -> Change:
    sides = [text.split("\n") if text else [] for text in (old, new)]
    if all(not side or not side[-1] for side in sides):
        sides = [side[:-1] for side in sides]  # the end of the last line begins no other
    lines = tuple(_lines(*sides))
    marks = [line[0] for line in lines]
    return Change(
        path=path, lines=lines, added=marks.count("+"), removed=marks.count("-"), shown=shown
    )


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    if len(old) + len(new) > COMPARED_MAX:
        yield from (f"- {line}" for line in old)
        yield from (f"+ {line}" for line in new)
        return
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (f"  {line}" for line in old[a:b])
            continue
        yield from (f"- {line}" for line in old[a:b])
        yield from (f"+ {line}" for line in new[c:d])
