"""Foreign text as a part of a Markdown document: it stays where it is put and loads nothing.

What comes in: what a person, a model or a tool wrote. What goes out: lines. A fence is longer than
every run of backticks in it. A text that is harmless Markdown is quoted, and so keeps its headings
and lists without ending ours; one that could do more than be read (raw HTML, images, addresses
with a scheme of their own, names that notify people, definitions that reach other parts of the
document, a fence that it does not close) is fenced instead. In doubt it is fenced.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dsh.cli.screen.inert import inert, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["code", "fenced", "quoted"]

TICKS: Final = re.compile(r"`+")
#: A fence at the very left: what is indented may be inside a list, and end with it.
FENCE: Final = re.compile(r"(`{3,}|~{3,})([^`]*)$")
#: What ends one: nothing else on its line, and not far from the left.
END: Final = re.compile(r" {0,3}(`{3,}|~{3,}) *$")
#: A code span that every renderer takes for one: on one line, and never across a table's cells.
SPAN: Final = re.compile(r"(?<![\\`])(`+)(?!`)([^|\n]*?)(?<!`)\1(?!`)")
LIVELY: Final = re.compile(
    r"`|~{3,}"  # a span that ends on another line, a fence that is none of those above
    r"|<[A-Za-z/!?]"  # HTML, and addresses in angle brackets
    r"|!\["  # an image
    r"|\]:"  # a definition or a footnote, for the whole document
    r"|\]\((?!\s*(?:https?://|[\w./#-]+[\s)]))"  # a link with a scheme of its own
    r"|(?<!\w)@\w"  # somebody is told
)


def code(text: str) -> str:
    """One line of foreign text as a code span."""
    return f"`{one_line(text).replace('`', chr(39)) or ' '}`"


def fenced(text: str, *, kind: str = "") -> Iterator[str]:
    """Foreign text as a fenced block, whole. `kind` is a word of our own."""
    shown = inert(text).rstrip("\n")
    longest = max((len(found) for found in TICKS.findall(shown)), default=0)
    fence = "`" * max(longest + 1, 3)
    yield from (f"{fence}{kind}", *shown.split("\n"), fence)


def quoted(text: str) -> Iterator[str]:
    """Foreign Markdown as a quotation, or as a fenced block if it could do more than be read."""
    shown = inert(text).strip("\n").expandtabs(4)  # a tab behind a sign is not four columns
    if _is_lively(shown):
        yield from fenced(shown, kind="markdown")
        return
    for line in shown.split("\n"):
        yield f"> {line}".rstrip()


def _is_lively(text: str) -> bool:
    """Whether what stands outside of code could do more than be read."""
    rest: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if fence:
            end = END.match(line)
            fence = "" if end is not None and end[1].startswith(fence) else fence
        elif (mark := FENCE.match(line)) is not None:
            fence = mark[1]
        else:
            rest.append(SPAN.sub("", line))
    return bool(fence) or LIVELY.search("\n".join(rest)) is not None
