"""One attempt over HTTP: from the request's bytes to the queue of its chunks.

What comes in: a client, a prepared body with its headers, and how long to wait. What goes out: the
chunks of the reply, as an async context manager over an async iterator. What an event means is the
decoder's business. Leaving the stream closes the response at once; only after the reply's own end
it first reads on to the end of the body, for at most 0.25 s, because a connection whose body was
not read to its end cannot be used again.

A class and no generator: nothing of ours is suspended across scopes. There is no checkpoint and no
cancel scope per chunk: whatever one network read brought is decoded at once and handed out, and
the silence of a server is noticed by the read timeout of the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, final

import httpx
import orjson
import trio
from typing_extensions import override

from dsh.catalog.records import StreamChunk
from dsh.errors import LlmError
from dsh.hooks import frozen
from dsh.llm.http.body import Body
from dsh.llm.http.framing import LINE_MAX, EventFramer
from dsh.llm.http.refusals import (
    BODY_MAX,
    BODY_SECONDS,
    broken_reply,
    hide,
    refusal,
    unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from dsh.hooks import JsonValue
    from dsh.seams.environ import Secret

__all__ = ["Attempt", "Decoder", "MakeDecoder", "ReplyStream"]

#: How long the rest of a body after the reply's end may take, and how long closing may, in seconds.
TAIL_SECONDS: Final = 0.25
CLOSE_SECONDS: Final = 2.0
#: How long the server may take to accept the next piece of a request.
WRITE_SECONDS: Final = 30.0

#: Some servers leave the type out; some answer with one JSON completion whatever was asked.
_READABLE: Final = frozenset({"text/event-stream", "application/json", ""})


class Decoder(Protocol):
    """What the events of one wire mean. Each method may raise LlmError; none waits."""

    @property
    def done(self) -> bool:
        """Whether the reply said that it is over: what comes after it is not looked at."""
        ...

    def decode(self, data: bytes, /) -> None:
        """Take the data of one event."""

    def take_whole(self, value: JsonValue, /) -> bool:
        """Take a reply that came as one JSON value. False: it is no reply of this wire."""
        ...

    def complete_at(self, tail: bytes, /) -> bool:
        """Whether a body that ends cleanly here, with this unfinished event, is a whole reply."""
        ...

    def finish(self) -> None:
        """The reply is over: put its last chunks into the queue."""


#: Makes the decoder of one reply: the queue for its chunks, and what takes secrets out of texts.
MakeDecoder: TypeAlias = "Callable[[deque[StreamChunk], Callable[[str], str]], Decoder]"


@frozen(kw_only=True, slots=True)
class Attempt:
    """All that one attempt needs; seconds throughout.

    `where` is the server as people read it; `headers` are complete but for the body's length.
    """

    pools: httpx.AsyncBaseTransport
    url: httpx.URL
    where: str
    body: bytes
    headers: httpx.Headers
    secret: Secret | None
    connect_timeout: float
    idle_timeout: float
    decoder: MakeDecoder
    now_ms: Callable[[], int]


@final
class ReplyStream(
    AbstractAsyncContextManager[AsyncIterator[StreamChunk]], AsyncIterator[StreamChunk]
):
    """The chunks of one reply. `count` gets 1 when it is entered and -1 when it has been left."""

    __slots__ = (
        "_attempt", "_body", "_count", "_decoder", "_framer", "_over", "_queue", "_response",
    )  # fmt: skip

    def __init__(self, attempt: Attempt, count: Callable[[int], None]) -> None:
        self._attempt: Final = attempt
        self._count: Final = count
        self._queue: Final[deque[StreamChunk]] = deque()
        self._decoder: Final = attempt.decoder(self._queue, partial(hide, secret=attempt.secret))
        self._framer: Final = EventFramer()
        self._response: httpx.Response | None = None
        self._body: Body | None = None
        self._over = False

    @override
    async def __aenter__(self) -> AsyncIterator[StreamChunk]:
        self._count(1)
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> StreamChunk:
        queue = self._queue
        while not queue:
            if self._over:
                raise StopAsyncIteration
            await self._read()
        return queue.popleft()

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._decoder.done:
                await self._read_out()
        finally:
            await self._close()

    async def _open(self) -> None:
        attempt = self._attempt
        timeouts = {
            "connect": attempt.connect_timeout,
            "read": attempt.idle_timeout,
            "write": WRITE_SECONDS,
            "pool": None,
        }
        # A third of what it costs to let the library find out the host and the length.
        headers = attempt.headers.copy()
        headers["Content-Length"] = str(len(attempt.body))
        request = httpx.Request(
            "POST",
            attempt.url,
            headers=headers,
            stream=httpx.ByteStream(attempt.body),
            extensions={"timeout": timeouts},
        )
        try:
            # The read timeout counts from byte to byte; a server that drips headers is slow, too.
            patience = trio.current_time() + attempt.connect_timeout + attempt.idle_timeout
            response = None
            with trio.CancelScope(deadline=patience):
                response = await attempt.pools.handle_async_request(request)
        except (httpx.HTTPError, httpx.InvalidURL, trio.TooSlowError, OSError) as error:
            raise unreachable(error, attempt.where, attempt.idle_timeout) from error
        if response is None:
            raise unreachable(trio.TooSlowError(), attempt.where, attempt.idle_timeout)
        self._response = response
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code != HTTPStatus.OK or kind not in _READABLE:
            raise await self._refused(response)
        self._body = body = self._body_of(response)
        if kind == "application/json":
            await self._take_whole(response, body)

    def _body_of(self, response: httpx.Response) -> Body:
        try:
            return Body(response)
        except LlmError as error:
            raise self._hidden(error) from None

    async def _refused(self, response: httpx.Response) -> LlmError:
        attempt = self._attempt
        try:
            self._body = Body(response)
        except LlmError as error:
            said = error.message.encode()
        else:
            said = await self._body.read_up_to(BODY_MAX, BODY_SECONDS)
        return refusal(response, said, attempt.where, attempt.secret, attempt.now_ms())

    async def _take_whole(self, response: httpx.Response, body: Body) -> None:
        """A server that does not stream: its one JSON value is taken as the reply."""
        attempt = self._attempt
        said = await body.read_up_to(LINE_MAX, attempt.idle_timeout)
        try:
            value = cast("JsonValue", orjson.loads(said))
        except orjson.JSONDecodeError:
            value = None
        try:
            taken = self._decoder.take_whole(value)
        except LlmError as error:
            raise self._hidden(error) from None
        if not taken:
            raise refusal(response, said, attempt.where, attempt.secret, attempt.now_ms())
        self._guarded(self._decoder.finish)
        self._over = True

    async def _read(self) -> None:
        """One network read, decoded into the queue."""
        attempt, body = self._attempt, self._body
        if body is None:
            self._over = True
            return
        try:
            piece = await body.read()
        except (httpx.HTTPError, httpx.StreamError, trio.TooSlowError, OSError) as error:
            self._over = True
            raise broken_reply(error, attempt.where, attempt.idle_timeout) from error
        except LlmError as error:
            self._over = True
            raise LlmError(f"{attempt.where}: {error.message}", code=error.code) from None
        if not piece:
            self._over = True
            self._ended()
            return
        decoder = self._decoder
        try:
            for event in self._framer.feed(piece):
                decoder.decode(event)
                if decoder.done:
                    self._over = True
                    decoder.finish()
                    return
        except LlmError as error:
            self._over = True
            raise self._hidden(error) from None

    def _ended(self) -> None:
        """The body ended cleanly, and the reply had not said that it is over."""
        if self._decoder.complete_at(self._framer.tail()):
            self._guarded(self._decoder.finish)
            return
        raise LlmError(f"{self._attempt.where} ended its reply early", code="STREAM_CLOSED")

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except LlmError as error:
            raise self._hidden(error) from None

    def _hidden(self, error: LlmError) -> LlmError:
        """The same failure, with the request's id, and without the key in the server's words."""
        response = self._response
        return LlmError(
            hide(error.message, self._attempt.secret),
            code=error.code,
            status=error.status,
            retry_after_ms=error.retry_after_ms,
            request_id=response.headers.get("x-request-id") if response is not None else None,
        )

    async def _read_out(self) -> None:
        if self._body is not None:
            await self._body.read_out(TAIL_SECONDS)

    async def _close(self) -> None:
        body, self._body = self._body, None
        response, self._response = self._response, None
        self._over = True
        try:
            if body is not None:
                await body.aclose(CLOSE_SECONDS)
            elif response is not None:
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await response.aclose()
        finally:
            self._count(-1)
