"""Patterns of rules, and what they match: whole, case-sensitive, and never more than they say.

What comes in: a pattern as a person wrote it, and a call's subject. What goes out: whether they
match. `*` stands for any run of characters and `?` for one; there are no other wildcards. In a
command line neither stands for shell syntax, so an allowed prefix cannot grow a second command.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dsh.tools import Subject

__all__ = ["allows", "exactly", "matches", "names"]

#: What a wildcard never matches in a command line.
SYNTAX: Final = ";&|<>()$`\n"


@lru_cache(maxsize=512)
def _compiled(pattern: str, *, command: bool) -> re.Pattern[str]:
    one = f"[^{re.escape(SYNTAX)}]" if command else "."
    parts = [
        f"{one}*" if char == "*" else one if char == "?" else re.escape(char) for char in pattern
    ]
    return re.compile("".join(parts), re.DOTALL)


def _whole(pattern: str, text: str, *, command: bool = False, exact: bool = False) -> bool:
    if exact:
        return pattern == text
    return _compiled(pattern, command=command).fullmatch(text) is not None


def names(pattern: str, tool: str) -> bool:
    """Whether a rule's tool pattern names this tool."""
    return _whole(pattern, tool)


def allows(pattern: str | None, subject: Subject, *, exact: bool = False) -> bool:
    """Whether an `allow` rule covers the subject; outside the workspace only if it is absolute.

    `exact`: the pattern has no wildcards, it is the subject itself.
    """
    if pattern is None:
        return not subject.outside
    if subject.kind != "path":
        command = subject.kind == "command"
        return _whole(pattern, subject.text, command=command, exact=exact)
    if pattern.startswith("/"):
        return subject.absolute is not None and _whole(pattern, subject.absolute, exact=exact)
    return not subject.outside and _whole(pattern, subject.text, exact=exact)


def matches(pattern: str | None, subject: Subject, *, exact: bool = False) -> bool:
    """Whether an `ask` or `deny` rule meets the subject: in doubt it does.

    Its wildcards stand for everything, shell syntax too, and a path is met by either of its names.
    """
    if pattern is None or _whole(pattern, subject.text, exact=exact):
        return True
    return subject.absolute is not None and _whole(pattern, subject.absolute, exact=exact)


def exactly(subject: Subject) -> str:
    """The exact pattern of an `allow` rule for this subject and no other."""
    outside = subject.outside and subject.absolute is not None
    return subject.absolute if outside and subject.absolute is not None else subject.text
