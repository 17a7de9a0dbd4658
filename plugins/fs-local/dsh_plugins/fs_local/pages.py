"""Pages of text files, with the totals of the whole file, in bounded memory. Runs in threads.

What comes in: a resolved path and the lines that are wanted. What goes out: those lines as text
that can be shown, and exact counts. The file is decoded as it is read; no more than the page is
kept, however long the file or one of its lines.
"""

from __future__ import annotations

import codecs
import os

from attrs import field, mutable

from dsh.seams.display import visible
from dsh.seams.fs import FsError, Page, Target
from dsh_plugins.fs_local.disk import READ_MAX, chunks_of, open_regular, version_of
from dsh_plugins.fs_local.text import Form, form_of

__all__ = ["read_page"]


@mutable(slots=True)
class _Pager:
    """Takes decoded text in pieces; keeps the wanted lines, counts the rest."""

    start: int
    count: int
    line_max: int
    byte_max: int
    number: int = 1
    length: int = 0
    kept: str = ""
    room: int = 0
    lines: list[str] = field(factory=list)
    cut: list[tuple[int, int]] = field(factory=list)
    crlf: int = 0
    full: bool = False
    odd: bool = False
    carriage: bool = False

    def feed(self, text: str) -> None:
        pieces = text.split("\n")
        for piece in pieces[:-1]:
            self._add(piece)
            self.end_line()
        self._add(pieces[-1])

    def _wanted(self) -> bool:
        return not self.full and self.start <= self.number < self.start + self.count

    def _add(self, piece: str) -> None:
        if not piece:
            return
        self.length += len(piece)
        self.carriage = piece.endswith("\r")
        if not self.odd and not piece.isascii() and any("\udc80" <= c <= "\udcff" for c in piece):
            self.odd = True
        # One more than the line may have, so that a CR before the end can still be seen.
        if self._wanted() and len(self.kept) <= self.line_max:
            self.kept += piece[: self.line_max + 1 - len(self.kept)]

    def end_line(self) -> None:
        """The current line is complete."""
        if self.carriage:
            self.crlf += 1
            self.length -= 1
        if self._wanted():
            line = visible(self.kept[: min(self.length, self.line_max)])
            size = len(line.encode())
            if self.lines and self.room + size > self.byte_max:
                self.full = True
            else:
                self.room += size
                self.lines.append(line)
                if self.length > self.line_max:
                    self.cut.append((self.number, self.length))
        self.number += 1
        self.length, self.kept, self.carriage = 0, "", False


def read_page(target: Target, *, start: int, count: int, line_max: int, byte_max: int) -> Page:
    """Lines of a text file, with the totals of all of it, in bounded memory."""
    handle, found = open_regular(target)
    try:
        if found.st_size > READ_MAX:
            raise FsError(
                f"{target.display} has {found.st_size} bytes, more than {READ_MAX}; "
                "look at parts of it with bash",
                code="FS_TOO_LARGE",
            )
        pager = _Pager(start, count, line_max, byte_max)
        form = Form(codec="utf-8")
        decoder: codecs.IncrementalDecoder | None = None
        total = 0
        ended = True
        for data in chunks_of(handle, target):
            total += len(data)
            text = data
            if decoder is None:
                form = form_of(data, target.display)
                decoder = codecs.getincrementaldecoder(form.codec)(form.errors)
                text = data[len(form.mark) :]  # the mark is no text
            ended = _take(pager, decoder, text, target, final=False, ended=ended)
        if decoder is not None:
            ended = _take(pager, decoder, b"", target, final=True, ended=ended)
        if not ended:
            pager.end_line()  # the last line has no line end
    finally:
        os.close(handle)
    encoding = f"{form.codec} with byte order mark" if form.mark else form.codec
    lines = pager.number - 1
    return Page(
        start=start,
        lines=tuple(pager.lines),
        cut=tuple(pager.cut),
        total_lines=lines,
        total_bytes=total,
        encoding="bytes" if pager.odd else encoding,
        crlf=pager.crlf * 2 > lines,
        version=version_of(found),
    )


def _take(
    pager: _Pager,
    decoder: codecs.IncrementalDecoder,
    data: bytes,
    target: Target,
    *,
    final: bool,
    ended: bool,
) -> bool:
    """Feed one piece. True if the text so far ends with a line end (or is empty)."""
    try:
        text = decoder.decode(data, final)
    except UnicodeDecodeError as error:
        told = f"{target.display} is not valid {error.encoding}: {error.reason}"
        raise FsError(told, code="FS_NOT_TEXT") from None
    if not text:
        return ended
    pager.feed(text)
    return text.endswith("\n")
