"""What strict servers refuse in a request: the rules of Anthropic's messages.

What comes in: the parsed body of a request. What goes out: the refusal in words, as a server would
put it, or None. Pure. Each rule is one that the real server enforces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeGuard

if TYPE_CHECKING:
    from dsh.hooks import JsonObject, JsonValue

__all__ = ["messages_refusal_of"]

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
MARKS_MAX: Final = 4
BUDGET_MIN: Final = 1024


def messages_refusal_of(body: JsonValue, signed: Mapping[str, str] | None = None) -> str | None:
    """The first rule that a request breaks, or None.

    `signed` has, by signature, the thinking that the server made; a signature it did not make, or
    one with other thinking, is refused.
    """
    if not isinstance(body, Mapping):
        return "the body is no JSON object"
    if not body.get("model") or not isinstance(body.get("model"), str):
        return "model: Field required"
    cap = body.get("max_tokens")
    if type(cap) is not int or cap < 1:
        return "max_tokens: Field required"
    messages = body.get("messages")
    if not _is_list(messages) or not messages:
        return "messages: at least one message is required"
    if _marks(body) > MARKS_MAX:
        return f"A maximum of {MARKS_MAX} blocks with cache_control may be provided"
    return (
        _thinking_fault(body, cap, messages)
        or _tools_fault(body.get("tools"))
        or _texts_fault("system", body.get("system"))
        or _messages_fault(messages, signed or {})
    )


def _marks(value: JsonValue) -> int:
    if isinstance(value, Mapping):
        return int("cache_control" in value) + sum(map(_marks, value.values()))
    return sum(map(_marks, value)) if _is_list(value) else 0


def _thinking_fault(body: JsonObject, cap: int, messages: Sequence[JsonValue]) -> str | None:
    thinking = body.get("thinking")
    if not isinstance(thinking, Mapping) or thinking.get("type") != "enabled":
        return None
    budget = thinking.get("budget_tokens")
    if type(budget) is not int or budget < BUDGET_MIN:
        return f"thinking.budget_tokens: Input should be greater than or equal to {BUDGET_MIN}"
    if budget >= cap:
        return "`max_tokens` must be greater than `thinking.budget_tokens`"
    if "temperature" in body:
        return "`temperature` may only be set to 1 when thinking is enabled"
    return _loop_fault(messages)


def _loop_fault(messages: Sequence[JsonValue]) -> str | None:
    """A turn that goes on with results must have begun with thinking."""
    first: list[JsonObject] = []
    for message in reversed(messages):
        if not isinstance(message, Mapping):
            return None
        blocks = _blocks(message)
        if message.get("role") == "assistant":
            first = list(blocks)
        elif not any(block.get("type") == "tool_result" for block in blocks):
            break
    calls = any(block.get("type") == "tool_use" for block in first)
    if calls and first[0].get("type") not in {"thinking", "redacted_thinking"}:
        return "Expected `thinking` or `redacted_thinking`, but found `tool_use`"
    return None


def _tools_fault(tools: JsonValue) -> str | None:
    if tools is None:
        return None
    names: set[str] = set()
    for at, tool in enumerate(tools if _is_list(tools) else ()):
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if not isinstance(tool, Mapping) or not _is_name(name) or name in names:
            return f"tools.{at}: the name {name!r} is not proper or not unique"
        names.add(str(name))
        schema = tool.get("input_schema")
        if not isinstance(schema, Mapping) or schema.get("type") != "object":
            return f"tools.{at}.input_schema.type: Field required"
    return None


def _texts_fault(where: str, blocks: JsonValue) -> str | None:
    for block in blocks if _is_list(blocks) else ():
        if not isinstance(block, Mapping) or block.get("type") != "text":
            continue
        text = block.get("text")
        if not isinstance(text, str) or not text.strip():
            return f"{where}: text content blocks must contain non-whitespace text"
    return None


def _messages_fault(messages: Sequence[JsonValue], signed: Mapping[str, str]) -> str | None:
    waiting: list[str] = []
    before = ""
    for at, message in enumerate(messages):
        where = f"messages.{at}"
        role = message.get("role") if isinstance(message, Mapping) else None
        if not isinstance(message, Mapping) or role not in {"user", "assistant"}:
            return f"{where}: Input should be 'user' or 'assistant'"
        if role == before or (at == 0 and role != "user"):
            return f"{where}: roles must alternate, beginning with the user"
        before = str(role)
        blocks = _blocks(message)
        if not blocks:
            return f"{where}: all messages must have non-empty content"
        fault = _texts_fault(where, blocks)
        if fault is None:
            fault = (
                _answers_fault(blocks, waiting) if role == "user" else _reply_fault(blocks, signed)
            )
        if fault is not None:
            return f"{where}: {fault}"
        waiting = (
            [str(b["id"]) for b in blocks if b.get("type") == "tool_use"]
            if role == "assistant"
            else []
        )
    return f"`tool_use` ids were found without `tool_result`: {waiting}" if waiting else None


def _answers_fault(blocks: Sequence[JsonObject], waiting: Sequence[str]) -> str | None:
    answered: list[str] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            if len(answered) == len(waiting) or block.get("tool_use_id") not in waiting:
                return f"unexpected `tool_use_id` {block.get('tool_use_id')!r}"
            if len(answered) != blocks.index(block):
                return "tool_result blocks must stand before other content"
            answered.append(str(block["tool_use_id"]))
            fault = _texts_fault("tool_result", block.get("content"))
            if fault is not None:
                return fault
    if sorted(answered) != sorted(waiting):
        return f"`tool_use` ids were found without `tool_result` blocks: {list(waiting)}"
    return None


def _reply_fault(blocks: Sequence[JsonObject], signed: Mapping[str, str]) -> str | None:
    seen: set[str] = set()
    for block in blocks:
        match block.get("type"):
            case "tool_use":
                call_id = block.get("id")
                if not _is_name(call_id) or call_id in seen or not _is_name(block.get("name")):
                    return f"tool_use {call_id!r} has no proper id or name, or not a unique one"
                seen.add(str(call_id))
                if not isinstance(block.get("input"), Mapping):
                    return f"tool_use {call_id!r}: input should be an object"
            case "thinking":
                signature = block.get("signature")
                if not isinstance(signature, str) or signature not in signed:
                    return "Invalid `signature` in `thinking` block"
                if signed[signature] != block.get("thinking"):
                    return "`thinking` blocks cannot be modified"
            case _:
                pass
    return None


def _blocks(message: JsonObject) -> Sequence[JsonObject]:
    content = message.get("content")
    if isinstance(content, str):
        return ({"type": "text", "text": content},) if content else ()
    return [b for b in content if isinstance(b, Mapping)] if _is_list(content) else ()


def _is_list(value: JsonValue) -> TypeGuard[Sequence[JsonValue]]:
    return isinstance(value, list | tuple)


def _is_name(value: JsonValue) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None
