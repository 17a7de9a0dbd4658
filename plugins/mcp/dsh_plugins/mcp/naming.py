"""Names of foreign tools, made fit for a model.

What comes in: the names a server gives its tools. What goes out: for each a name of its own,
`mcp__<server>__<tool>`, of the characters and the length that model servers take. A name depends on
the set of names alone, not on their order. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["NAME_MAX", "names_for"]

NAME_MAX: Final = 64
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_-]")


def names_for(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """The name for each tool. What had to be changed and would not be unique gets a mark."""
    prefix = f"mcp__{server}__"
    room = NAME_MAX - len(prefix)
    given = tuple(dict.fromkeys(tools))
    fit = {tool: _UNFIT.sub("_", tool) for tool in given}
    uses = Counter(fit.values())
    return {
        tool: prefix
        + (
            _marked(tool, plain, room)
            if len(plain) > room or (uses[plain] > 1 and plain != tool)
            else plain
        )
        for tool, plain in fit.items()
    }


def _marked(tool: str, plain: str, room: int) -> str:
    mark = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: room - len(mark) - 1]}_{mark}"
