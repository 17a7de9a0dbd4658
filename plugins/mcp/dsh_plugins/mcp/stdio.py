"""A server as a process of ours, spoken to over its standard streams.

What comes in: a program and its environment. What goes out: lines of JSON on its input; lines of
its output that are messages go to the peer, all others are skipped, and its owner is told once.
What it writes to its error output is read all the time, or it would block, and its last lines are
kept for when it fails. It ends as the protocol says: its input is closed, then its whole session
gets TERM, then KILL; and the reaper kills that session should this process be killed before.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import orjson
import trio
from typing_extensions import override

from dsh.seams.processes import end_session
from dsh.tools import visible_bytes
from dsh_plugins.mcp.failures import McpError, NotRunning, ServerGone, TooLarge
from dsh_plugins.mcp.lines import LINE_MAX, Lines, TooLong
from dsh_plugins.mcp.link import Link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dsh.seams.processes import Reaper
    from dsh_plugins.mcp.peer import Peer
    from dsh_plugins.mcp.settings import Program

__all__ = ["StdioLink"]

CHUNK: Final = 65_536
#: Seconds for the next harder step when the server is ended, and for what it leaves to be read.
GRACE: Final = 0.5
REAP: Final = 1.0
#: Messages that wait for a server to read them. A request waits for room; what has no answer is
#: left out then: the server does not read.
POSTS_MAX: Final = 256
STDERR_KEPT: Final = 4_096
STDERR_LINES: Final = 8
FOREIGN_SHOWN: Final = 80
_ID_FIRST: Final = re.compile(
    rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\b'
)
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*\}\s*$')


@final
class StdioLink(Link):
    """One process. `foreign` is called with the first line that is no message."""

    def __init__(
        self,
        server: str,
        program: Program,
        peer: Peer,
        foreign: Callable[[str], None],
        *,
        reaper: Reaper,
    ) -> None:
        self._server: Final = server
        self._program: Final = program
        self._peer: Final = peer
        self._foreign: Final = foreign
        self._reaper: Final = reaper
        self._told = False
        self._gone: Final = trio.Event()
        self._quiet: Final = trio.Event()
        self._stderr: Final = bytearray()
        #: How it came to its end, once it has.
        self.how = "closed its output"
        self._post, self._posted = trio.open_memory_channel[bytes](POSTS_MAX)

    @override
    async def run(self, body: Callable[[], Awaitable[None]]) -> None:
        process = await self._started()
        failure: McpError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, process)
            nursery.start_soon(self._read, process)
            nursery.start_soon(self._listen, process)
            try:
                self._reaper.hold(process.pid)
                await body()
            except McpError as error:  # a nursery would wrap it
                failure = error
            finally:
                with trio.CancelScope(shield=True):
                    await self._end(process)
                self._reaper.release(process.pid)
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    @override
    async def send(self, message: Mapping[str, object]) -> None:
        # Through a queue and a task of its own: a line that is cut off would spoil the pipe.
        try:
            await self._post.send(_line_of(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the process is ending, and whoever waits for an answer is told so

    @override
    def post(self, message: Mapping[str, object]) -> None:
        with suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self._post.send_nowait(_line_of(message))

    @override
    async def ended(self) -> None:
        await self._gone.wait()

    @override
    def agreed(self, version: str) -> None:
        del version  # only HTTP repeats it

    def last_words(self) -> str:
        """The end of what the server wrote to its error output, on lines of their own."""
        # Cut after the keys are hidden, or the cut could leave the rest of one.
        text = self._program.hide(visible_bytes(bytes(self._stderr)))[-STDERR_KEPT:]
        lines = [line for line in text.splitlines() if line.strip()][-STDERR_LINES:]
        return "".join(f"\n  {line}" for line in lines)

    async def _started(self) -> trio.Process:
        program = self._program
        try:
            self._reaper.pipe()  # it runs before the server does, so that `hold` is only a write
            return await trio.lowlevel.open_process(
                [program.command, *program.args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd=program.cwd,
                env=program.environment(),
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise NotRunning(
                f"MCP server {self._server!r}: {program.command!r} cannot be started: {why}; "
                f"check mcp.servers.{self._server}.command"
            ) from None

    async def _write(self, process: trio.Process) -> None:
        assert process.stdin is not None
        try:
            async for line in self._posted:
                await process.stdin.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._posted.close()

    async def _read(self, process: trio.Process) -> None:
        lines = Lines()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ended, process, nursery.cancel_scope)
            await self._take_all(process, lines)
            nursery.cancel_scope.cancel()
        self._take(lines.last())
        with trio.move_on_after(GRACE):
            await process.wait()
        with trio.move_on_after(GRACE):
            await self._quiet.wait()
        self.how = how = _how(process.returncode)
        self._peer.fail(
            lambda: ServerGone(
                f"MCP server {self._server!r} {how} while it worked; "
                f"what it had done by then is not known{self.last_words()}"
            )
        )
        self._gone.set()

    async def _take_all(self, process: trio.Process, lines: Lines) -> None:
        assert process.stdout is not None
        try:
            while data := await process.stdout.receive_some(CHUNK):
                for line in lines.feed(bytes(data)):
                    self._take(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def _listen(self, process: trio.Process) -> None:
        assert process.stderr is not None
        try:
            while data := await process.stderr.receive_some(CHUNK):
                self._stderr.extend(data)
                del self._stderr[: -2 * STDERR_KEPT]
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self._quiet.set()

    def _take(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            found = _ID_FIRST.search(line.head) or _ID_LAST.search(line.tail)
            error = TooLarge(
                f"MCP server {self._server!r} answered with more than {LINE_MAX} bytes; "
                "ask it for less at once"
            )
            if found is None or not self._peer.fail_one(int(found[1]), error):
                self._skip(line.head)
            return
        if not line.strip():
            return
        try:
            taken = self._peer.receive(orjson.loads(line))
        except orjson.JSONDecodeError:
            taken = False
        if not taken:
            self._skip(line)

    def _skip(self, line: bytes) -> None:
        if not self._told:
            self._told = True
            self._foreign(
                self._program.hide(visible_bytes(line[: 4 * FOREIGN_SHOWN])[:FOREIGN_SHOWN])
            )

    async def _end(self, process: trio.Process) -> None:
        """Close its input, then TERM, then KILL for its whole session; then close the pipes."""
        self._post.close()
        assert process.stdin is not None
        await process.stdin.aclose()
        with trio.move_on_after(GRACE):
            await process.wait()
        await end_session(process, grace=GRACE, reap=REAP)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()


async def _ended(process: trio.Process, reading: trio.CancelScope) -> None:
    """End the reading soon after the process: what it started may hold its output open for ever."""
    await process.wait()
    await trio.sleep(GRACE)
    reading.cancel()


def _line_of(message: Mapping[str, object]) -> bytes:
    return orjson.dumps(message) + b"\n"


def _how(status: int | None) -> str:
    if status is None:
        return "closed its output"
    return f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
