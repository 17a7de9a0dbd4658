"""What a fault server sends: replies made of steps, and short ways to make them.

What comes in: script entries, JSON objects, bytes, faults. What goes out: frozen replies, which
the server plays on a real socket. Pure; the same arguments make the same bytes.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import orjson
from attrs import evolve, field, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import trio

    from dsh.hooks import JsonValue
    from dsh.llm import ScriptEntry

__all__ = [
    "DONE",
    "Close",
    "Gate",
    "Hang",
    "Reset",
    "Step",
    "Wait",
    "WireReply",
    "at_random",
    "broken_off",
    "by_bytes",
    "delta",
    "error_reply",
    "event",
    "recut",
    "reply_of",
    "sse_reply",
]

DONE: Final = b"data: [DONE]\n\n"


@frozen(slots=True)
class Wait:
    """Send nothing for this many seconds."""

    seconds: float


@frozen(slots=True)
class Hang:
    """Send nothing until the client goes away."""


@frozen(slots=True)
class Reset:
    """Break the connection with a TCP reset."""


@frozen(slots=True)
class Close:
    """Close the connection without ending the body."""


@frozen(slots=True, eq=False)
class Gate:
    """Go on when the event is set: for tests that decide when."""

    event: trio.Event


#: One thing a server does; bytes are sent as one write (and one HTTP chunk).
Step: TypeAlias = bytes | Wait | Hang | Reset | Close | Gate


@frozen(kw_only=True, slots=True)
class WireReply:
    """One answer. `before` is done before the status line, `steps` make the body.

    `framing`: "chunked" and "length" end the body properly, "close" ends it by closing.
    `keep_alive` false closes the connection after the answer.
    """

    steps: tuple[Step, ...] = ()
    before: tuple[Step, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    framing: Literal["chunked", "length", "close"] = "chunked"
    version: str = "HTTP/1.1"
    keep_alive: bool = True
    #: The reasoning of this reply by the ids of its calls, for servers that want it back.
    reasoning: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def event(value: JsonValue) -> bytes:
    """One server-sent event whose data is `value` as JSON."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


def delta(finish: str | None = None, **fields: JsonValue) -> bytes:
    """One chunk event of choice 0: `delta(content="hi")`, `delta("stop")`."""
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def sse_reply(
    *steps: Step, done: bool = True, headers: Sequence[tuple[str, str]] = ()
) -> WireReply:
    """A 200 with an event stream; `done` adds the final `[DONE]`."""
    given = {name.lower() for name, _ in headers}
    kind = () if "content-type" in given else (("content-type", "text/event-stream"),)
    return WireReply(steps=(*steps, DONE) if done else steps, headers=(*kind, *headers))


def error_reply(
    status: int, body: JsonValue | bytes = None, *, headers: Sequence[tuple[str, str]] = ()
) -> WireReply:
    """An error status with a JSON body, or with raw bytes."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    kind = () if isinstance(body, bytes) else (("content-type", "application/json"),)
    return WireReply(status=status, steps=(raw,), headers=(*kind, *headers), framing="length")


def reply_of(entry: ScriptEntry, number: int = 1) -> WireReply:
    """The wire form of a script entry, word by word; `number` makes ids of calls unique.

    An `error` with a status is that HTTP error, without one an error inside a stream that began.
    """
    failure = entry.error
    before: tuple[Step, ...] = (Wait(entry.delay),) if entry.delay else ()
    if failure is not None and failure.status is not None:
        wait = failure.provider_retry_after_ms
        headers = () if wait is None else (("retry-after-ms", f"{wait:g}"),)
        body: JsonValue = {"error": {"message": failure.message, "code": failure.code}}
        return evolve(error_reply(failure.status, body, headers=headers), before=before)
    steps: list[Step] = [delta(role="assistant", content="")]
    steps.extend(delta(reasoning_content=word) for word in _words(entry.reasoning))
    steps.extend(delta(content=word) for word in _words(entry.text))
    ids: list[str] = []
    for index, call in enumerate(entry.tools):
        ids.append(call.id or f"call_{number}_{index}")
        half = len(call.arguments) // 2
        first: JsonValue = {"name": call.name, "arguments": call.arguments[:half]}
        opened: JsonValue = {"index": index, "id": ids[-1], "type": "function", "function": first}
        rest: JsonValue = {"index": index, "function": {"arguments": call.arguments[half:]}}
        steps.extend((delta(tool_calls=[opened]), delta(tool_calls=[rest])))
    if failure is not None:
        steps.append(event({"error": {"message": failure.message, "code": failure.code}}))
        return evolve(sse_reply(*steps, done=False), before=before)
    steps.append(delta(_finish(entry)))
    if entry.usage is not None:
        steps.append(event({"choices": [], "usage": _usage(entry)}))
    reasoning = tuple((call_id, entry.reasoning) for call_id in ids if entry.reasoning)
    return evolve(sse_reply(*steps), before=before, reasoning=reasoning)


def recut(reply: WireReply, cut: Callable[[bytes], Iterable[bytes]]) -> WireReply:
    """The same body in other pieces; the other steps stay where they were."""
    steps: list[Step] = []
    for step in reply.steps:
        if isinstance(step, bytes):
            steps.extend(cut(step))
        else:
            steps.append(step)
    return evolve(reply, steps=tuple(steps))


def by_bytes(piece: bytes) -> Iterable[bytes]:
    """For `recut`: one byte at a time."""
    return [piece[at : at + 1] for at in range(len(piece))]


def at_random(seed: int, longest: int = 40) -> Callable[[bytes], Iterable[bytes]]:
    """For `recut`: pieces of random length up to `longest`, the same for the same seed."""
    source = random.Random(seed)

    def cut(piece: bytes) -> Iterable[bytes]:
        at = 0
        while at < len(piece):
            length = source.randint(1, longest)
            yield piece[at : at + length]
            at += length

    return cut


def broken_off(reply: WireReply, after: int, how: Step) -> WireReply:
    """The same reply, but after so many bytes of its body `how` happens instead of the rest."""
    steps: list[Step] = []
    left = after
    for step in reply.steps:
        if not isinstance(step, bytes):
            steps.append(step)
        elif left > 0:
            steps.append(step[:left])
            left -= len(step)
    return evolve(reply, steps=(*steps, how))


def _words(text: str) -> list[str]:
    pieces: list[str] = []
    for word in text.split(" "):
        pieces.append(word if not pieces else f" {word}")
    return [piece for piece in pieces if piece]


def _finish(entry: ScriptEntry) -> str:
    match entry.finish:
        case "max-tokens":
            return "length"
        case "error":
            return "scripted_error"
        case _:
            return "tool_calls" if entry.tools else "stop"


def _usage(entry: ScriptEntry) -> JsonValue:
    usage = entry.usage
    if usage is None:
        return None
    cached = usage.cache_read_tokens or 0
    return {
        "prompt_tokens": usage.input_tokens + cached,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + cached + usage.output_tokens,
        "prompt_cache_hit_tokens": cached,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }
