"""Anthropic's messages as the fault server speaks them: replies and error objects.

What comes in: script entries. What goes out: frozen replies. Pure; the same arguments make the same
bytes. The faults, cuts and gates of `replies` apply to these replies as to any others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from attrs import evolve

from dsh.testing.model_server.replies import Step, Wait, WireReply, error_reply

if TYPE_CHECKING:
    from dsh.hooks import JsonValue
    from dsh.llm import ScriptEntry

__all__ = ["messages_error", "messages_event", "messages_reply_of"]


def messages_event(value: dict[str, JsonValue]) -> bytes:
    """One server-sent event, named by the `type` of its data."""
    return b"event: %b\ndata: %b\n\n" % (str(value.get("type")).encode(), orjson.dumps(value))


def messages_error(status: int, kind: str, message: str) -> WireReply:
    """An error status with this wire's error object."""
    return error_reply(status, {"type": "error", "error": {"type": kind, "message": message}})


def messages_reply_of(entry: ScriptEntry, number: int = 1) -> WireReply:
    """The wire form of a script entry, word by word; `number` makes ids and signatures unique.

    Reasoning is signed; the reply's `reasoning` has its text by signature, so that a strict server
    can ask for exactly that back.
    """
    failure = entry.error
    before: tuple[Step, ...] = (Wait(entry.delay),) if entry.delay else ()
    if failure is not None and failure.status is not None:
        refused = messages_error(failure.status, failure.code, failure.message)
        if failure.provider_retry_after_ms is not None:
            wait = ("retry-after-ms", f"{failure.provider_retry_after_ms:g}")
            refused = evolve(refused, headers=(*refused.headers, wait))
        return evolve(refused, before=before)
    steps: list[Step] = [_start(entry, number), messages_event({"type": "ping"})]
    signature = f"signature-{number}"
    if entry.reasoning:
        deltas: list[dict[str, JsonValue]] = [
            {"type": "thinking_delta", "thinking": word} for word in _words(entry.reasoning)
        ]
        deltas.append({"type": "signature_delta", "signature": signature})
        steps += _block(0, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
    index = 1 if entry.reasoning else 0
    if entry.text:
        words: list[dict[str, JsonValue]] = [
            {"type": "text_delta", "text": word} for word in _words(entry.text)
        ]
        steps += _block(index, {"type": "text", "text": ""}, words)
        index += 1
    for at, call in enumerate(entry.tools):
        half = len(call.arguments) // 2
        parts: list[dict[str, JsonValue]] = [
            {"type": "input_json_delta", "partial_json": part}
            for part in ("", call.arguments[:half], call.arguments[half:])
        ]
        opened: dict[str, JsonValue] = {
            "type": "tool_use",
            "id": call.id or f"toolu_{number}_{at}",
            "name": call.name,
            "input": {},
        }
        steps += _block(index, opened, parts)
        index += 1
    headers = (("content-type", "text/event-stream"),)
    if failure is not None:
        error: JsonValue = {"type": failure.code, "message": failure.message}
        steps.append(messages_event({"type": "error", "error": error}))
        return WireReply(steps=tuple(steps), before=before, headers=headers)
    steps += [_end(entry), messages_event({"type": "message_stop"})]
    signed = ((signature, entry.reasoning),) if entry.reasoning else ()
    return WireReply(steps=tuple(steps), before=before, headers=headers, reasoning=signed)


def _start(entry: ScriptEntry, number: int) -> bytes:
    message: dict[str, JsonValue] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    if entry.usage is not None:
        message["usage"] = {
            "input_tokens": entry.usage.input_tokens,
            "cache_read_input_tokens": entry.usage.cache_read_tokens or 0,
            "cache_creation_input_tokens": entry.usage.cache_write_tokens or 0,
            "output_tokens": 1,
        }
    return messages_event({"type": "message_start", "message": message})


def _end(entry: ScriptEntry) -> bytes:
    match entry.finish:
        case "max-tokens":
            reason = "max_tokens"
        case "error":
            reason = "scripted_error"
        case _:
            reason = "tool_use" if entry.tools else "end_turn"
    ended: dict[str, JsonValue] = {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
    }
    if entry.usage is not None:
        ended["usage"] = {"output_tokens": entry.usage.output_tokens}
    return messages_event(ended)


def _block(
    index: int, opened: dict[str, JsonValue], deltas: list[dict[str, JsonValue]]
) -> list[Step]:
    return [
        messages_event({"type": "content_block_start", "index": index, "content_block": opened}),
        *(
            messages_event({"type": "content_block_delta", "index": index, "delta": delta})
            for delta in deltas
        ),
        messages_event({"type": "content_block_stop", "index": index}),
    ]


def _words(text: str) -> list[str]:
    pieces: list[str] = []
    for word in text.split(" "):
        pieces.append(word if not pieces else f" {word}")
    return [piece for piece in pieces if piece]
