"""Recognising a command that removes everything: `rm -rf /` and its plain spellings.

What comes in: a bash command line. What goes out: the target that must not be removed, or None. It
reads words as a shell does, but runs nothing and expands nothing; a command that hides its words
(variables, `eval`, base64) is not recognised.
"""

from __future__ import annotations

import re
import shlex
from posixpath import basename, normpath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["removes_everything"]

#: What stands before the command that is really run.
CARRIERS: Final = frozenset(
    {"sudo", "doas", "env", "command", "exec", "nice", "nohup", "time", "busybox", "builtin"}
)
OPENERS: Final = frozenset({"{", "(", "!", "if", "then", "else", "do", "while", "until"})
ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
#: The home directory and the root, however they are written.
WHOLE: Final = frozenset({"/", "~", "$HOME", "${HOME}"})
#: A folder that holds the workspace.
ABOVE: Final = re.compile(r"(\.\./)*\.\.")


def removes_everything(command: str) -> str | None:
    """The first target of a recursive `rm` that is the root, home or above the workspace."""
    for words in _commands(command):
        target = _removed(words)
        if target is not None:
            return target
    return None


def _commands(command: str) -> Iterator[list[str]]:
    """The simple commands of a line, as words without their quotes."""
    for line in command.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>`")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        try:
            for word in lexer:
                if word and all(char in ";&|()`" for char in word):
                    yield words
                    words = []
                else:
                    words.append(word)
        except ValueError:  # an open quote: a shell refuses the line, or it goes on below
            words = [*words, *line.replace("'", " ").replace('"', " ").split()]
        yield words


def _removed(words: list[str]) -> str | None:
    rest = list(words)
    while rest and (
        rest[0] in OPENERS
        or basename(rest[0]) in CARRIERS
        or ASSIGNMENT.match(rest[0])
        or (rest[0].startswith("-") and len(rest) < len(words))
    ):
        rest.pop(0)
    if not rest or basename(rest[0]) != "rm":
        return None
    flags = [word for word in rest[1:] if word.startswith("-")]
    recursive = any(
        word == "--recursive" or (not word.startswith("--") and set("rR") & set(word))
        for word in flags
    )
    if not recursive:
        return None
    return next((word for word in rest[1:] if not word.startswith("-") and _whole(word)), None)


def _whole(target: str) -> bool:
    """Whether it stands for the root, home, or a folder that holds the workspace."""
    plain = target
    while plain.endswith(("/*", "/.", "/", "/.*")) and plain != "/":
        plain = plain.rstrip("*").removesuffix(".").rstrip("/") or "/"
    rooted = plain.startswith("/")
    plain = "/" + normpath(plain).lstrip("/") if rooted else normpath(plain)
    return plain in WHOLE or ABOVE.fullmatch(plain) is not None
