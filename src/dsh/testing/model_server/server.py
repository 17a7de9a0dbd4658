"""The server itself: connections, requests, and the playing of replies on real sockets.

What comes in: replies (or a function that makes one for each request). What goes out: HTTP/1.1 on
127.0.0.1 that speaks chat completions and Anthropic's messages, by path, with server-sent events,
and a record of every request and connection. With `strict` it refuses what strict servers refuse.
It never contacts anybody.

    async with open_model_server([ScriptEntry(text="hello")], strict=True) as server:
        ...  # base URL: server.base_url

For people: `python -m dsh.testing.model_server --port 8000 --script FILE --strict`.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import orjson
import trio
from attrs import evolve, field, frozen

from dsh.llm import ScriptEntry
from dsh.testing.model_server.messages_wire import messages_error, messages_reply_of
from dsh.testing.model_server.replies import (
    Close,
    Gate,
    Hang,
    Reset,
    Step,
    Wait,
    WireReply,
    error_reply,
    recut,
    reply_of,
)
from dsh.testing.model_server.strict_history import refusal_of
from dsh.testing.model_server.strict_messages import messages_refusal_of

if TYPE_CHECKING:
    from dsh.hooks import JsonValue

__all__ = ["ModelServer", "RecordedRequest", "open_model_server"]

READ_SIZE: Final = 65536
HEAD_MAX: Final = 65536

_REASONS: Final[Mapping[int, str]] = {200: "OK", 400: "Bad Request", 404: "Not Found"}


@frozen(kw_only=True, slots=True, eq=False)
class RecordedRequest:
    """One request as it arrived. `connection` counts connections from 1; names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    connection: int

    @property
    def json(self) -> JsonValue:
        """The parsed body; None when it is no JSON."""
        try:
            return cast("JsonValue", orjson.loads(self.body))
        except orjson.JSONDecodeError:
            return None


Answer: TypeAlias = WireReply | ScriptEntry
Answers: TypeAlias = Iterable[Answer] | Callable[[RecordedRequest], Answer]


class _ClientGoneError(Exception):
    """The client closed its side."""


@final
class ModelServer:
    """The running server. Made by `open_model_server`."""

    def __init__(
        self,
        answers: Answers,
        *,
        strict: bool,
        token_limit: int | None,
        cut: Callable[[bytes], Iterable[bytes]] | None,
    ) -> None:
        self._next: Final = answers if callable(answers) else partial(_take, iter(answers))
        self._strict = strict
        self._token_limit = token_limit
        self._cut = cut
        self._reasoning: dict[str, str] = {}
        self._changed = trio.Event()
        self.port = 0
        #: Every request, in order of arrival; refused ones too.
        self.requests: Final[list[RecordedRequest]] = []
        #: What was refused by `strict` or by the token limit.
        self.refusals: Final[list[str]] = []
        #: How many connections were made so far, and how many of them are open.
        self.connections = 0
        self.open_connections = 0

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What a provider's `baseUrl` is set to."""
        return f"{self.url}/v1"

    async def when_requests(self, count: int) -> None:
        """Return when at least so many requests have arrived."""
        while len(self.requests) < count:
            await self._changed.wait()

    async def when_open(self, count: int) -> None:
        """Return when exactly so many connections are open: 0 waits for every close."""
        while self.open_connections != count:
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection until either side closes it."""
        self.connections += 1
        self.open_connections += 1
        self._tell()
        try:
            connection = _Connection(stream, self.connections)
            while await self._answer_one(connection):
                pass
        except (_ClientGoneError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
            self.open_connections -= 1
            self._tell()

    async def _answer_one(self, connection: _Connection) -> bool:
        request = await connection.request()
        if request is None:
            return False
        self.requests.append(request)
        self._tell()
        reply = self._reply(request)
        self._reasoning.update(reply.reasoning)
        if self._cut is not None:
            reply = recut(reply, self._cut)
        return await connection.send(reply)

    def _reply(self, request: RecordedRequest) -> WireReply:
        if request.method == "GET" and request.path.endswith("/models"):
            return evolve(
                error_reply(200, {"object": "list", "data": [{"id": "scripted"}]}), status=200
            )
        if not request.path.endswith(("/chat/completions", "/messages")):
            return error_reply(404, {"error": {"message": f"no such path: {request.path}"}})
        messages = request.path.endswith("/messages")
        refused = self._refused_messages(request) if messages else self._refused(request)
        if refused is not None:
            return refused
        answer = self._next(request)
        if isinstance(answer, ScriptEntry):
            play = messages_reply_of if messages else reply_of
            return play(answer, len(self.requests))
        return answer

    def _refused_messages(self, request: RecordedRequest) -> WireReply | None:
        words = messages_refusal_of(request.json, self._reasoning) if self._strict else None
        tokens = len(request.body) // 4
        if words is None and self._token_limit is not None and tokens > self._token_limit:
            words = f"prompt is too long: {tokens} tokens > {self._token_limit} maximum"
        if words is None:
            return None
        self.refusals.append(words)
        return messages_error(400, "invalid_request_error", words)

    def _refused(self, request: RecordedRequest) -> WireReply | None:
        if self._strict:
            words = refusal_of(request.json, self._reasoning)
            if words is not None:
                self.refusals.append(words)
                return error_reply(
                    400, {"error": {"message": words, "type": "invalid_request_error"}}
                )
        tokens = len(request.body) // 4
        if self._token_limit is not None and tokens > self._token_limit:
            words = (
                f"This model's maximum context length is {self._token_limit} tokens. However, "
                f"your messages resulted in {tokens} tokens."
            )
            self.refusals.append(words)
            return error_reply(
                400, {"error": {"message": words, "code": "context_length_exceeded"}}
            )
        return None


class _Connection:
    """One socket: reads requests, plays replies."""

    def __init__(self, stream: trio.SocketStream, number: int) -> None:
        self._stream = stream
        self._number = number
        self._buffer = b""

    async def request(self) -> RecordedRequest | None:
        """The next request, or None when the client has no more."""
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_MAX or not await self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, *_ = [*first.split(" "), "", ""]
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        length = int(headers.get("content-length", "0"))
        parts, missing = [self._buffer], length - len(self._buffer)
        while missing > 0:
            self._buffer = b""
            if not await self._more():
                return None
            parts.append(self._buffer)
            missing -= len(self._buffer)
        whole = b"".join(parts)
        self._buffer = whole[length:]
        return RecordedRequest(
            method=method,
            path=path,
            headers=headers,
            body=whole[:length],
            connection=self._number,
        )

    async def send(self, reply: WireReply) -> bool:
        """Play one reply. True: the connection can take another request."""
        for step in reply.before:
            if not await self._step(step, raw=True, chunked=False):
                return False
        body = b"".join(step for step in reply.steps if isinstance(step, bytes))
        head = [f"{reply.version} {reply.status} {_REASONS.get(reply.status, 'WireReply')}"]
        head.extend(f"{name}: {value}" for name, value in reply.headers)
        if reply.framing == "chunked":
            head.append("transfer-encoding: chunked")
        elif reply.framing == "length":
            head.append(f"content-length: {len(body)}")
        stays = reply.keep_alive and reply.framing != "close"
        if not stays:
            head.append("connection: close")
        await self._stream.send_all("\r\n".join((*head, "", "")).encode("latin-1"))
        for step in reply.steps:
            if not await self._step(step, raw=False, chunked=reply.framing == "chunked"):
                return False
        if reply.framing == "chunked":
            await self._stream.send_all(b"0\r\n\r\n")
        return stays

    async def _step(self, step: Step, *, raw: bool, chunked: bool) -> bool:
        match step:
            case bytes():
                if step:
                    await self._stream.send_all(
                        b"%x\r\n%b\r\n" % (len(step), step) if chunked and not raw else step
                    )
            case Wait():
                await self._silence(step.seconds)
            case Hang():
                await self._silence(math.inf)
            case Gate():
                await step.event.wait()
            case Close():
                return False
            case Reset():
                linger = struct.pack("ii", 1, 0)
                self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return False
        return True

    async def _silence(self, seconds: float) -> None:
        """Wait, and notice if the client goes away meanwhile."""
        with trio.move_on_after(seconds):
            while await self._more():
                pass
            raise _ClientGoneError

    async def _more(self) -> bool:
        read = await self._stream.receive_some(READ_SIZE)
        self._buffer += bytes(read)
        return bool(read)


def _take(answers: Iterable[Answer], request: RecordedRequest) -> Answer:
    del request
    for answer in answers:
        return answer
    return error_reply(500, {"error": {"message": "the server's script is over"}})


@asynccontextmanager
async def open_model_server(
    answers: Answers,
    *,
    strict: bool = False,
    token_limit: int | None = None,
    cut: Callable[[bytes], Iterable[bytes]] | None = None,
    port: int = 0,
) -> AsyncGenerator[ModelServer]:
    """Run a server for the length of the block.

    Args:
        answers: Replies or script entries, one for each accepted request, or a function of the
            request. Past their end every request gets a 500.
        strict: Refuse (400) what strict servers refuse; see `strict_history`.
        token_limit: Refuse (400, context_length_exceeded) bodies of more than 4 bytes per token.
        cut: How to cut bodies into pieces: `by_bytes`, `at_random(seed)`, or None: as they are.
        port: 0 takes a free one; `server.port` says which.
    """
    server = ModelServer(answers, strict=strict, token_limit=token_limit, cut=cut)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            partial(trio.serve_tcp, server.serve, port, host="127.0.0.1")
        )
        server.port = listeners[0].socket.getsockname()[1]
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()
