"""A server behind an address: streamable HTTP, one POST for each message.

What comes in: messages. What goes out: requests to the configured address and to no other;
redirects are refused. An answer may be one JSON value or a stream of events, in which the server
may also say other things before it. The session's id that the server gave is sent with every
request; when it has forgotten the session, that is an error of its own, for nothing was done then.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast, final

import httpx
import orjson
import trio
from typing_extensions import override

from dsh.errors import HarnessError, LlmError
from dsh.llm import http
from dsh.tools import visible
from dsh_plugins.mcp.failures import (
    Expired,
    McpError,
    NotRunning,
    ProtocolBroken,
    Refused,
    ServerGone,
    TooLarge,
)
from dsh_plugins.mcp.link import Link

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from dsh.hooks import JsonValue
    from dsh.seams.environ import Environ
    from dsh_plugins.mcp.peer import Peer
    from dsh_plugins.mcp.settings import Endpoint

__all__ = ["HttpLink"]

CONNECT_SECONDS: Final = 10.0
#: For messages that have no answer, for leaving a body, and for saying goodbye, in seconds.
POST_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 1.0
WORDS_MAX: Final = 300
#: Messages without an answer that are under way at once; a server that asks for more gets no more.
POSTS_MAX: Final = 32
SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")


@final
class HttpLink(Link):
    """One session at one address."""

    def __init__(self, server: str, endpoint: Endpoint, environ: Environ, peer: Peer) -> None:
        self._server: Final = server
        self._endpoint: Final = endpoint
        self._peer: Final = peer
        self._pools: Final = http.Pools(environ)
        self._nursery: trio.Nursery | None = None
        self._posting = 0
        self._session: str | None = None
        self._version: str | None = None

    @override
    async def run(self, body: Callable[[], Awaitable[None]]) -> None:
        failure: McpError | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await body()
            except McpError as error:  # a nursery would wrap it
                failure = error
            finally:
                self._nursery = None
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await self._goodbye()
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await self._pools.aclose()
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    @override
    async def send(self, message: Mapping[str, object]) -> None:
        starts = message.get("method") == "initialize"
        if starts:
            self._session = self._version = None
        async with self._exchanged("POST", message) as (response, body):
            if starts:
                self._session = self._session_of(response)
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "text/event-stream":
                await self._events(body)
            elif kind == "application/json":
                self._value(await self._whole(body))
            else:
                raise ProtocolBroken(f"{self._who} answered with content of type {kind[:80]!r}")
        number = message.get("id")
        if isinstance(number, int):
            self._peer.fail_one(
                number, ProtocolBroken(f"{self._who} ended its answer before the result")
            )

    @override
    def post(self, message: Mapping[str, object]) -> None:
        if self._nursery is not None and self._posting < POSTS_MAX:
            self._posting += 1
            self._nursery.start_soon(self._posted, message)

    @override
    async def ended(self) -> None:
        await trio.sleep_forever()

    @override
    def agreed(self, version: str) -> None:
        self._version = version

    @property
    def _who(self) -> str:
        return f"MCP server {self._server!r} at {self._endpoint.where}"

    async def _posted(self, message: Mapping[str, object]) -> None:
        try:
            with trio.move_on_after(POST_SECONDS):
                async with self._exchanged("POST", message):
                    pass
        except McpError:
            return  # nobody waits for it; what matters will fail at the next request
        finally:
            self._posting -= 1

    async def _goodbye(self) -> None:
        if self._session is not None:
            try:
                async with self._exchanged("DELETE", None):
                    pass
            except McpError:
                return  # a server need not know this

    @asynccontextmanager
    async def _exchanged(
        self, method: str, message: Mapping[str, object] | None
    ) -> AsyncGenerator[tuple[httpx.Response, http.Body], None]:
        """One request, and its answer if that is no refusal. The body is left in any case."""
        session = self._session
        response = await self._response(method, message, session)
        try:
            body = http.Body(response)
        except LlmError as error:
            await response.aclose()
            raise ProtocolBroken(f"{self._who}: {error.message}") from None
        try:
            if not response.is_success:
                said = await body.read_up_to(4 * WORDS_MAX, CLOSE_SECONDS)
                raise self._refusal(response, said, session)
            try:
                yield response, body
            except (httpx.HTTPError, httpx.StreamError, OSError):
                raise ServerGone(
                    f"the connection to {self._who} broke inside its answer; "
                    "what it had done by then is not known"
                ) from None
            except LlmError as error:
                raise TooLarge(f"{self._who}: {error.message}") from None
        finally:
            await body.aclose(CLOSE_SECONDS)

    async def _response(
        self, method: str, message: Mapping[str, object] | None, session: str | None
    ) -> httpx.Response:
        headers = {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        try:
            headers.update(self._endpoint.signed())
        except HarnessError as error:
            raise NotRunning(f"{self._who}: {error.message}", code=error.code) from None
        if session is not None:
            headers["Mcp-Session-Id"] = session
        if self._version is not None:
            headers["MCP-Protocol-Version"] = self._version
        request = httpx.Request(
            method,
            self._endpoint.url,
            content=None if message is None else orjson.dumps(message),
            headers=headers,
            extensions={
                "timeout": {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None}
            },
        )
        try:
            return await self._pools.handle_async_request(request)
        except (
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.ProxyError,
            httpx.InvalidURL,
        ) as error:
            raise NotRunning(
                f"{self._who} cannot be reached ({type(error).__name__}); check that it runs"
            ) from None
        except LlmError as error:
            raise NotRunning(f"{self._who}: {error.message}") from None
        except (httpx.HTTPError, OSError):
            raise ServerGone(
                f"{self._who} closed the connection without an answer; "
                "what it had done by then is not known"
            ) from None

    def _refusal(self, response: httpx.Response, body: bytes, session: str | None) -> McpError:
        status = response.status_code
        said = visible(self._endpoint.hide(body.decode(errors="replace")))
        words = " ".join(said.split())[:WORDS_MAX]
        if status == HTTPStatus.NOT_FOUND and session is not None:
            return Expired(f"{self._who} has forgotten the session")
        if response.is_redirect or response.has_redirect_location:
            target = http.redirect_host(response.headers)
            return Refused(
                f"{self._who} points to {target!r}, and redirects are not followed; "
                f"set mcp.servers.{self._server}.url"
            )
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            named = [secret.name for secret in self._endpoint.secrets()]
            remedy = f"check {', '.join(named)}" if named else "name its token in `bearerEnv`"
            return Refused(f"{self._who} answered {status}; {remedy}")
        return Refused(f"{self._who} answered {status}: {words or '(no words)'}")

    def _session_of(self, response: httpx.Response) -> str | None:
        given: str | None = response.headers.get("mcp-session-id")
        if given is not None and not SESSION_ID.fullmatch(given):
            raise ProtocolBroken(f"{self._who} gave a session id that no header can carry")
        return given

    async def _events(self, body: http.Body) -> None:
        framer = http.EventFramer()
        while piece := await body.read():
            for event in framer.feed(piece):
                self._value(event)

    async def _whole(self, body: http.Body) -> bytes:
        found = bytearray()
        while piece := await body.read():
            found += piece
            if len(found) > http.LINE_MAX:
                raise TooLarge(f"{self._who} answered with more than {http.LINE_MAX} bytes")
        return bytes(found)

    def _value(self, data: bytes) -> None:
        try:
            taken = self._peer.receive(cast("JsonValue", orjson.loads(data)))
        except orjson.JSONDecodeError:
            taken = False
        if not taken:
            raise ProtocolBroken(f"{self._who} sent what is no message of the protocol")
