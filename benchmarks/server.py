"""A fast local chat-completions server in a process of its own.

What comes in: requests on a loopback socket. What goes out: for the first `--steps` requests of a
connection's conversation a streamed tool call, then a streamed text of `--chunks` words. It parses
no more of a request than it must: the head, the length, and how many tool results the body holds.
It counts connections that carried a request, requests, body bytes, and with `--prefix` how many of
them began the body before on the same connection; `GET /stats` tells them.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys

import trio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STATS: dict[str, int] = {"connections": 0, "requests": 0, "bodyBytes": 0, "prefixBytes": 0}


def event(delta: dict[str, object], finish: str | None = None) -> bytes:
    """One SSE event holding one chat-completion chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def usage() -> bytes:
    """The usage event at the end of a stream."""
    counts = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


def tool_reply(number: int, calls: int) -> bytes:
    """A reply that asks for `calls` parallel calls of the tool `add`."""
    events = [event({"role": "assistant", "content": ""})]
    for index in range(calls):
        name = {"name": "add", "arguments": ""}
        call_id = f"call_{number}_{index}"
        first = {"index": index, "id": call_id, "type": "function", "function": name}
        events.append(event({"tool_calls": [first]}))
        for part in ('{"left": 1, ', f'"right": {number}}}'):
            delta = {"index": index, "function": {"arguments": part}}
            events.append(event({"tool_calls": [delta]}))
    events += [event({}, "tool_calls"), usage(), b"data: [DONE]\n\n"]
    return b"".join(events)


def text_reply(chunks: int) -> bytes:
    """A reply of `chunks` words."""
    words = [event({"content": f"word{index} "}) for index in range(chunks)]
    return b"".join([*words, event({}, "stop"), usage(), b"data: [DONE]\n\n"])


def chunked(payload: bytes, size: int = 4096) -> bytes:
    """The payload in HTTP chunks of `size` bytes, ended."""
    pieces = [payload[start : start + size] for start in range(0, len(payload), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


class Head:
    """What the server needs of one request's head."""

    def __init__(self, raw: bytes) -> None:
        lines = raw.split(b"\r\n")
        self.target = lines[0].split(b" ")[1]
        self.length = 0
        for line in lines[1:]:
            if line[:15].lower() == b"content-length:":
                self.length = int(line[15:])


async def read_request(stream: trio.SocketStream, rest: bytearray) -> tuple[Head, bytes] | None:
    """One request's head and body; None when the peer has closed."""
    while (end := rest.find(b"\r\n\r\n")) < 0:
        data = await stream.receive_some(65536)
        if not data:
            return None
        rest += data
    head = Head(bytes(rest[:end]))
    del rest[: end + 4]
    while len(rest) < head.length:
        data = await stream.receive_some(262144)
        if not data:
            return None
        rest += data
    body = bytes(rest[: head.length])
    del rest[: head.length]
    return head, body


def same_beginning(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


async def serve(
    stream: trio.SocketStream, *, steps: int, calls: int, chunks: int, prefix: bool
) -> None:
    """Answer one connection's requests until it closes."""
    rest, before = bytearray(), b""
    final = chunked(text_reply(chunks))
    counted = False
    try:
        while (request := await read_request(stream, rest)) is not None:
            head, body = request
            if head.target == b"/stats":
                told = json.dumps(STATS).encode()
                await stream.send_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(told), told)
                )
                continue
            STATS["connections"] += not counted
            counted = True
            STATS["requests"] += 1
            STATS["bodyBytes"] += len(body)
            if prefix:
                STATS["prefixBytes"] += same_beginning(before, body)
                before = body
            done = body.count(b'"tool_call_id"') // calls
            reply = final if done >= steps else chunked(tool_reply(done, calls))
            await stream.send_all(HEAD + reply)
    except trio.BrokenResourceError:
        return


async def run(options: argparse.Namespace) -> None:
    """Listen, print the port on stdout, serve until killed."""
    handler = functools.partial(
        serve,
        steps=options.steps,
        calls=options.calls,
        chunks=options.chunks,
        prefix=options.prefix,
    )
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await trio.serve_listeners(handler, listeners)


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description="a fast local chat-completions server")
    parser.add_argument("--steps", type=int, default=50, help="tool steps before the final text")
    parser.add_argument("--calls", type=int, default=1, help="parallel calls in a tool step")
    parser.add_argument("--chunks", type=int, default=20, help="words of the final text")
    parser.add_argument("--prefix", action="store_true", help="compare each body with the last")
    trio.run(run, parser.parse_args())


if __name__ == "__main__":
    main()
