"""Text in files: which encoding, mark and line ends it has, and how they are kept.

What comes in: bytes of a file. What goes out: text to look at and to change, and the same bytes
again where nothing was changed. A file with NUL bytes and no byte order mark is not text; one that
is no UTF-8 is text whose odd bytes survive.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Final

from dsh.hooks import frozen
from dsh.seams.fs import FsError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Form", "Replaced", "decode", "encode", "form_of", "newlines", "replace"]

SNIFFED: Final = 8_192
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@frozen(kw_only=True, slots=True)
class Form:
    """How a text is kept: codec, byte order mark (maybe empty), and its usual line end."""

    codec: str
    mark: bytes = b""
    crlf: bool = False

    @property
    def errors(self) -> str:
        """Odd bytes of UTF-8 files survive; the wide encodings have no such bytes."""
        return "surrogateescape" if self.codec == "utf-8" else "strict"


def form_of(head: bytes, display: str) -> Form:
    """The form of a file by its first bytes. Raises FsError (FS_NOT_TEXT) for binary data."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return Form(codec=codec, mark=mark)
    if b"\x00" in head[:SNIFFED]:
        raise FsError(
            f"{display} is not text (it holds NUL bytes); look at it with bash, as with `file`",
            code="FS_NOT_TEXT",
        )
    return Form(codec="utf-8")


def decode(data: bytes, display: str) -> tuple[str, Form]:
    """A whole file as text, line ends as they are."""
    form = form_of(data, display)
    try:
        text = data[len(form.mark) :].decode(form.codec, form.errors)
    except UnicodeDecodeError as error:
        raise FsError(f"{display} is not valid {form.codec}: {error}", code="FS_NOT_TEXT") from None
    ends = text.count("\n")
    crlf = ends > 0 and text.count("\r\n") * 2 > ends
    return text, Form(codec=form.codec, mark=form.mark, crlf=crlf)


def encode(text: str, form: Form, display: str) -> bytes:
    """Text in the form of its file again."""
    try:
        return form.mark + text.encode(form.codec, form.errors)
    except UnicodeEncodeError as error:
        raise FsError(f"{display} cannot hold this text: {error}", code="FS_NOT_TEXT") from None


def newlines(text: str, form: Form) -> str:
    """`text` with the line ends of the form."""
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", "\r\n") if form.crlf else plain


@frozen(kw_only=True, slots=True)
class Replaced:
    """A text after a literal replacement. `line` is where the first one stands, from 1."""

    text: str
    count: int
    line: int


def _found(text: str, old: str) -> Iterator[re.Match[str]]:
    """Where `old` stands, literally; its line ends stand for either kind."""
    pattern = r"\r?\n".join(re.escape(line) for line in old.replace("\r\n", "\n").split("\n"))
    return re.finditer(pattern, text)


def _lines(text: str, places: list[int]) -> str:
    return ", ".join(str(text.count("\n", 0, place) + 1) for place in places)


def replace(text: str, old: str, new: str, *, every: bool, form: Form, display: str) -> Replaced:
    """Replace `old` by `new`, literally. Exactly one place unless `every`."""
    if not old:
        raise FsError(
            "old_string is empty; give the text to replace, or use write_file for a new file",
            code="FS_EDIT_NOT_FOUND",
        )
    found = list(_found(text, old))
    if not found:
        raise FsError(_missing(text, old, display), code="FS_EDIT_NOT_FOUND")
    # A second place may overlap the first: "aa" stands twice in "aaa".
    overlap = next(_found(text[found[0].start() + 1 :], old), None) if len(found) == 1 else None
    if (len(found) > 1 or overlap is not None) and not every:
        places = [match.start() for match in found[:10]]
        raise FsError(
            f"old_string stands {max(2, len(found))} times in {display} (lines "
            f"{_lines(text, places)}); add lines around it until it is unique, or set replace_all",
            code="FS_AMBIGUOUS_EDIT",
        )
    parts: list[str] = []
    at = 0
    for match in found:
        # A file with both kinds of line ends keeps, at each place, the kind that stood there.
        mixed = "\n" in match[0]
        crlf = "\r\n" in match[0] if mixed else form.crlf
        parts += (text[at : match.start()], newlines(new, Form(codec=form.codec, crlf=crlf)))
        at = match.end()
    parts.append(text[at:])
    line = text.count("\n", 0, found[0].start()) + 1
    return Replaced(text="".join(parts), count=len(found), line=line)


def _missing(text: str, old: str, display: str) -> str:
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    near = [i + 1 for i, line in enumerate(text.splitlines()) if first and first in line]
    if near:
        shown = ", ".join(str(line) for line in near[:5])
        hint = f"its first line stands in line {shown}, but what follows or its spaces differ"
    else:
        hint = "no line of it stands there"
    return (
        f"old_string is not in {display} ({hint}); read the file and copy the text exactly, "
        "without the line numbers"
    )
