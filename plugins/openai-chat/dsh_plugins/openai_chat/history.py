"""The request body: each message encoded once, and joined.

What comes in: frozen requests. What goes out: the bytes of their JSON bodies. The fields that do
not change within a series come first and the messages last, so that each body begins with the
previous one up to its end, and a server's prefix cache sees it.

The cache holds no message alive and goes by identity: a message is immutable, so its encoding is
the same whenever it is made. Within a series the joined bytes are kept, too, so that a request
costs what it adds. A body made with the caches equals one made without, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never, final

import orjson

from dsh.catalog.records import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    ModelSource,
    ReasoningBlock,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    ToolSchema,
    UserMessage,
)
from dsh.llm import HistoryFolds, WeakIdentityMap, http

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh.catalog.records import ContentBlock, Message
    from dsh.hooks import JsonObject, JsonValue
    from dsh.hooks.live import LlmRequest
    from dsh_plugins.openai_chat.families import Server

__all__ = ["BodyEncoder"]

NO_OUTPUT: Final = "(no output)"
#: The key under which arguments that are no JSON object go back to the server.
RAW_ARGUMENTS: Final = "raw_arguments"


@final
class _Joined:
    """A fold of messages: all of them as JSON, with commas between."""

    __slots__ = ("_encode", "text")

    def __init__(self, encode: Callable[[Message], bytes]) -> None:
        self._encode: Final = encode
        self.text: Final = bytearray()

    def add(self, message: Message) -> None:
        encoded = self._encode(message)
        # An empty encoding is a message that has nothing to say on the wire.
        if encoded:
            if self.text:
                self.text.extend(b",")
            self.text.extend(encoded)


class BodyEncoder:
    """Encodes the requests of one provider route."""

    def __init__(self, server: Server) -> None:
        self._server: Final = server
        self._messages: Final[WeakIdentityMap[Message, bytes]] = WeakIdentityMap()
        self._joined: Final = HistoryFolds(lambda: _Joined(self.encoded))
        self._tools: Final[WeakIdentityMap[ToolSchema, bytes]] = WeakIdentityMap()

    def body(self, request: LlmRequest) -> bytes:
        """The JSON body of one request.

        Raises LlmError UNSUPPORTED_CONTENT, UNSUPPORTED_REASONING_EFFORT or INVALID_REQUEST.
        """
        messages: bytes | bytearray = self._joined.of(request.messages).text
        if request.system is not None:
            role = self._server.habits.system_role
            system = http.json_text({"role": role, "content": request.system})
            messages = b",".join((system, messages)) if messages else system
        return b"".join((self._head(request), b',"messages":[', messages, b"]}"))

    def _head(self, request: LlmRequest) -> bytes:
        habits = self._server.habits
        head: dict[str, JsonValue] = {"model": request.model, "stream": True}
        if habits.stream_usage:
            head["stream_options"] = {"include_usage": True}
        if request.reasoning_effort is not None:
            head.update(self._effort(request.reasoning_effort))
        if request.temperature is not None:
            head["temperature"] = request.temperature
        if request.max_tokens is not None:
            head[habits.max_tokens_field] = request.max_tokens
        if request.stop:
            head["stop"] = request.stop
        head.update(self._server.extra_body)
        encoded = http.json_text(head)
        if not request.tools:
            return encoded[:-1]
        tools = b",".join(self._tool(tool) for tool in request.tools)
        return b"".join((encoded[:-1], b',"tools":[', tools, b"]"))

    def _effort(self, effort: str) -> JsonObject:
        efforts = self._server.habits.efforts
        if efforts is None:
            return {"reasoning_effort": effort}
        return http.effort_fields(self._server.provider, efforts, effort)

    def _tool(self, tool: ToolSchema) -> bytes:
        encoded = self._tools.get(tool)
        if encoded is None:
            function: JsonObject = {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }
            encoded = http.json_text({"type": "function", "function": function})
            self._tools.put(tool, encoded)
        return encoded

    def encoded(self, message: Message) -> bytes:
        """One message as JSON, made once for each object; empty if it has nothing to say."""
        encoded = self._messages.get(message)
        if encoded is None:
            shape = self._shape(message)
            encoded = http.json_text(shape) if shape is not None else b""
            self._messages.put(message, encoded)
        return encoded

    def _shape(self, message: Message) -> dict[str, JsonValue] | None:
        match message:
            case SystemMessage():
                text = self._text(message.content, "\n\n")
                role = self._server.habits.system_role
                return {"role": role, "content": text} if text else None
            case UserMessage():
                return {"role": "user", "content": self._text(message.content, "\n\n")}
            case AssistantMessage():
                return self._assistant(message)
            case ToolResultMessage():
                return {
                    "role": "tool",
                    "tool_call_id": message.tool_call_id,
                    "content": self._text(message.content, "\n") or NO_OUTPUT,
                }
            case _:
                assert_never(message)

    def _assistant(self, message: AssistantMessage) -> dict[str, JsonValue] | None:
        text = self._text(
            (b for b in message.content if not isinstance(b, ReasoningBlock | ToolCallBlock)), ""
        )
        calls = [_call(block) for block in message.content if isinstance(block, ToolCallBlock)]
        if not text and not calls:
            # Strict servers refuse it; an aborted turn without visible text leaves such a one.
            return None
        # Never null: several servers refuse that beside tool calls.
        shape: dict[str, JsonValue] = {"role": "assistant", "content": text}
        thought = "".join(b.text for b in message.content if isinstance(b, ReasoningBlock))
        if thought and self._passes_back(message):
            shape[self._server.habits.reasoning_field] = thought
        if calls:
            shape["tool_calls"] = calls
        return shape

    def _passes_back(self, message: AssistantMessage) -> bool:
        match self._server.habits.passback:
            case "always":
                return True
            case "never":
                return False
            case "own":
                source = message.source
                return isinstance(source, ModelSource) and source.provider == self._server.provider

    def _text(self, blocks: Iterable[ContentBlock], joint: str) -> str:
        texts: list[str] = []
        for block in blocks:
            if isinstance(block, TextBlock):
                if block.text:
                    texts.append(block.text)
            elif isinstance(block, ImageBlock | FileBlock):
                raise http.unsendable(self._server.provider, block)
        return joint.join(texts)


def _call(block: ToolCallBlock) -> JsonValue:
    function = {"name": block.name, "arguments": wire_arguments(block.arguments)}
    return {"id": block.id, "type": "function", "function": function}


def wire_arguments(raw: str) -> str:
    """The arguments of an earlier call as every server accepts them: text of a JSON object.

    Blank text and null are `{}`. Text that is no JSON, and JSON that is no object, goes back whole
    under one key: the model sees what it wrote, and strict servers can parse it. The log keeps the
    raw text.
    """
    stripped = raw.strip()
    if not stripped or stripped == "null":
        return "{}"
    try:
        if isinstance(orjson.loads(raw), dict):
            return raw
    except orjson.JSONDecodeError:
        pass
    return http.json_text({RAW_ARGUMENTS: raw}).decode()
