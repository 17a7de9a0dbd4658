"""A terminal without a screen: what a person would see, and what has scrolled away.

What comes in: the bytes that a program writes. What goes out: the lines of the scrollback and of
the screen, and the sequences that were asked for. It knows the few sequences that a line editor
needs; anything else that is not plain text is kept in `strange`. On a change of width it wraps
anew, as most terminals do.
"""

from __future__ import annotations

import re
import unicodedata
from codecs import getincrementaldecoder
from typing import Final, final

__all__ = ["Emulator"]

CSI: Final = re.compile(r"\x1b\[([?>=]?)([0-9;]*)( ?[@-~])")
OSC: Final = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
SHORT: Final = re.compile(r"\x1b[=>78()M][A-Z0-9]?")
#: An escape sequence of which more may come.
OPEN: Final = re.compile(r"\x1b(?:\[[?>=]?[0-9;]* ?|\][^\x07]*)?\Z")


#: Modes that change nothing one could see: cursor keys, cursor, its blinking, paste; and wrapping.
WRAP: Final = 7
MODES: Final = (1, WRAP, 12, 25, 2004)


class _Line:
    """One row. `wraps`: the next row goes on with the same line."""

    __slots__ = ("text", "wraps")

    def __init__(self) -> None:
        self.text: list[str] = []  # one entry for each cell; "" for the right half of a wide letter
        self.wraps = False

    def shown(self) -> str:
        return "".join(self.text).rstrip()


def _cells(letter: str) -> int:
    """How many cells a letter takes."""
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


@final
class Emulator:
    """A terminal of `columns` and `rows`. `asked` has every control sequence that came."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.asked: Final[list[str]] = []
        self.strange: Final[list[str]] = []
        self._lines: list[_Line] = [_Line()]
        self._top = 0
        self._x = 0
        self._y = 0
        self._wrap = True
        self._decoder: Final = getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def transcript(self) -> list[str]:
        """Every line, oldest first, wrapped ones joined."""
        return [text for text, _ in self._joined()]

    @property
    def screen(self) -> list[str]:
        """The rows that are visible now."""
        return [line.shown() for line in self._lines[self._top :]]

    def feed(self, data: bytes) -> None:
        """Take what a program wrote."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        at = 0
        while at < len(text):
            letter = text[at]
            if letter == "\x1b":
                if OPEN.match(text, at):
                    self._rest = text[at:]
                    return
                at = self._escape(text, at)
                continue
            self._plain(letter)
            at += 1

    def resize(self, columns: int) -> None:
        """Another width: lines that were wrapped are wrapped anew, the cursor stays in its text."""
        before = sum(not line.wraps for line in self._lines[: self._y])
        start = self._y
        while start > 0 and self._lines[start - 1].wraps:
            start -= 1
        offset = (self._y - start) * self.columns + self._x
        joined = self._joined()
        self.columns = columns
        lines: list[_Line] = []
        for number, (_, letters) in enumerate(joined):
            pieces = [letters[i : i + columns] for i in range(0, max(len(letters), 1), columns)]
            if number == before:
                self._y = len(lines) + min(offset // columns, len(pieces) - 1)
                self._x = min(offset % columns, columns - 1)
            for index, piece in enumerate(pieces):
                line = _Line()
                line.text, line.wraps = list(piece), index < len(pieces) - 1
                lines.append(line)
        self._lines = lines
        self._top = max(0, len(lines) - self.rows)

    def _joined(self) -> list[tuple[str, list[str]]]:
        found: list[tuple[str, list[str]]] = []
        letters: list[str] = []
        for line in self._lines:
            letters += line.text
            if line.wraps:
                letters += [" "] * (-len(letters) % self.columns)
                continue
            while letters and letters[-1] == " ":
                letters.pop()
            found.append(("".join(letters), letters))
            letters = []
        return found

    def _escape(self, text: str, at: int) -> int:
        for pattern in (CSI, OSC, SHORT):
            found = pattern.match(text, at)
            if found is not None:
                self.asked.append(found[0])
                if pattern is CSI:
                    self._control(found[1], found[2], found[3])
                return found.end()
        self.strange.append(text[at : at + 8])
        return at + 1

    def _control(self, mark: str, numbers: str, final: str) -> None:
        first = int(numbers.split(";", maxsplit=1)[0] or 0)
        many = max(first, 1)
        match (mark, final):
            case ("", "A"):
                self._y = max(self._top, self._y - many)
            case ("", "B"):
                self._y = min(self._top + self.rows - 1, self._y + many)
                self._grow()
            case ("", "C"):
                self._x = min(self.columns - 1, self._x + many)
            case ("", "D"):
                self._x = max(0, self._x - many)
            case ("", "K") if first == 0:
                self._cut(self._lines[self._y])
            case ("", "J") if first == 0:
                self._cut(self._lines[self._y])
                del self._lines[self._y + 1 :]
            case ("?", "h" | "l") if first in MODES:
                if first == WRAP:
                    self._wrap = final == "h"
            case ("", "m") | ("", " q"):
                pass
            case _:
                self.strange.append(f"\x1b[{mark}{numbers}{final}")

    def _cut(self, line: _Line) -> None:
        del line.text[self._x :]
        line.wraps = False

    def _plain(self, letter: str) -> None:
        match letter:
            case "\r":
                self._x = 0
            case "\n":
                self._down()
            case "\b":
                self._x = max(0, self._x - 1)
            case "\x07":
                self.asked.append("\x07")
            case _ if letter < " " and letter != "\t":
                self.strange.append(letter)
            case _:
                self._put(letter)

    def _down(self) -> None:
        self._y += 1
        self._grow()
        self._top = max(self._top, self._y - self.rows + 1)

    def _grow(self) -> None:
        while len(self._lines) <= self._y:
            self._lines.append(_Line())

    def _put(self, letter: str) -> None:
        width = _cells(letter)
        if width == 0:
            if self._x:
                self._lines[self._y].text[self._x - 1] += letter
            return
        if self._x + width > self.columns:
            if not self._wrap:
                self._x = self.columns - width
            else:
                self._lines[self._y].wraps = True
                self._down()
                self._x = 0
        line = self._lines[self._y].text
        line.extend(" " * (self._x + width - len(line)))
        line[self._x] = letter
        if width == 2:  # noqa: PLR2004 - cells of a wide letter
            line[self._x + 1] = ""
        self._x += width
