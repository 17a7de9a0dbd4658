"""The demo: a scripted model's lines, what they may do, and the file they work on.

What comes in: a workspace. What goes out: the script (plain data, never parsed), the rules that
allow exactly its calls, and one small text file. The script plays the same whatever was asked.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from dsh.errors import UsageError

__all__ = ["DEMO_ALLOWED", "DEMO_PROMPT", "DEMO_SCRIPT", "demo_workspace", "furnish"]

DEMO_PROMPT: Final = "Read notes.txt, write a summary of it, and check the summary's length."

NOTES_NAME: Final = "notes.txt"
SUMMARY_NAME: Final = "summary.md"
COMMAND: Final = f"wc -w {SUMMARY_NAME}"

NOTES: Final = """\
Garden, first week of May
- Beans came up on Tuesday, twelve of twenty.
- The cold frame froze on Wednesday night; two lettuces lost.
- Water butt is full again after the rain.
- Ask Ines about the seed potatoes.
"""

SUMMARY: Final = """\
# The garden in May

Twelve beans are up and the water butt is full. Two lettuces froze.
Open: ask Ines about the seed potatoes.
"""

DEMO_SCRIPT: Final[tuple[dict[str, object], ...]] = (
    {
        "text": "I will read the notes first.",
        "tools": ({"name": "read_file", "arguments": {"path": NOTES_NAME}},),
    },
    {
        "text": "Four short entries. I will write the summary to a file of its own.",
        "tools": ({"name": "write_file", "arguments": {"path": SUMMARY_NAME, "content": SUMMARY}},),
    },
    {
        "text": "Now its length.",
        "tools": ({"name": "bash", "arguments": {"command": COMMAND}},),
    },
    {
        "text": (
            f"Done. {SUMMARY_NAME} says what happened in the garden this week, and what is still "
            "open: asking Ines about the seed potatoes."
        ),
    },
)

DEMO_ALLOWED: Final[tuple[dict[str, object], ...]] = (
    {"decision": "allow", "tool": "write_file", "pattern": SUMMARY_NAME},
    {"decision": "allow", "tool": "bash", "pattern": COMMAND},
)


def demo_workspace() -> Path:
    """A fresh temporary directory. It is left in place, so that its files can be looked at."""
    return Path(mkdtemp(prefix="dsh-demo-"))


def furnish(workspace: Path) -> None:
    """Put the file that the script reads into `workspace`, unless it has one of that name."""
    notes = workspace / NOTES_NAME
    try:
        with notes.open("x", encoding="utf-8") as file:
            file.write(NOTES)
    except FileExistsError:
        return
    except OSError as error:
        raise UsageError(
            f"cannot write {notes} for the demo: {error.strerror or error}; "
            "leave out --cwd, and the demo makes a workspace of its own"
        ) from error
