"""Commands as local processes: each in a session of its own, ended with everything it started.

What comes in: a command line. What goes out: a `ShellResult`, within the deadline plus a bounded
grace. A child that keeps the pipe open does not hold the call, one that ignores TERM gets KILL,
and output beyond the bound is counted, not kept.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import trio
from attrs import mutable
from typing_extensions import override

from dsh.errors import ToolError
from dsh.hooks import frozen
from dsh.seams.output import Ends
from dsh.seams.processes import end_session, outlasts
from dsh.seams.shell import Shell, ShellResult, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dsh.seams.processes import Reaper

__all__ = ["LocalShell", "Patience"]

CHUNK: Final = 65_536
#: Tell the reaper (its pipe is our input) of this session, then become the command, without input.
ANNOUNCED: Final = 'echo "+ $$" >&0; exec "$@" </dev/null'


@frozen(kw_only=True, slots=True)
class Patience:
    """How long to wait, in seconds, before the next harder step."""

    #: from TERM to KILL when the turn is cancelled; a person is waiting.
    cancel: float = 0.1
    #: from TERM to KILL at the deadline; the command may tidy up.
    timeout: float = 2.0
    #: for output that is still in the pipe when the shell has exited.
    drain: float = 0.25
    #: for what the shell left, before it counts as left in the background.
    ending: float = 0.25
    #: after KILL, for the kernel to take the processes away.
    reap: float = 1.0


@mutable(slots=True, eq=False)
class _Child:
    process: trio.Process
    ends: Ends
    quiet: trio.Event  # the pipe reached its end: nobody holds it any more


def _unconfined(argv: Sequence[str], _cwd: str) -> Sequence[str]:
    return argv


def _shell() -> str:
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"


class LocalShell(Shell):
    """The default provider. `environment` gives a fresh, scrubbed environment for each command.

    `confined` gives the arguments that start a process inside a sandbox; asked for each command.
    """

    def __init__(
        self,
        environment: Callable[[], Mapping[str, str]],
        reaper: Reaper,
        *,
        head: int = 15_000,
        tail: int = 15_000,
        patience: Patience | None = None,
        confined: Callable[[Sequence[str], str], Sequence[str]] | None = None,
    ) -> None:
        self._environment = environment
        self._confined = confined if confined is not None else _unconfined
        self._reaper = reaper
        self._head = head
        self._tail = tail
        self._patience = patience if patience is not None else Patience()

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
        del owner  # every command has a shell of its own
        child = await self._start(command, cwd)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, child, watch)
                timed_out = await self._supervise(child, timeout)
                stopped_background, detached = await self._settle(child)
                nursery.cancel_scope.cancel()
        except BaseException:  # cancelled, or interrupted, or the pipe broke: nothing stays
            with trio.CancelScope(shield=True):
                await self._end(child, self._patience.cancel)
            raise
        finally:
            self._reaper.release(child.process.pid)
        head, tail, omitted = child.ends.ends()
        status = child.process.returncode
        assert status is not None
        return ShellResult(
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            head=head,
            tail=tail,
            omitted=omitted,
            timed_out=timed_out,
            stopped_background=stopped_background,
            detached=detached,
        )

    async def _start(self, command: str, cwd: str) -> _Child:
        if "\x00" in command:
            raise ToolError("the command holds a NUL character; a command line cannot carry one")
        try:
            process = await trio.lowlevel.open_process(
                ["/bin/sh", "-c", ANNOUNCED, "sh", *self._confined([_shell(), "-c", command], cwd)],
                stdin=self._reaper.pipe(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=cwd,
                env=self._environment(),
            )
        except OSError as error:
            where = error.filename if error.filename is not None else cwd
            raise ToolError(
                f"the command could not be started in {where}: {error.strerror}"
            ) from None
        ends = Ends(head=self._head, tail=self._tail)
        return _Child(process, ends, trio.Event())

    async def _read(self, child: _Child, watch: Watch | None) -> None:
        stream = child.process.stdout
        assert stream is not None
        async with stream:
            while data := await stream.receive_some(CHUNK):
                child.ends.add(bytes(data))
                if watch is not None:
                    watch(bytes(data))
        child.quiet.set()

    async def _supervise(self, child: _Child, timeout: float) -> bool:  # noqa: ASYNC109 - the deadline is the command's, and the result tells of it
        """Wait for the shell to exit. True: the deadline came first, and the group was ended."""
        with trio.move_on_after(timeout) as deadline:
            await child.process.wait()
        if not deadline.cancelled_caught:
            return False
        with trio.CancelScope(shield=True):
            await self._end(child, self._patience.timeout)
        return True

    async def _settle(self, child: _Child) -> tuple[bool, bool]:
        """After the shell: take the rest of its output, then end what it left running."""
        left = False
        with trio.CancelScope(shield=True):
            with trio.move_on_after(self._patience.drain):
                await child.quiet.wait()
            left = await outlasts(child.process.pid, self._patience.ending)
            if left:
                await self._end(child, self._patience.cancel)
                with trio.move_on_after(self._patience.drain):
                    await child.quiet.wait()
        return left, not child.quiet.is_set()

    async def _end(self, child: _Child, grace: float) -> None:
        await end_session(child.process, grace=grace, reap=self._patience.reap)
