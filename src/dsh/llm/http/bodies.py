"""What the bodies of every wire have in common: JSON text, efforts, what cannot be sent or read.

What comes in: parts of requests, and values that servers send. What goes out: bytes, fields, and
failures in the same words on every wire. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from dsh.errors import LlmError
from dsh.llm.failure import error_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh.catalog.records import FileBlock, ImageBlock
    from dsh.hooks import JsonObject, JsonValue

__all__ = ["effort_fields", "in_band", "json_text", "malformed", "unsendable"]


def json_text(value: Mapping[str, JsonValue]) -> bytes:
    """The JSON text of an object. Raises LlmError INVALID_REQUEST for what JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise LlmError(
            f"the request cannot be written as JSON: {error}", code="INVALID_REQUEST"
        ) from None


def effort_fields(provider: str, efforts: Mapping[str, JsonObject], effort: str) -> JsonObject:
    """What this effort adds to a body. Raises LlmError UNSUPPORTED_REASONING_EFFORT."""
    fields = efforts.get(effort)
    if fields is None:
        raise LlmError(
            f"provider {provider!r} takes the reasoning efforts "
            f"{', '.join(efforts) or '(none)'}; asked for {effort!r}",
            code="UNSUPPORTED_REASONING_EFFORT",
        )
    return fields


def unsendable(provider: str, block: ImageBlock | FileBlock) -> LlmError:
    """The failure that a block is which this wire cannot carry."""
    return LlmError(
        f"provider {provider!r} cannot send {block.type} "
        f"{block.attachment.name or block.attachment.attachment_id!r}; send its text instead",
        code="UNSUPPORTED_CONTENT",
    )


def in_band(value: JsonValue) -> LlmError:
    """The failure that a server reports inside a reply."""
    facts = error_facts(value)
    return LlmError(
        f"the server reported an error in its reply: {facts.message or facts.code}",
        code=facts.kind(),
        status=facts.status,
    )


def malformed(data: bytes, problem: str = "something that is no JSON object") -> LlmError:
    """The failure that an event is which cannot be understood."""
    shown = data[:120].decode(errors="replace")
    return LlmError(f"the server sent {problem}: {shown!r}", code="MALFORMED_RESPONSE")
