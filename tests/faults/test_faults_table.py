"""What servers do, and what comes of it, on both wires: one table (`pytest -s` prints it)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest
import trio
from attrs import evolve

from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin
from dsh.catalog import records
from dsh.llm import Assembler, ScriptedCall, ScriptEntry, grammar_fault
from dsh.testing import (
    Close,
    Hang,
    Reset,
    Wait,
    WireReply,
    broken_off,
    by_bytes,
    error_reply,
    messages_reply_of,
    open_model_server,
    recut,
    reply_of,
)
from dsh.testing.model_seam import ask, open_seam, user
from dsh_plugins.anthropic_messages import anthropic_messages
from dsh_plugins.anthropic_messages.catalog import AnthropicMessagesConfig, MessagesProfile
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile

if TYPE_CHECKING:
    from dsh.testing.model_server import Step

WIRES: Final = ("chat", "messages")
TEXT: Final = ScriptEntry(text="all is well, says the 模型")
CALL: Final = ScriptEntry(tools=(ScriptedCall(name="read", arguments='{"path": "a/b/c/d"}'),))
PINGS: Final[tuple[Step, ...]] = (b": keep-alive\n\n", Wait(0.04)) * 12

Make: TypeAlias = Callable[[ScriptEntry], WireReply]
Behaviour: TypeAlias = Callable[[Make], WireReply]


def whole(reply: WireReply) -> bytes:
    return b"".join(step for step in reply.steps if isinstance(step, bytes))


def typed(kind: str, body: bytes) -> WireReply:
    return WireReply(steps=(body,), headers=(("content-type", kind),), framing="length")


def patched(reply: WireReply, old: bytes, new: bytes) -> WireReply:
    body = whole(reply)
    assert old in body
    return evolve(reply, steps=(body.replace(old, new),))


def refused(status: int, words: str) -> Behaviour:
    return lambda _make: error_reply(status, {"error": {"message": words}})


def without_end(make: Make) -> WireReply:
    """The last event is missing: `[DONE]`, or `message_stop`."""
    body = whole(make(TEXT)).rstrip(b"\n")
    return WireReply(steps=(body[: body.rindex(b"\n\n") + 2],))


#: For each behaviour what comes of it: one word for both wires, or one for each.
TABLE: Final[dict[str, tuple[Behaviour, tuple[str, ...]]]] = {
    "answers": (lambda make: make(TEXT), ("stop",)),
    "calls a tool": (lambda make: make(CALL), ("tool-calls",)),
    "sends single bytes": (lambda make: recut(make(TEXT), by_bytes), ("stop",)),
    "uses CRLF": (lambda make: patched(make(TEXT), b"\n", b"\r\n"), ("stop",)),
    "uses CR alone": (lambda make: patched(make(TEXT), b"\n", b"\r"), ("stop",)),
    "begins with a byte order mark": (
        lambda make: WireReply(steps=(b"\xef\xbb\xbf" + whole(make(TEXT)),)),
        ("stop",),
    ),
    "sends comments while it thinks": (
        lambda make: evolve(make(TEXT), steps=(*PINGS, *make(TEXT).steps)),
        ("stop",),
    ),
    "lies about its charset": (
        lambda make: WireReply(
            steps=(whole(make(TEXT)),),
            headers=(("content-type", "text/event-stream; charset=latin-1"),),
        ),
        ("stop",),
    ),
    "leaves out the content type": (
        lambda make: WireReply(steps=(whole(make(TEXT)),), headers=()),
        ("stop",),
    ),
    "stays connected after the end": (
        lambda make: evolve(make(TEXT), steps=(*make(TEXT).steps, Wait(0.2), b"data: junk\n\n")),
        ("stop",),
    ),
    "closes without the last event": (without_end, ("stop", "STREAM_CLOSED")),
    "closes after the headers": (
        lambda make: broken_off(make(TEXT), 0, Close()),
        ("STREAM_CLOSED",),
    ),
    "closes inside a text": (
        lambda make: broken_off(make(TEXT), len(whole(make(TEXT))) // 2, Close()),
        ("STREAM_CLOSED",),
    ),
    "resets inside a call": (
        lambda make: broken_off(make(CALL), len(whole(make(CALL))) // 2, Reset()),
        ("TRANSPORT",),
    ),
    "ends the body early": (
        lambda make: WireReply(steps=(whole(make(TEXT))[:200],), framing="length"),
        ("STREAM_CLOSED",),
    ),
    "falls silent inside a text": (
        lambda make: broken_off(make(TEXT), 300, Hang()),
        ("TIMEOUT",),
    ),
    "never answers": (lambda _make: WireReply(before=(Hang(),)), ("TIMEOUT",)),
    "closes before the headers": (lambda _make: WireReply(before=(Close(),)), ("TRANSPORT",)),
    "speaks no HTTP": (
        lambda _make: WireReply(before=(b"rubbish\r\n\r\n", Close())),
        ("TRANSPORT",),
    ),
    "sends a page": (lambda _make: typed("text/html", b"<html>no"), ("MALFORMED_RESPONSE",)),
    "sends JSON that is no reply": (
        lambda _make: typed("application/json", b'{"hello": 1}'),
        ("MALFORMED_RESPONSE",),
    ),
    "sends no JSON in an event": (
        lambda _make: WireReply(steps=(b"data: {oops\n\n",)),
        ("MALFORMED_RESPONSE",),
    ),
    "sends a line of nine megabytes": (
        lambda _make: WireReply(steps=(b"data: ", b"x" * 9_000_000)),
        ("MALFORMED_RESPONSE",),
    ),
    "lies about compression": (
        lambda make: WireReply(
            steps=(whole(make(TEXT)),),
            headers=(("content-type", "text/event-stream"), ("content-encoding", "gzip")),
        ),
        ("MALFORMED_RESPONSE",),
    ),
    "says nothing": (lambda make: make(ScriptEntry()), ("EMPTY_RESPONSE",)),
    "runs out of tokens": (
        lambda make: make(ScriptEntry(text="a", finish="max-tokens")),
        ("max-tokens",),
    ),
    "ends for an unknown reason": (
        lambda make: make(ScriptEntry(text="a", finish="error")),
        ("SCRIPTED_ERROR",),
    ),
    "fails inside the stream": (
        lambda make: make(
            ScriptEntry(
                text="a",
                error=records.LlmFailure(message="Overloaded", code="overloaded_error"),
            )
        ),
        ("SERVER",),
    ),
    "redirects": (
        lambda _make: error_reply(307, b"", headers=(("location", "http://127.0.0.1:9/x"),)),
        ("HTTP_307",),
    ),
    "refuses the key": (refused(401, "bad key"), ("AUTH",)),
    "wants money": (refused(402, "Insufficient Balance"), ("QUOTA",)),
    "knows no such model": (refused(404, "no such model"), ("HTTP_404",)),
    "finds the prompt too long": (
        refused(400, "prompt is too long: 9 tokens > 8 maximum"),
        ("CONTEXT_WINDOW_EXCEEDED",),
    ),
    "finds the body too large": (refused(413, "too large"), ("CONTEXT_WINDOW_EXCEEDED",)),
    "refuses a field": (refused(422, "Input should be a string"), ("INVALID_REQUEST",)),
    "limits the rate": (refused(429, "slow down"), ("RATE_LIMIT",)),
    "is broken": (refused(500, "oops"), ("SERVER",)),
    "is overloaded": (refused(529, "Overloaded"), ("SERVER",)),
}


@pytest.mark.holds("LM10", "LM12")
async def test_every_behaviour_has_its_outcome_on_both_wires() -> None:
    """After each of them the next request works, whatever became of the connection."""
    environ = ProcessEnviron({})
    rows: dict[str, list[str]] = {}
    answers: list[WireReply] = []
    with trio.fail_after(60):
        async with (
            open_model_server(lambda _request: answers.pop(0)) as server,
            open_seam() as seam,
        ):
            mount = seam.kernel.mount
            await mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
            chat = ProviderProfile(base_url=server.base_url, idle_timeout_ms=150)
            await mount(openai_chat, OpenAiChatConfig(providers={"chat": chat})).ready()
            other = MessagesProfile(base_url=server.base_url, idle_timeout_ms=150)
            await mount(
                anthropic_messages, AnthropicMessagesConfig(providers={"messages": other})
            ).ready()

            async def outcome(wire: str) -> str:
                chunks = await seam.run(ask(user("hi"), provider=wire))
                assert grammar_fault(chunks) is None
                assembler = Assembler()
                for chunk in chunks:
                    assembler.push(chunk)
                finish = assembler.finish
                if isinstance(finish, records.ErrorFinish):
                    return finish.failure.code
                if assembler.blocks() and TEXT.text in repr(assembler.blocks()):
                    assert assembler.blocks() == (records.TextBlock(text=TEXT.text),)
                return finish.kind

            for name, (behaviour, _) in TABLE.items():
                rows[name] = []
                for wire, make in zip(WIRES, (reply_of, messages_reply_of), strict=True):
                    answers[:] = [behaviour(make), make(TEXT)]
                    rows[name].append(await outcome(wire))
                    answers[:] = answers[-1:]
                    assert await outcome(wire) == "stop", (name, wire)
    lines = [f"{name:34} {row[0]:26} {row[1]}" for name, row in rows.items()]
    print("\n" + "\n".join((f"{'the server…':34} {WIRES[0]:26} {WIRES[1]}", *lines)))  # noqa: T201
    expected = {name: [words[0], words[-1]] for name, (_, words) in TABLE.items()}
    assert rows == expected
