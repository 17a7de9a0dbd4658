r"""Foreign bytes and names as text that a model, a log and a terminal can carry.

What comes in: bytes of a file or a pipe, or a name from the operating system. What goes out: text
that is valid Unicode and controls no terminal: what cannot be shown is written as an escape. The
rule: line feed and tab stay; CR before LF is dropped; every other control character, invalid byte,
lone surrogate and direction override becomes `\xNN`, `\r` or `\uNNNN`.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["visible", "visible_bytes", "visible_name", "whole_head", "whole_tail"]

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff]"
)
_UTF8_MAX: Final = 4
_LATIN_MAX: Final = 0xFF
#: Where `os.fsdecode` keeps the bytes that are no UTF-8.
_LOW_BYTE, _HIGH_BYTE, _BYTE_BASE = 0xDC80, 0xDCFF, 0xDC00


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    if char == "\r":
        return "\\r"
    if char == "\n":
        return "\\n"
    if char == "\t":
        return "\\t"
    if _LOW_BYTE <= code <= _HIGH_BYTE:
        return f"\\x{code - _BYTE_BASE:02x}"
    return f"\\u{code:04x}" if code > _LATIN_MAX else f"\\x{code:02x}"


def visible(text: str) -> str:
    """`text` with everything escaped that no log or terminal should carry."""
    return _HIDDEN.sub(_escape, text.replace("\r\n", "\n"))


def visible_bytes(data: bytes) -> str:
    """Bytes as text: UTF-8 where they are that, escapes where they are not."""
    return visible(data.decode("utf-8", "surrogateescape"))


_NAME_HIDDEN: Final = re.compile(f"{_HIDDEN.pattern}|[\n\t]")


def visible_name(name: str) -> str:
    """A file name or path on one line. `name` is as `os.fsdecode` gives it."""
    return _NAME_HIDDEN.sub(_escape, name)


def _continues(byte: int) -> bool:
    """Whether the byte is a later one of a UTF-8 character."""
    return byte & 0b1100_0000 == 0b1000_0000  # noqa: PLR2004


def _width(first: int) -> int:
    """How many bytes the character has that begins with this one."""
    for width, least in ((4, 0b1111_0000), (3, 0b1110_0000), (2, 0b1100_0000)):
        if first >= least:
            return width
    return 1


def whole_head(data: bytes) -> bytes:
    """`data` without a character that its end cuts in two."""
    for back in range(1, min(_UTF8_MAX, len(data)) + 1):
        byte = data[-back]
        if not _continues(byte):
            return data[:-back] if _width(byte) > back else data
    return data


def whole_tail(data: bytes) -> bytes:
    """`data` without the rest of a character that its start cuts in two."""
    start = 0
    while start < min(_UTF8_MAX - 1, len(data)) and _continues(data[start]):
        start += 1
    return data[start:]
