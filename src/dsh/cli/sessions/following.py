"""Following a session while it is written: the page, served on this machine, and what comes after.

What comes in: a document that holds what was logged so far, and the store to look into. What goes
out: answers on a loopback port of its own, under a path that nobody can guess, until Ctrl-C. The
log is read as anybody may read it: no lock is taken, and its writer never waits.
"""

from __future__ import annotations

import secrets
import signal
from functools import partial
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qs

import h11
import trio

from dsh.cli.screen.inert import one_line
from dsh.cli.sessions.looking import as_far_as_readable
from dsh.cli.sessions.showing import facts_of
from dsh.errors import SessionError
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.cli.grammar.view import ViewOptions
    from dsh.cli.screen.outputs import Screen
    from dsh.cli.sessions.looking import Found, Looking
    from dsh.view import Document

__all__ = ["following"]

#: How often the log is looked at, and how much of the time looking may take at most.
LOOK_SECONDS: Final = 0.25
REST_FACTOR: Final = 4
#: How long a page's question waits for news; browsers give up later.
NEWS_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 60.0
MOST_CLIENTS: Final = 32
CHUNK: Final = 65536
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def following(
    options: ViewOptions,
    looking: Looking,
    document: Document,
    found: Found,
    show: Callable[[str, Screen], Awaitable[None]],
) -> int:
    """Serve the page until a signal comes, or the session is gone. Returns the exit code."""
    screen = looking.screen
    followed = _Followed(looking, document, found)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = _Server(followed, port=_port(listeners[0]))
    async with trio.open_nursery() as nursery:
        await nursery.start(_until_signal, nursery.cancel_scope)
        serve = partial(trio.serve_listeners, server.answer, listeners)
        nursery.start_soon(serve)
        screen.out.text(f"{server.address}\n")
        screen.say(f"following {found.id}; Ctrl-C ends it, the session goes on\n")
        await screen.flushed()
        if options.open:
            await show(server.address, screen)
        problem = await followed.watch()
        screen.say(f"{problem}\n")
        nursery.cancel_scope.cancel()
    return 0


def _port(listener: trio.SocketListener) -> int:
    name: tuple[str, int] = listener.socket.getsockname()
    return name[1]


async def _until_signal(
    scope: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Cancel at the first signal. Those the caller had us ignore stay ignored."""
    heard = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    if not heard:
        task_status.started()
        return
    with trio.open_signal_receiver(*heard) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return


@final
class _Followed:
    """The document of a growing log. `news` is set whenever it grew, and then replaced."""

    def __init__(self, looking: Looking, document: Document, found: Found) -> None:
        self.document: Final = document
        self.found = found
        self.news = trio.Event()
        self._looking: Final = looking
        self._seen = len(found.events)
        self._revision = ""

    async def watch(self) -> str:
        """Look at the log again and again. Returns why that came to an end."""
        while True:
            began = trio.current_time()
            summary = next(
                (one for one in await self._looking.store.list() if one.id == self.found.id), None
            )
            if summary is None:
                return f"the session {self.found.id} is gone; the page keeps what it had"
            if summary.revision != self._revision:
                try:
                    self._take(await as_far_as_readable(self._looking.store, summary))
                except SessionError as error:
                    return f"dsh: {one_line(error.message)}"
                self._revision = summary.revision
            took = trio.current_time() - began
            await trio.sleep(max(LOOK_SECONDS, REST_FACTOR * took))

    def _take(self, found: Found) -> None:
        fresh = found.events[self._seen :]
        changed = bool(fresh) or (found.damage, found.torn) != (self.found.damage, self.found.torn)
        self.found = found
        self._seen = max(self._seen, len(found.events))
        self.document.see_all(fresh)
        if changed:
            self.news.set()
            self.news = trio.Event()

    async def change(self, revision: int, place: int) -> bytes:
        """What is new since then; waits for news for a while. Cancellable."""
        facts = facts_of(self.found)
        if self.document.trajectory.tables.revision <= revision:
            with trio.move_on_after(NEWS_SECONDS):
                await self.news.wait()
            facts = facts_of(self.found)
        return self.document.change(facts, revision=revision, place=place)

    def page(self, *, follow: bool) -> bytes:
        """The whole page, as it is now."""
        return self.document.whole(facts_of(self.found), follow=follow).encode()


@frozen(slots=True)
class _Answer:
    status: int
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    name: str | None = None

    def headers(self) -> list[tuple[str, str]]:
        """Its headers. Nothing is kept, guessed, framed or told to others."""
        made = [
            ("content-type", self.kind),
            ("content-length", str(len(self.body))),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
        ]
        if self.name is not None:
            made.append(("content-disposition", f'attachment; filename="{self.name}"'))
        return made


@final
class _Server:
    """One page on one port. `address` is where it is."""

    def __init__(self, followed: _Followed, *, port: int) -> None:
        self._followed: Final = followed
        self._token: Final = secrets.token_urlsafe(18)
        self._hosts: Final = (f"127.0.0.1:{port}".encode(), f"localhost:{port}".encode())
        self._clients: Final = trio.Semaphore(MOST_CLIENTS)
        self.address: Final = f"http://127.0.0.1:{port}/{self._token}/"

    async def answer(self, stream: trio.SocketStream) -> None:
        """Serve one connection. A client's mistake or absence ends it, and nothing else."""
        async with self._clients, stream:
            try:
                await self._serve(stream)
            except (h11.ProtocolError, trio.BrokenResourceError, trio.TooSlowError):
                return

    async def _serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        while True:
            with trio.fail_after(IDLE_SECONDS):
                event = await _next(connection, stream)
            if not isinstance(event, h11.Request):
                return
            with trio.fail_after(IDLE_SECONDS):
                while not isinstance(await _next(connection, stream), h11.EndOfMessage):
                    pass
            answer = await self._route(event)
            head = h11.Response(status_code=answer.status, headers=answer.headers())
            await _send(connection, stream, head)
            if event.method != b"HEAD":
                await _send(connection, stream, h11.Data(data=answer.body))
            await _send(connection, stream, h11.EndOfMessage())
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()

    async def _route(self, request: h11.Request) -> _Answer:
        host = next((value for name, value in request.headers if name == b"host"), b"")
        if host not in self._hosts:
            return _Answer(421, b"this page is for this machine alone\n")
        if request.method not in {b"GET", b"HEAD"}:
            return _Answer(405, b"there is nothing to change here\n")
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        _, token, *rest = path.split("/") if path.startswith("/") else ("", "")
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return _Answer(404, b"no such page\n")
        match rest:
            case [""]:
                return _Answer(200, self._followed.page(follow=True), "text/html; charset=utf-8")
            case ["file"]:
                page = self._followed.page(follow=False)
                return _Answer(200, page, "text/html; charset=utf-8", "session.html")
            case ["changes"]:
                asked = parse_qs(query)
                revision, place = (_count(asked.get(name)) for name in ("revision", "place"))
                body = await self._followed.change(revision, place)
                return _Answer(200, body, "application/json")
            case _:
                return _Answer(404, b"no such page\n")


def _count(values: list[str] | None) -> int:
    text = values[0] if values else ""
    return int(text) if text.isdecimal() and len(text) < 16 else 0  # noqa: PLR2004  digits of any log


async def _next(connection: h11.Connection, stream: trio.SocketStream) -> h11.Event:
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Event):
            return event
        if event is h11.PAUSED:
            raise h11.RemoteProtocolError("a second request before the first was answered")
        connection.receive_data(await stream.receive_some(CHUNK))


async def _send(connection: h11.Connection, stream: trio.SocketStream, event: h11.Event) -> None:
    data = connection.send(event)
    if data:
        await stream.send_all(data)
