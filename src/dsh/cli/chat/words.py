"""The words of a conversation that begin with a slash: names, usage, help.

What comes in: a typed line. What goes out: which word it is and its argument, or a sentence with
the nearest name. Nothing is done here, and nothing is ever sent to a model because of a slip.
"""

from __future__ import annotations

from typing import Final

from dsh.boot import did_you_mean
from dsh.hooks import frozen

__all__ = [
    "KEYS",
    "WORDS",
    "Word",
    "candidates",
    "completed",
    "help_lines",
    "parsed",
    "unknown",
    "usage_line",
]


@frozen(slots=True)
class Word:
    """One word. `usage` is what may follow it."""

    name: str
    usage: str
    summary: str


WORDS: Final = (
    Word("help", "", "these words, and the keys"),
    Word("new", "", "begin another session here"),
    Word("resume", "[ID|TITLE]", "go on with another session; alone: choose from a list"),
    Word("fork", "[TURN[.STEP]]", "a copy of this session, up to the end of that, and go on there"),
    Word("title", "TEXT", "what the list of sessions calls this one"),
    Word("view", "[TURN]", "what happened so far, or in one turn"),
    Word("export", "FILE.md", "the conversation as Markdown"),
    Word("later", "TEXT", "a prompt for after this turn"),
    Word("out", "[N]", "the whole output of tool call N, or of the last one"),
    Word("copy", "[N]", "reply N, or the last one, to the terminal's clipboard and to a file"),
    Word("context", "", "what fills the model's window, and what was spent"),
    Word("compact", "", "shorten the conversation now"),
    Word("compacted", "", "the newest summary, as the model reads it"),
    Word("tools", "", "what the model may call"),
    Word("permissions", "", "what is allowed, asked, denied"),
    Word("plugins", "", "what is mounted"),
    Word("model", "", "which model answers"),
    Word("doctor", "", "what is wrong with this composition and this session, and what to do"),
    Word("thinking", "on|off", "print the model's reasoning"),
    Word("debug", "on|off", "tracebacks of contained failures"),
    Word("quit", "", "leave; the session is saved as it goes"),
)
NAMES: Final = tuple(word.name for word in WORDS)

KEYS: Final = """\
Enter        send; while it works: steer its next step
Alt-Enter    a new line (Ctrl-J, or \\ and Enter, too)
Up           take the newest queued message back; else what was typed before
Tab          complete a /word
Ctrl-C       stop the turn, and again: leave; idle: clear the line
Ctrl-D       leave, on an empty line
Ctrl-R       search what was typed before        Ctrl-G   write in $EDITOR
Ctrl-L       draw anew                           Ctrl-Z   suspend"""


def parsed(line: str) -> tuple[str, str] | None:
    """The word and its argument; None for a line that is no command."""
    if line.strip() == "?":
        return "help", ""
    if not line.startswith("/") or "\n" in line:
        return None
    name, _, argument = line[1:].partition(" ")
    if "/" in name:
        return None  # a path: /etc/hosts is text
    return name, argument.strip()


def unknown(name: str) -> str | None:
    """What is wrong with a word that is none; None if it is one."""
    if name in NAMES:
        return None
    hint = did_you_mean(name, NAMES)
    return f"no command {name!r}{hint} Nothing was sent; /help lists them"


def candidates(text: str) -> tuple[Word, ...]:
    """The words that a draft may become; none once its word is whole and something follows."""
    if not text.startswith("/") or " " in text or "\n" in text:
        return ()
    return tuple(word for word in WORDS if word.name.startswith(text[1:]))


def completed(text: str) -> str:
    """The text with its word completed, as far as that is certain."""
    found = [word.name for word in candidates(text)]
    if not found:
        return text
    if len(found) == 1:
        return f"/{found[0]} "
    shared = 0
    while len({name[: shared + 1] for name in found}) == 1:
        shared += 1
    return f"/{found[0][:shared]}"


def usage_line(word: Word) -> str:
    """One word as /help shows it."""
    return f"/{f'{word.name} {word.usage}'.strip():<20} {word.summary}"


def help_lines() -> list[str]:
    """The words and the keys."""
    lines = [usage_line(word) for word in WORDS]
    return [*lines, "", *KEYS.split("\n")]
