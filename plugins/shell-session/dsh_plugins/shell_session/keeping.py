"""A bash for each owner: fed through its input, read until it says that the command is over.

What comes in: commands. What goes out: the ends of their output and their status. The end of a
command is a line with a number that nobody can guess, printed by bash itself, so a child that keeps
the pipe open delays nothing. Cancelled or late: the whole process group is ended, and a fresh bash
begins with the next command.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import trio
from attrs import field, mutable
from typing_extensions import override

from dsh.errors import ToolError
from dsh.seams.shell import Shell, ShellResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["SessionShells"]

CHUNK: Final = 65_536
HALF: Final = 15_000
GRACE: Final = 0.1
REAP: Final = 1.0


@mutable(slots=True, eq=False)
class _Output:
    """What a command printed: its two ends. `held` may still be the beginning of the mark."""

    mark: bytes
    head: bytearray = field(factory=bytearray)
    tail: bytearray = field(factory=bytearray)
    omitted: int = 0
    held: bytearray = field(factory=bytearray)

    def add(self, data: bytes) -> int | None:
        """Take a chunk. The status, when the mark and its line have come."""
        self.held += data
        at = self.held.find(self.mark)
        if at >= 0:
            line, newline, _ = bytes(self.held[at + len(self.mark) :]).partition(b"\n")
            if newline:
                self._keep(bytes(self.held[:at]))
                return int(line)
            return None
        keep = len(self.held) - len(self.mark)
        if keep > 0:
            self._keep(bytes(self.held[:keep]))
            del self.held[:keep]
        return None

    def rest(self) -> None:
        """No mark will come: bash has ended."""
        self._keep(bytes(self.held))
        self.held.clear()

    def _keep(self, data: bytes) -> None:
        room = HALF - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room > 0 else data
        if len(self.tail) > HALF:
            self.omitted += len(self.tail) - HALF
            del self.tail[:-HALF]


@mutable(slots=True, eq=False)
class _Kept:
    """One owner's bash, and the queue of its commands."""

    lock: trio.Lock = field(factory=trio.Lock)
    process: trio.Process | None = None


class SessionShells(Shell):
    """The provider. Commands of one owner run one after the other."""

    def __init__(
        self,
        environment: Callable[[], Mapping[str, str]],
        confined: Callable[[Sequence[str], str], Sequence[str]],
    ) -> None:
        self._environment = environment
        self._confined = confined
        self._kept: dict[str, _Kept] = {}

    @override
    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout: float,
        owner: str | None = None,
    ) -> ShellResult:
        if "\x00" in command:
            raise ToolError("the command holds a NUL character; a command line cannot carry one")
        kept = self._kept.setdefault(owner if owner is not None else f"in {cwd}", _Kept())
        async with kept.lock:
            if kept.process is None or kept.process.poll() is not None:
                kept.process = await self._started(cwd)
            try:
                return await self._in(kept, kept.process, command, timeout)
            except BaseException:  # cancelled, or its pipe broke: nothing stays
                with trio.CancelScope(shield=True):
                    await _end(kept.process)
                kept.process = None
                raise

    async def _started(self, cwd: str) -> trio.Process:
        try:
            return await trio.lowlevel.open_process(
                list(self._confined(["/bin/bash", "--noprofile", "--norc"], cwd)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=cwd,
                env=dict(self._environment()),
            )
        except OSError as error:
            raise ToolError(f"bash could not be started in {cwd}: {error.strerror}") from None

    async def _in(
        self, kept: _Kept, process: trio.Process, command: str, seconds: float
    ) -> ShellResult:
        mark = f"\x1f{token_hex(16)} "
        output, status = _Output(mark.encode()), None
        script = f"eval {shlex.quote(command)} </dev/null\nprintf '{mark}%d\\n' $?\n"
        with trio.move_on_after(seconds) as deadline:
            status = await _exchanged(process, script.encode(), output)
        late = deadline.cancelled_caught
        if status is None:
            if late:
                with trio.CancelScope(shield=True):
                    await _end(process)
            output.rest()
            ended = await process.wait()
            with trio.CancelScope(shield=True):
                await _end(process)  # what it left in the background
            kept.process = None
            status = ended
        return ShellResult(
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            head=bytes(output.head),
            tail=bytes(output.tail),
            omitted=output.omitted,
            timed_out=late,
            stopped_background=False,
            detached=False,
        )

    async def aclose(self) -> None:
        """End every bash with what it started."""
        with trio.CancelScope(shield=True):
            for kept in self._kept.values():
                if kept.process is not None:
                    await _end(kept.process)
        self._kept.clear()


async def _exchanged(process: trio.Process, script: bytes, output: _Output) -> int | None:
    """Feed the command and read until its mark. None: bash ended first."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(trio.BrokenResourceError):
        await process.stdin.send_all(script)
    while data := await process.stdout.receive_some(CHUNK):
        status = output.add(bytes(data))
        if status is not None:
            return status
    return None


def _send(process: trio.Process, number: int) -> bool:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _end(process: trio.Process) -> None:
    """TERM, a grace, KILL for the whole group; then reap bash."""
    if _send(process, signal.SIGTERM):
        with trio.move_on_after(GRACE):
            await trio.sleep_forever() if process.poll() is not None else await process.wait()
        _send(process, signal.SIGKILL)
    with trio.move_on_after(REAP):
        await process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await stream.aclose()
