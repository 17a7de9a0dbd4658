"""Content blocks as this wire has them: one message's blocks, pure.

What comes in: messages of the history, whoever made them. What goes out: JSON objects that the
server accepts: no blank text, arguments that are objects, ids of allowed letters, thinking only
with the signature that came with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson

from dsh.catalog.records import (
    FileBlock,
    ImageBlock,
    ModelSource,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
)
from dsh.llm import http

if TYPE_CHECKING:
    from dsh.catalog.records import AssistantMessage, ContentBlock, ToolResultMessage
    from dsh.hooks import JsonObject, JsonValue

__all__ = ["assistant_blocks", "result_blocks", "texts", "wire_id"]

NO_OUTPUT: Final = "(no output)"
#: The key under which arguments that are no JSON object go back to the server.
RAW_ARGUMENTS: Final = "raw_arguments"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


def texts(blocks: Sequence[ContentBlock], provider: str) -> list[JsonObject]:
    """The texts that are not blank; the server refuses others."""
    found: list[JsonObject] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            if block.text.strip():
                found.append({"type": "text", "text": block.text})
        elif isinstance(block, ImageBlock | FileBlock):
            raise http.unsendable(provider, block)
    return found


def result_blocks(message: ToolResultMessage, provider: str) -> list[JsonObject]:
    """One tool result as its block."""
    content = texts(message.content, provider) or [{"type": "text", "text": NO_OUTPUT}]
    block: dict[str, JsonValue] = {
        "type": "tool_result",
        "tool_use_id": wire_id(message.tool_call_id),
        "content": content,
    }
    if message.is_error:
        block["is_error"] = True
    return [block]


def assistant_blocks(message: AssistantMessage, provider: str) -> list[JsonObject]:
    """A reply: thinking that has its signature, texts that are not blank, calls.

    A reply that has nothing to say on this wire has no blocks.
    """
    signs = _replay(message)
    found: list[JsonObject] = []
    for at, block in enumerate(message.content):
        if isinstance(block, ReasoningBlock):
            found.extend(_thinking(block, signs[at] if at < len(signs) else None))
        elif isinstance(block, ToolCallBlock):
            found.append(
                {
                    "type": "tool_use",
                    "id": wire_id(block.id),
                    "name": block.name,
                    "input": wire_input(block.arguments),
                }
            )
        else:
            found.extend(texts((block,), provider))
    if all(block["type"] in {"thinking", "redacted_thinking"} for block in found):
        return []
    return found


def _replay(message: AssistantMessage) -> Sequence[JsonValue]:
    source = message.source
    state = source.replay_state if isinstance(source, ModelSource) else None
    blocks = state.get("blocks") if isinstance(state, Mapping) else None
    if not isinstance(blocks, list | tuple) or len(blocks) != len(message.content):
        return ()
    return blocks


def _thinking(block: ReasoningBlock, sign: JsonValue) -> list[JsonObject]:
    if not isinstance(sign, Mapping):
        return []
    redacted, signature = sign.get("redacted"), sign.get("signature")
    if isinstance(redacted, str):
        return [{"type": "redacted_thinking", "data": redacted}]
    if isinstance(signature, str):
        return [{"type": "thinking", "thinking": block.text, "signature": signature}]
    return []


def wire_id(call_id: str) -> str:
    """The id of a call in letters that the server accepts, the same for call and result."""
    if _ID.fullmatch(call_id):
        return call_id
    return f"call_{sha256(call_id.encode(errors='replace')).hexdigest()[:32]}"


def wire_input(raw: str) -> JsonValue:
    """The arguments of an earlier call as an object. The log keeps the raw text.

    Blank text and null are `{}`. What is no JSON object goes back whole under one key.
    """
    stripped = raw.strip()
    if not stripped or stripped == "null":
        return {}
    try:
        value: JsonValue = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {RAW_ARGUMENTS: raw}
