"""The texts of a compaction: what the model is asked, and the message that stands for the rest.

What comes in: a summary, pinned messages, ids. What goes out: messages. Pure. The wording is for
models; nothing of it is parsed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.catalog import records

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["checkpoint", "instruction", "instruction_text", "text_of"]

INSTRUCTION: Final = """\
The conversation has grown long. Write a summary that takes the place of everything above it, so \
that somebody who reads only the summary can go on with the work. Answer with the summary alone; \
call no tool.

Write these sections, leaving out those that would be empty:

1. Goal: what the user wants, in the user's own terms, with every constraint that was stated.
2. Facts: names, numbers, paths, commands, decisions and their reasons, exactly as they were given.
3. Files and code: what was read, made or changed, and the state it is in now.
4. Errors: what went wrong, what it meant, how it was solved, what was tried in vain.
5. Open: what was asked for and is not done.
6. Now: what was being worked on at the end, and the next step.

An earlier summary above is part of what is to be summarised: keep what still matters of it. Do \
not make anything up, and do not address the user."""

PREAMBLE: Final = (
    "The older part of this conversation was summarised to save room. What follows stands for it; "
    "go on from here as if you remembered it."
)
WISH: Final = "The user asks that this summary heeds, above all:"
KEPT: Final = "These messages of the older part are kept word for word:"


def instruction_text(wish: str | None) -> str:
    """What the model is asked for; `wish` is what a person wants to be heeded."""
    return INSTRUCTION if wish is None else f"{INSTRUCTION}\n\n{WISH}\n\n{wish}"


def instruction(message_id: str, wish: str | None) -> records.UserMessage:
    """The last message of the request for a summary."""
    return _by_plugin(message_id, instruction_text(wish), {"request": "summary"})


def checkpoint(
    message_id: str,
    compaction_id: str,
    summary: str,
    pinned: Sequence[records.UserMessage],
) -> records.UserMessage:
    """The message that stands for what was summarised, with what is kept word for word."""
    parts = [PREAMBLE, f"<summary>\n{summary}\n</summary>"]
    if pinned:
        parts.append(KEPT)
        parts.extend(f"<message>\n{text_of(message.content)}\n</message>" for message in pinned)
    return _by_plugin(
        message_id,
        "\n\n".join(parts),
        {"compactionId": compaction_id, "kept": tuple(message.id for message in pinned)},
    )


def text_of(blocks: Sequence[records.ContentBlock]) -> str:
    """The text of some blocks, joined by blank lines."""
    return "\n\n".join(block.text for block in blocks if isinstance(block, records.TextBlock))


def _by_plugin(
    message_id: str, text: str, data: dict[str, str | tuple[str, ...]]
) -> records.UserMessage:
    return records.UserMessage(
        id=message_id,
        content=(records.TextBlock(text=text),),
        source=records.PluginSource(plugin="compaction", form="recall", data=data),
    )
