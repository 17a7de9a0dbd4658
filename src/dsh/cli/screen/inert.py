r"""Foreign text made inert: what models, tools, plugins and providers wrote, safe for a terminal.

What comes in: any text. What goes out: the same text with C0 and C1 controls, DEL, line and
paragraph separators, bidi controls and lone surrogates as visible escapes such as `\x1b`. Every
text that dsh did not write itself passes one of these functions before it is printed.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["cells", "clipped", "inert", "one_line"]

#: Everything that could move the cursor, change colours, titles or the order of letters.
LATIN: Final = 0xFF
HOSTILE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= LATIN else f"\\u{code:04x}"


def inert(text: str) -> str:
    """`text` with every control but newline and tab made visible."""
    return HOSTILE.sub(_visible, text)


def one_line(text: str) -> str:
    """`text` inert and on one line: runs of white space become one space."""
    return inert(" ".join(text.split()))


def cells(text: str) -> int:
    """How many terminal columns `text` takes: wide letters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )


def clipped(text: str, width: int) -> str:
    """`text` cut to `width` columns, with `…` where something is missing."""
    if cells(text) <= width:
        return text
    kept: list[str] = []
    used = 1
    for letter in text:
        used += cells(letter)
        if used > width:
            break
        kept.append(letter)
    return "".join(kept) + "…"
