"""A small HTTP server for tests of what speaks to one: a real socket, answers from a function.

What comes in: requests. What goes out: whatever the test's function says, also nothing at all, or a
body that breaks off. Every request is kept.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, cast, final

import h11
import trio
from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

__all__ = ["HttpAnswer", "HttpAsked", "HttpStub", "open_http_stub"]


@frozen
class HttpAsked:
    """One request. Names of headers are in small letters."""

    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@frozen
class HttpAnswer:
    """One answer. `hangs`: it never comes. `cut`: the connection ends before the body does."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: Mapping[str, str] = field(factory=dict[str, str])
    hangs: bool = False
    cut: bool = False


@final
class HttpStub:
    """The running server. `origin` is its address, as in `http://127.0.0.1:4242`."""

    def __init__(self, answer: Callable[[HttpAsked], HttpAnswer]) -> None:
        self._answer = answer
        self._news = trio.Event()
        self.asked: list[HttpAsked] = []
        self.origin = ""

    async def until(self, found: Callable[[HttpAsked], bool]) -> HttpAsked:
        """The first request that `found` takes, once it has come."""
        while True:
            for asked in self.asked:
                if found(asked):
                    return asked
            await self._news.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        wire = h11.Connection(h11.SERVER)
        async with stream:
            while (asked := await _request(wire, stream)) is not None:
                self.asked.append(asked)
                self._news.set()
                self._news = trio.Event()
                answer = self._answer(asked)
                if answer.hangs:
                    await trio.sleep_forever()
                headers = {
                    "content-type": answer.kind,
                    "content-length": str(len(answer.body) + answer.cut),
                    **answer.headers,
                }
                head = h11.Response(status_code=answer.status, headers=list(headers.items()))
                sent = (wire.send(head) or b"") + (wire.send(h11.Data(data=answer.body)) or b"")
                if answer.cut:
                    await stream.send_all(sent)
                    return
                await stream.send_all(sent + (wire.send(h11.EndOfMessage()) or b""))
                wire.start_next_cycle()


@asynccontextmanager
async def open_http_stub(
    answer: Callable[[HttpAsked], HttpAnswer],
) -> AsyncGenerator[HttpStub, None]:
    """Serve on a free port of the loopback until the block is left."""
    stub = HttpStub(answer)
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, stub.serve, 0, host="127.0.0.1")
        listeners = cast("list[trio.SocketListener]", await nursery.start(serve))
        stub.origin = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield stub
        nursery.cancel_scope.cancel()


async def _request(wire: h11.Connection, stream: trio.SocketStream) -> HttpAsked | None:
    """The next request; None when the other side has gone."""
    head: h11.Request | None = None
    body = b""
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            try:
                wire.receive_data(bytes(await stream.receive_some()))
            except trio.BrokenResourceError:
                return None
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return HttpAsked(head.method.decode(), head.target.decode(), headers, body)
        else:
            return None
