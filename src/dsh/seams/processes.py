"""Process sessions that end when they should: on request, or because this process died.

What comes in: the leader of a session that a provider started with `start_new_session`. What goes
out: signals to whatever is left of it, and one small process, the reaper, that kills every session
still listed when its pipe closes (exit, crash, SIGKILL). It is a plain `sh` in a session of its
own, so no terminal signal reaches it. What makes a session of its own is nobody's any more.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import trio

__all__ = ["Reaper", "end_session", "outlasts", "send_session"]

#: `+ N` lists a session, `- N` takes it off; at the end of input all listed ones are killed: the
#: leader's group at once, then what job control put into other groups.
SCRIPT: Final = """
trap '' HUP INT TERM QUIT PIPE
sessions=" "
while read -r op id; do
    case $op in
        +) sessions="$sessions$id " ;;
        -) kept=" "
           for one in $sessions; do
               [ "$one" = "$id" ] || kept="$kept$one "
           done
           sessions=$kept ;;
    esac
done
[ "$sessions" = " " ] && exit 0
for one in $sessions; do
    kill -s KILL -- "-$one" 2>/dev/null
done
for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } 2>/dev/null || continue
    set -- ${line##*) }
    case $sessions in *" $4 "*) pid=${stat#/proc/}; kill -s KILL "${pid%/stat}" 2>/dev/null ;; esac
done
exit 0
"""
STOP_WITHIN: Final = 2.0
#: Between two looks for processes that go away, in seconds: at first, and at most.
LOOK_FIRST, LOOK_MAX = 0.005, 0.04


class Reaper:
    """Started with the first command. Every write is a line into a pipe, far below its buffer."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._held: set[int] = set()

    @property
    def pid(self) -> int | None:
        """The process that watches, for whoever lists processes; None before the first command."""
        return None if self._process is None else self._process.pid

    def _pipe(self) -> IO[bytes] | None:
        if self._process is None or self._process.poll() is not None:
            self._drop()
            # Cheap and rare: once per plugin. It inherits nothing but its pipe.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={},
                cwd="/",
            )
            # It may take the place of one that somebody killed.
            for session in self._held:
                self._say(f"+ {session}\n")
        return self._process.stdin

    def _say(self, line: str) -> None:
        pipe = self._pipe()
        if pipe is None:
            return
        try:
            pipe.write(line.encode())
            pipe.flush()
        except BrokenPipeError:
            self._drop()  # somebody killed it; the next command starts another one

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()

    def pipe(self) -> int:
        """The descriptor to which a command's first process writes `+ SESSION` about itself.

        It does so before it becomes the command, so that no moment is left uncovered.
        """
        pipe = self._pipe()
        assert pipe is not None
        return pipe.fileno()

    def hold(self, session: int) -> None:
        """List a session that does nothing before it hears from us."""
        self._say(f"+ {session}\n")
        self._held.add(session)

    def release(self, session: int) -> None:
        """`session` is gone; its number may be used again by others."""
        self._held.discard(session)
        if self._process is not None:
            self._say(f"- {session}\n")

    async def aclose(self) -> None:
        """Close the pipe: what is still listed is killed. Waits until that has happened."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(_reap, process)


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _members(session: int) -> dict[int, int] | None:
    """The processes of a session and their groups; no zombies. None: this system does not tell.

    Where nobody reaps orphans (a container without an init) zombies keep their numbers for ever.
    """
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - quick, and called often
    except OSError:
        return None
    if not names:
        return None
    found: dict[int, int] = {}
    for name in names:
        try:
            stat = Path(f"/proc/{name}/stat").read_bytes()
        except OSError:
            continue
        # After the last ")": state, parent, group, session. The name before it may hold anything.
        fields = stat[stat.rfind(b")") + 2 :].split()
        if int(fields[3]) == session and fields[0] not in (b"Z", b"X"):
            found[int(name)] = int(fields[2])
    return found


def send_session(session: int, number: int) -> bool:
    """Signal everything in a session; 0 only asks. False: nothing of it runs any more."""
    try:
        os.killpg(session, number)
        told = True
    except ProcessLookupError:
        told = False
    except PermissionError:
        told = True  # something changed its user; it is there, and not ours to end
    left = _members(session)
    if left is None:
        return told
    if number:
        for pid, group in left.items():
            if group != session:  # job control gave it a group of its own
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.Signals(number))
    return bool(left)


async def end_session(process: trio.Process, *, grace: float, reap: float) -> None:
    """TERM, `grace` seconds, KILL for whatever is left of it; then reap its leader.

    Returns at the latest `reap` seconds after the KILL. Run it shielded: nothing may stay half-way.
    """
    if send_session(process.pid, signal.SIGTERM):
        with trio.move_on_after(grace):
            await _gone(process)
        if send_session(process.pid, signal.SIGKILL):
            with trio.move_on_after(reap):
                await _gone(process)
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def outlasts(session: int, seconds: float) -> bool:
    """Whether something of a session still runs after so long: what is just ending does not."""
    with trio.move_on_after(seconds):
        await _empty(session)
        return False
    return True


async def _gone(process: trio.Process) -> None:
    await process.wait()
    await _empty(process.pid)


async def _empty(session: int) -> None:
    """Return when nothing of it runs. There is no event for that, so look now and then."""
    pause = LOOK_FIRST
    # In a thread: on a machine with thousands of processes one look takes its time.
    while await trio.to_thread.run_sync(send_session, session, 0):
        await trio.sleep(pause)
        pause = min(2 * pause, LOOK_MAX)
