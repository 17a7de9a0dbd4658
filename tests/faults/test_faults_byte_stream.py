"""Damaged replies on both wires: a lawful message or a classified failure, never anything else.

`DSH_DAMAGE=2000` damages that many replies on real sockets; the ordinary run does a few.
"""

from __future__ import annotations

import random
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.boot.environ import EnvironCredentials, ProcessEnviron, environ_plugin, process_environ
from dsh.catalog import records
from dsh.errors import LlmError
from dsh.llm import Assembler, ScriptedCall, ScriptEntry, grammar_fault
from dsh.llm.http import EventFramer
from dsh.testing import WireReply, at_random, messages_reply_of, open_model_server, recut, reply_of
from dsh.testing.model_seam import ask, open_seam, user
from dsh_plugins.anthropic_messages import anthropic_messages
from dsh_plugins.anthropic_messages.catalog import AnthropicMessagesConfig, MessagesProfile
from dsh_plugins.anthropic_messages.reply import ReplyDecoder as MessagesDecoder
from dsh_plugins.openai_chat import openai_chat
from dsh_plugins.openai_chat.catalog import OpenAiChatConfig, ProviderProfile
from dsh_plugins.openai_chat.reply import ReplyDecoder as ChatDecoder

if TYPE_CHECKING:
    from dsh.llm.http import Decoder

SOCKETS: Final = int(process_environ().get("DSH_DAMAGE") or 40)
USAGE: Final = records.Usage(input_tokens=9, output_tokens=4)
#: Recorded good replies: text, thinking, calls, other scripts, everything at once.
GOOD: Final = (
    ScriptEntry(text="all is well", usage=USAGE),
    ScriptEntry(reasoning="\n\nhm  ", text="你好、🦀 wörld", usage=USAGE),
    ScriptEntry(tools=(ScriptedCall(name="read", arguments='{"path": "a/b"}', id="c1"),)),
    ScriptEntry(
        reasoning="both",
        text="look",
        tools=(
            ScriptedCall(name="read", arguments='{"path": "a"}', id="c1"),
            ScriptedCall(name="bash", arguments='{"command": "ls -l"}', id="c2"),
        ),
        usage=USAGE,
    ),
)
CODES: Final = {
    "CONTENT_FILTER",
    "CONTEXT_WINDOW_EXCEEDED",
    "EMPTY_RESPONSE",
    "MALFORMED_RESPONSE",
    "RATE_LIMIT",
    "SERVER",
    "STREAM_CLOSED",
    "TIMEOUT",
    "TRANSPORT",
    "UNKNOWN",
}


def body_of(wire: str, entry: ScriptEntry) -> bytes:
    reply = reply_of(entry) if wire == "chat" else messages_reply_of(entry)
    return b"".join(step for step in reply.steps if isinstance(step, bytes))


def read(wire: str, pieces: list[bytes]) -> tuple[str, tuple[records.ContentBlock, ...]]:
    """The failure's code ("" for none) and the blocks of a body that came in these pieces."""
    out: deque[records.StreamChunk] = deque()
    decoder: Decoder = ChatDecoder(out) if wire == "chat" else MessagesDecoder(out)
    framer = EventFramer()
    try:
        for piece in pieces:
            for event in framer.feed(piece):
                if not decoder.done:
                    decoder.decode(event)
        if not decoder.done and not decoder.complete_at(framer.tail()):
            return "STREAM_CLOSED", ()
        decoder.finish()
    except LlmError as error:
        return error.code, ()
    assert grammar_fault(out) is None
    assembler = Assembler()
    for chunk in out:
        assembler.push(chunk)
    finish = assembler.finish
    if isinstance(finish, records.ErrorFinish):
        return finish.failure.code, ()
    return "", assembler.blocks()


def damaged(body: bytes, other: bytes, source: random.Random) -> bytes:
    """One to three wounds: cut off, dropped, doubled, spliced with another reply, garbage."""
    for _ in range(source.randint(1, 3)):
        at = source.randint(0, len(body))
        upto = source.randint(at, min(len(body), at + 80))
        match source.choice(("cut", "drop", "double", "splice", "garbage", "flip")):
            case "cut":
                body = body[:at]
            case "drop":
                body = body[:at] + body[upto:]
            case "double":
                body = body[:upto] + body[at:]
            case "splice":
                start = source.randint(0, len(other))
                body = body[:at] + other[start:]
            case "garbage":
                body = body[:at] + source.randbytes(source.randint(1, 12)) + body[at:]
            case _:
                if body:
                    at = min(at, len(body) - 1)
                    body = (
                        body[:at] + bytes([body[at] ^ 1 << source.randint(0, 7)]) + body[at + 1 :]
                    )
    return body


@pytest.mark.holds("LM1", "LM12")
@settings(max_examples=150, deadline=None)
@given(data=st.data(), wire=st.sampled_from(["chat", "messages"]), entry=st.sampled_from(GOOD))
def test_no_cut_into_pieces_changes_a_reply(
    data: st.DataObject, wire: str, entry: ScriptEntry
) -> None:
    body = body_of(wire, entry)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    edges = [0, *cuts, len(body)]
    pieces = [body[one:other] for one, other in pairwise(edges)]
    whole, cut = read(wire, [body]), read(wire, pieces)
    assert cut == whole
    assert not whole[0]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), wire=st.sampled_from(["chat", "messages"]), entry=st.sampled_from(GOOD))
def test_a_reply_that_breaks_off_is_whole_or_a_failure(
    data: st.DataObject, wire: str, entry: ScriptEntry
) -> None:
    """Never a silent loss, never a call with half of its arguments."""
    body = body_of(wire, entry)
    code, blocks = read(wire, [body[: data.draw(st.integers(0, len(body)))]])
    if not code:
        assert blocks == read(wire, [body])[1]
    else:
        assert code == "STREAM_CLOSED"


@settings(max_examples=600, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    wire=st.sampled_from(["chat", "messages"]),
    entry=st.sampled_from(GOOD),
    other=st.sampled_from(GOOD),
)
def test_damage_gives_a_lawful_message_or_a_classified_failure(
    seed: int, wire: str, entry: ScriptEntry, other: ScriptEntry
) -> None:
    body = damaged(body_of(wire, entry), body_of(wire, other), random.Random(seed))
    code, blocks = read(wire, [body])
    # A word of the server that was damaged may be a code of its own.
    assert not code or code in CODES or code.replace("_", "").isalpha()
    for block in blocks:
        if isinstance(block, records.ToolCallBlock):
            assert block.name
            assert block.id


async def test_damage_on_real_sockets_neither_hangs_nor_crashes() -> None:
    source = random.Random(4711)
    environ = ProcessEnviron({})
    replies: list[WireReply] = []

    def answer(request: object) -> WireReply:
        del request
        return replies[-1]

    outcomes: dict[str, int] = {}
    with trio.fail_after(30 + SOCKETS):
        async with open_model_server(answer) as server, open_seam() as seam:
            mount = seam.kernel.mount
            await mount(environ_plugin(environ, EnvironCredentials(environ))).ready()
            chat = ProviderProfile(base_url=server.base_url, idle_timeout_ms=300)
            await mount(openai_chat, OpenAiChatConfig(providers={"chat": chat})).ready()
            other = MessagesProfile(base_url=server.base_url, idle_timeout_ms=300)
            await mount(
                anthropic_messages, AnthropicMessagesConfig(providers={"messages": other})
            ).ready()
            for at in range(SOCKETS):
                wire = ("chat", "messages")[at % 2]
                body = damaged(
                    body_of(wire, source.choice(GOOD)), body_of(wire, source.choice(GOOD)), source
                )
                framing = source.choice(("chunked", "length", "close"))
                whole = WireReply(steps=(body,), framing=framing)  # type: ignore[arg-type]
                replies.append(recut(whole, at_random(at)))
                chunks = await seam.run(ask(user("hi"), provider=wire))
                assert grammar_fault(chunks) is None
                last = chunks[-1]
                assert isinstance(last, records.FinishChunk)
                outcome: str = last.reason.kind
                if isinstance(last.reason, records.ErrorFinish):
                    outcome = last.reason.failure.code
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
            assert server.open_connections <= 2
    print(f"\n{SOCKETS} damaged replies: {outcomes}")  # noqa: T201 - figures for `pytest -s`
    assert "aborted" not in outcomes
