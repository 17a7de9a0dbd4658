"""The request body: each message encoded once, and joined.

What comes in: frozen requests. What goes out: the bytes of their JSON bodies, what does not change
within a series first. Messages of one role in a row become one, as this wire wants turns to
alternate; results stand before texts. Marks for the server's cache are on the last tool, the system
prompt, and the two newest messages of the user, so that a body's beginning is that of the one
before, but for the marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from dsh.catalog.records import (
    AssistantMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from dsh.errors import LlmError
from dsh.llm import HistoryFolds, WeakIdentityMap, http
from dsh_plugins.anthropic_messages.blocks import assistant_blocks, result_blocks, texts
from dsh_plugins.anthropic_messages.servers import BUDGET_MIN
from dsh_plugins.anthropic_messages.turns import MARK, Turns

if TYPE_CHECKING:
    from dsh.catalog.records import Message, ToolSchema
    from dsh.hooks import JsonObject, JsonValue
    from dsh.hooks.live import LlmRequest
    from dsh_plugins.anthropic_messages.servers import Server

__all__ = ["BodyEncoder"]


class BodyEncoder:
    """Encodes the requests of one provider route."""

    def __init__(self, server: Server) -> None:
        self._server: Final = server
        self._marks: Final = server.profile.cache == "marks"
        self._messages: Final[WeakIdentityMap[Message, tuple[bytes, ...]]] = WeakIdentityMap()
        self._turns: Final = HistoryFolds(lambda: Turns(self.encoded))
        self._tools: Final[WeakIdentityMap[ToolSchema, bytes]] = WeakIdentityMap()

    def body(self, request: LlmRequest) -> bytes:
        """The JSON body of one request.

        Raises LlmError UNSUPPORTED_CONTENT, UNSUPPORTED_REASONING_EFFORT, UNSUPPORTED or
        INVALID_REQUEST.
        """
        turns = self._turns.of(request.messages)
        messages = turns.parts(marked=self._marks)
        return b"".join((*self._head(request, turns), b',"messages":[', *messages, b"]}"))

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

    def _head(self, request: LlmRequest, turns: Turns) -> list[bytes]:
        cap = request.max_tokens
        if cap is None:
            cap = self._server.profile.max_tokens
        head: dict[str, JsonValue] = {"model": request.model, "max_tokens": cap, "stream": True}
        thinking = self._thinking(request, cap, unsigned_batch=turns.unsigned_batch)
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
        said = [request.system, *turns.prompts] if request.system else turns.prompts
        if said:
            block = http.json_text({"type": "text", "text": "\n\n".join(said)})
            parts.append(b',"system":[%b]' % (block[:-1] + MARK if self._marks else block))
        return parts

    def _thinking(self, request: LlmRequest, cap: int, *, unsigned_batch: bool) -> JsonObject:
        effort = request.reasoning_effort
        if effort is None:
            return {}
        fields = http.effort_fields(self._server.provider, self._server.efforts, effort)
        if not _thinks(fields):
            return fields
        if unsigned_batch:
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
