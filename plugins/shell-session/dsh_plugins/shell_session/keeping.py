"""A bash for each owner: fed through its input, read until it says that the command is over.

What comes in: commands. What goes out: the ends of their output and their status. The end of a
command is a line with a number that nobody can guess, printed by bash itself, so a child that keeps
the pipe open delays nothing. Cancelled or late: the whole process group is ended, and a fresh bash
begins with the next command.
"""

from __future__ import annotations

import shlex
import subprocess
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import trio
from attrs import field, mutable
from typing_extensions import override

from dsh.errors import ToolError
from dsh.seams.output import Ends
from dsh.seams.processes import end_session
from dsh.seams.shell import Shell, ShellResult, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dsh.seams.processes import Reaper

__all__ = ["SessionShells"]

CHUNK: Final = 65_536
HALF: Final = 15_000
GRACE: Final = 0.1
REAP: Final = 1.0


class _Output:
    """What a command printed, as far as it is not (the beginning of) the mark that ends it."""

    def __init__(self, mark: bytes, watch: Watch | None) -> None:
        self.ends: Final = Ends(head=HALF, tail=HALF)
        self.mark: Final = mark
        self._watch = watch
        self._held = bytearray()

    def add(self, data: bytes) -> int | None:
        """Take a chunk. The status, when the mark and its line have come."""
        self._held += data
        at = self._held.find(self.mark)
        if at >= 0:
            line, newline, _ = bytes(self._held[at + len(self.mark) :]).partition(b"\n")
            if newline:
                self._keep(at)
                return int(line)
            return None
        # The mark may have begun in what came last; it has its first byte only once.
        began = self._held.rfind(self.mark[:1], max(0, len(self._held) - len(self.mark) + 1))
        self._keep(began if began >= 0 else len(self._held))
        return None

    def rest(self) -> None:
        """No mark will come: bash has ended."""
        self._keep(len(self._held))

    def _keep(self, count: int) -> None:
        data = bytes(self._held[:count])
        del self._held[:count]
        if data:
            self.ends.add(data)
            if self._watch is not None:
                self._watch(data)


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
        reaper: Reaper,
    ) -> None:
        self._environment = environment
        self._confined = confined
        self._reaper = reaper
        self._kept: dict[str, _Kept] = {}

    @override
    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout: float,
        owner: str | None = None,
        watch: Watch | None = None,
    ) -> ShellResult:
        if "\x00" in command:
            raise ToolError("the command holds a NUL character; a command line cannot carry one")
        kept = self._kept.setdefault(owner if owner is not None else f"in {cwd}", _Kept())
        async with kept.lock:
            if kept.process is not None and kept.process.poll() is not None:
                await self._end(kept, kept.process)  # killed while nobody looked
            if kept.process is None:
                kept.process = await self._started(cwd)
            process = kept.process
            output = _Output(f"\x1f{token_hex(16)} ".encode(), watch)
            try:
                return await self._in(kept, process, command, output, timeout)
            except BaseException:  # cancelled, or its pipe broke: nothing stays
                await self._end(kept, process)
                raise

    async def _started(self, cwd: str) -> trio.Process:
        try:
            process = await trio.lowlevel.open_process(
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
        # Were we killed before this line, it would end by itself: it has had no command yet.
        self._reaper.hold(process.pid)
        return process

    async def _in(
        self, kept: _Kept, process: trio.Process, command: str, output: _Output, seconds: float
    ) -> ShellResult:
        status = None
        with trio.move_on_after(seconds) as deadline:
            status = await _exchanged(process, command, output)
        if status is None:  # the deadline came, or bash ended, or it closed its own output
            with trio.move_on_after(0 if deadline.cancelled_caught else GRACE):
                await process.wait()
            await self._end(kept, process)
            output.rest()
            status = process.returncode
            assert status is not None
        head, tail, omitted = output.ends.ends()
        return ShellResult(
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            head=head,
            tail=tail,
            omitted=omitted,
            timed_out=deadline.cancelled_caught,
            stopped_background=False,
            detached=False,
        )

    async def _end(self, kept: _Kept, process: trio.Process) -> None:
        """End a bash with everything it started; the next command begins with a fresh one."""
        if kept.process is process:
            kept.process = None
        with trio.CancelScope(shield=True):
            await end_session(process, grace=GRACE, reap=REAP)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await stream.aclose()
        self._reaper.release(process.pid)

    async def forget(self, owner: str) -> None:
        """The owner will run nothing more: end its bash with what it started."""
        kept = self._kept.pop(owner, None)
        if kept is not None and kept.process is not None:
            await self._end(kept, kept.process)

    async def aclose(self) -> None:
        """End every bash with what it started."""
        for kept in self._kept.values():
            if kept.process is not None:
                await self._end(kept, kept.process)
        self._kept.clear()
        await self._reaper.aclose()


async def _exchanged(process: trio.Process, command: str, output: _Output) -> int | None:
    """Feed the command and read until its mark. None: bash ended first."""
    assert process.stdin is not None
    assert process.stdout is not None
    mark = output.mark.decode()
    script = f"eval {shlex.quote(command)} </dev/null\nprintf '{mark}%d\\n' $?\n"
    with suppress(trio.BrokenResourceError):
        await process.stdin.send_all(script.encode())
    while data := await process.stdout.receive_some(CHUNK):
        status = output.add(bytes(data))
        if status is not None:
            return status
    return None
