"""A reply as the conventions for generative AI write it: a role, and parts.

What comes in: a logged reply. What goes out: the JSON text of `gen_ai.output.messages`. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from dsh.catalog import records

if TYPE_CHECKING:
    from dsh_plugins.telemetry.spans import Value

__all__ = ["output_messages"]


def output_messages(message: records.AssistantMessage, finish: Value | None) -> str:
    """One message, with the reason for which it ended if it is known."""
    written: dict[str, object] = {
        "role": message.role,
        "parts": [_part(block) for block in message.content],
    }
    if isinstance(finish, tuple):
        written["finish_reason"] = finish[0]
    return orjson.dumps([written]).decode()


def _part(block: records.ContentBlock) -> dict[str, str]:
    match block:
        case records.TextBlock(text=text):
            return {"type": "text", "content": text}
        case records.ReasoningBlock(text=text):
            return {"type": "reasoning", "content": text}
        case records.ToolCallBlock():
            return {
                "type": "tool_call",
                "id": block.id,
                "name": block.name,
                "arguments": block.arguments,
            }
        case records.ImageBlock() | records.FileBlock():
            return {"type": block.type, "id": block.attachment.attachment_id}
