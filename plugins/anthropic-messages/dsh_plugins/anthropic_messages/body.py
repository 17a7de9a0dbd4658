"""The request body: each message encoded once, and joined.

What comes in: frozen requests. What goes out: the bytes of their JSON bodies, what does not change
within a series first. Messages of one role in a row become one, as this wire wants turns to
alternate; results stand before texts. Marks for the server's cache are on the last tool, the system
prompt, and the two newest messages of the user, so that a body's beginning is that of the one
before, but for the marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dsh.catalog.records import (
    AssistantMessage,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)
from dsh.errors import LlmError
from dsh.llm import WeakIdentityMap, http
from dsh_plugins.anthropic_messages.blocks import assistant_blocks, result_blocks, texts
from dsh_plugins.anthropic_messages.servers import BUDGET_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.catalog.records import Message, ToolSchema
    from dsh.hooks import JsonObject, JsonValue
    from dsh.hooks.live import LlmRequest
    from dsh_plugins.anthropic_messages.servers import Server

__all__ = ["BodyEncoder"]

Role: TypeAlias = Literal["user", "assistant"]

MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
#: How many of the user's newest messages are marked; with tools and system prompt that makes four.
MARKED: Final = 2
#: The wire wants the user to speak first.
OPENING: Final = b'{"type":"text","text":"(the conversation begins)"}'


class BodyEncoder:
    """Encodes the requests of one provider route."""

    def __init__(self, server: Server) -> None:
        self._server: Final = server
        self._marks: Final = server.profile.cache == "marks"
        self._messages: Final[WeakIdentityMap[Message, tuple[bytes, ...]]] = WeakIdentityMap()
        self._tools: Final[WeakIdentityMap[ToolSchema, bytes]] = WeakIdentityMap()

    def body(self, request: LlmRequest) -> bytes:
        """The JSON body of one request.

        Raises LlmError UNSUPPORTED_CONTENT, UNSUPPORTED_REASONING_EFFORT, UNSUPPORTED or
        INVALID_REQUEST.
        """
        turns = self._turns(request.messages)
        if not turns or turns[0][0] == "assistant":
            turns.insert(0, ("user", [OPENING]))
        if self._marks:
            self._mark(turns)
        messages = b",".join(
            b'{"role":"%b","content":[%b]}' % (role.encode(), b",".join(blocks))
            for role, blocks in turns
        )
        return b"".join((self._head(request), b',"messages":[', messages, b"]}"))

    def _turns(self, messages: Sequence[Message]) -> list[tuple[Role, list[bytes]]]:
        turns: list[tuple[Role, list[bytes]]] = []
        for message in messages:
            if isinstance(message, SystemMessage):
                continue
            role: Role = "assistant" if isinstance(message, AssistantMessage) else "user"
            blocks = self.encoded(message)
            if not blocks:
                continue
            if turns and turns[-1][0] == role:
                turns[-1][1].extend(blocks)
            else:
                turns.append((role, list(blocks)))
        return turns

    @staticmethod
    def _mark(turns: list[tuple[Role, list[bytes]]]) -> None:
        left = MARKED
        for role, blocks in reversed(turns):
            if role == "user" and left:
                blocks[-1] = blocks[-1][:-1] + MARK
                left -= 1

    def encoded(self, message: Message) -> tuple[bytes, ...]:
        """The blocks of one message, made once for each object; empty if it has nothing to say."""
        encoded = self._messages.get(message)
        if encoded is None:
            encoded = tuple(http.json_text(block) for block in self._blocks(message))
            self._messages.put(message, encoded)
        return encoded

    def _blocks(self, message: Message) -> list[JsonObject]:
        match message:
            case AssistantMessage():
                return assistant_blocks(message, self._server.provider)
            case ToolResultMessage():
                return result_blocks(message, self._server.provider)
            case UserMessage():
                return texts(message.content, self._server.provider)
            case SystemMessage():
                return []

    def _head(self, request: LlmRequest) -> bytes:
        cap = request.max_tokens
        if cap is None:
            cap = self._server.profile.max_tokens
        head: dict[str, JsonValue] = {"model": request.model, "max_tokens": cap, "stream": True}
        thinking = self._thinking(request, cap)
        head.update(thinking)
        if request.temperature is not None:
            if _thinks(thinking):
                raise LlmError(
                    f"provider {self._server.provider!r} takes no temperature while it thinks; "
                    "leave out the temperature or the reasoning effort",
                    code="UNSUPPORTED",
                )
            head["temperature"] = request.temperature
        if request.stop:
            head["stop_sequences"] = request.stop
        head.update(self._server.extra_body)
        parts = [http.json_text(head)[:-1]]
        if request.tools:
            tools = [self._tool(tool) for tool in request.tools]
            if self._marks:
                tools[-1] = tools[-1][:-1] + MARK
            parts.append(b',"tools":[%b]' % b",".join(tools))
        system = self._system(request)
        if system:
            block = http.json_text({"type": "text", "text": system})
            parts.append(b',"system":[%b]' % (block[:-1] + MARK if self._marks else block))
        return b"".join(parts)

    @staticmethod
    def _system(request: LlmRequest) -> str:
        said = [request.system] if request.system else []
        for message in request.messages:
            if isinstance(message, SystemMessage):
                said.extend(b.text for b in message.content if isinstance(b, TextBlock) and b.text)
        return "\n\n".join(said)

    def _thinking(self, request: LlmRequest, cap: int) -> JsonObject:
        effort = request.reasoning_effort
        if effort is None:
            return {}
        fields = http.effort_fields(self._server.provider, self._server.efforts, effort)
        if not _thinks(fields):
            return fields
        if _unsigned_batch(request.messages):
            # The calls just answered were made elsewhere, or without thinking: the server takes
            # no thinking for the rest of such a turn.
            return {}
        return self._fitting(fields, cap, effort)

    def _fitting(self, fields: JsonObject, cap: int, effort: str) -> JsonObject:
        """Thinking is part of the output: its budget must leave room below the cap."""
        thinking = fields["thinking"]
        budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
        if not isinstance(budget, int) or budget < cap:
            return fields
        room = cap // 2
        if room < BUDGET_MIN:
            raise LlmError(
                f"the effort {effort!r} of provider {self._server.provider!r} needs at least "
                f"{2 * BUDGET_MIN} output tokens; the cap is {cap}: raise `maxTokens`",
                code="UNSUPPORTED_REASONING_EFFORT",
            )
        return {**fields, "thinking": {"type": "enabled", "budget_tokens": room}}

    def _tool(self, tool: ToolSchema) -> bytes:
        encoded = self._tools.get(tool)
        if encoded is None:
            encoded = http.json_text(
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
            )
            self._tools.put(tool, encoded)
        return encoded


def _thinks(fields: Mapping[str, JsonValue]) -> bool:
    thinking = fields.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") != "disabled"


def _unsigned_batch(messages: Sequence[Message]) -> bool:
    """Whether the request goes on with calls whose first reply has no thinking to give back.

    A message of the user that comes with results does not begin a turn on this wire.
    """
    first: AssistantMessage | None = None
    answers = False
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            if not answers:
                break
            first, answers = message, False
        elif isinstance(message, ToolResultMessage):
            answers = True
    if first is None:
        return False
    opening = next(iter(assistant_blocks(first, "")), None)
    return opening is None or opening.get("type") not in {"thinking", "redacted_thinking"}
