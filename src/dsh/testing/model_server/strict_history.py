"""What strict servers refuse in a request: the rules of the chat-completions history.

What comes in: the parsed body of a request. What goes out: the refusal in words, as a server would
put it, or None. Pure. Each rule is one that some real server enforces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeGuard

import orjson

if TYPE_CHECKING:
    from dsh.hooks import JsonObject, JsonValue

__all__ = ["refusal_of"]

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
REASONING_REFUSED: Final = (
    "The `reasoning_content` in the thinking mode must be passed back to the API."
)


def refusal_of(body: JsonValue, reasoning: Mapping[str, str] | None = None) -> str | None:
    """The first rule that a request breaks, or None.

    `reasoning` has, by call id, what the model thought when it made the call; then a history that
    does not bring exactly that back is refused.
    """
    if not isinstance(body, Mapping):
        return "the body is no JSON object"
    if not body.get("model") or not isinstance(body.get("model"), str):
        return "model: a name is required"
    messages = body.get("messages")
    if not _is_list(messages) or not messages:
        return "messages: at least one is required"
    return _tools_fault(body.get("tools")) or _messages_fault(messages, reasoning or {})


def _messages_fault(messages: Sequence[JsonValue], reasoning: Mapping[str, str]) -> str | None:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            return f"{where}: no message with a known role"
        role = message["role"]
        if role == "tool":
            call_id = message.get("tool_call_id")
            if not waiting:
                return f"{where}: a tool message must follow the tool_calls it answers"
            if call_id != waiting[0]:
                return f"{where}: answers {call_id!r} where {waiting[0]!r} is due"
            waiting.pop(0)
        elif waiting:
            return f"{where}: tool_call_ids without a response: {', '.join(waiting)}"
        fault = _content_fault(message) or (
            _calls_fault(message, reasoning) if role == "assistant" else None
        )
        if fault is not None:
            return f"{where}: {fault}"
        if role == "assistant":
            waiting = [str(call["id"]) for call in _calls(message)]
    return f"tool_call_ids without a response: {', '.join(waiting)}" if waiting else None


def _content_fault(message: JsonObject) -> str | None:
    content = message.get("content")
    if not isinstance(content, str) and not (_is_list(content) and content):
        return "content must be text, and is required"
    if message["role"] == "assistant" and not content and not message.get("tool_calls"):
        return "an assistant message must have content or tool_calls"
    return None


def _calls_fault(message: JsonObject, reasoning: Mapping[str, str]) -> str | None:
    if "reasoning_content" in message and not message["reasoning_content"]:
        return "reasoning_content must be left out when there is none"
    if "tool_calls" not in message:
        return None
    calls = message["tool_calls"]
    if not _is_list(calls) or not calls:
        return "tool_calls must not be empty"
    seen: set[str] = set()
    for call in calls:
        if not isinstance(call, Mapping):
            return "tool_calls: each must be an object"
        fault = _call_fault(call, seen)
        if fault is not None:
            return f"tool_calls: {fault}"
        call_id = call["id"]
        if call_id in reasoning and message.get("reasoning_content") != reasoning[str(call_id)]:
            return REASONING_REFUSED
    return None


def _call_fault(call: JsonObject, seen: set[str]) -> str | None:
    call_id, function = call.get("id"), call.get("function")
    if call.get("type") != "function":
        return "each needs the type 'function'"
    if not isinstance(call_id, str) or not call_id or call_id in seen:
        return f"id {call_id!r} is missing or not unique"
    seen.add(call_id)
    if not isinstance(function, Mapping) or not _is_name(function.get("name")):
        return f"{call_id!r} has no proper function name"
    if not _is_object_text(function.get("arguments")):
        return f"the arguments of {call_id!r} must be the text of a JSON object"
    return None


def _tools_fault(tools: JsonValue) -> str | None:
    if tools is None:
        return None
    if not _is_list(tools) or not tools:
        return "tools must not be empty"
    names: set[str] = set()
    for at, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping):
            return f"tools[{at}]: a function is required"
        name, parameters = function.get("name"), function.get("parameters")
        if not isinstance(name, str) or not _is_name(name) or name in names:
            return f"tools[{at}]: the name {name!r} is not proper or not unique"
        names.add(name)
        if not isinstance(parameters, Mapping) or parameters.get("type") != "object":
            return f"tools[{at}]: parameters must be a schema of type 'object'"
    return None


def _calls(message: JsonObject) -> list[JsonObject]:
    calls = message.get("tool_calls")
    return [c for c in calls if isinstance(c, Mapping)] if _is_list(calls) else []


def _is_list(value: JsonValue) -> TypeGuard[Sequence[JsonValue]]:
    return isinstance(value, list | tuple)


def _is_name(value: JsonValue) -> bool:
    return isinstance(value, str) and TOOL_NAME.fullmatch(value) is not None


def _is_object_text(value: JsonValue) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False
