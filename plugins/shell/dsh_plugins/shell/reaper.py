"""One small process that ends our process groups when this process dies, however it dies.

What comes in: the group of each command, told by itself as it starts, and by us when it has ended.
What goes out: nothing; but when the pipe closes (exit, crash, SIGKILL), every group that is still
listed gets KILL. It is a plain `sh` in a session of its own, so no terminal signal reaches it.
"""

from __future__ import annotations

import subprocess
from typing import IO, Final

import trio

__all__ = ["Reaper"]

#: `+ N` lists a group, `- N` takes it off; at the end of input all listed groups are killed.
SCRIPT: Final = """
trap '' HUP INT TERM QUIT PIPE
groups=" "
while read -r op id; do
    case $op in
        +) groups="$groups$id " ;;
        -) kept=" "
           for group in $groups; do
               [ "$group" = "$id" ] || kept="$kept$group "
           done
           groups=$kept ;;
    esac
done
for group in $groups; do
    kill -s KILL -- "-$group" 2>/dev/null
done
exit 0
"""
STOP_WITHIN: Final = 2.0


class Reaper:
    """Started with the first command. Every write is a line into a pipe, far below its buffer."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def _pipe(self) -> IO[bytes] | None:
        if self._process is None or self._process.poll() is not None:
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
        return self._process.stdin

    def _say(self, line: str) -> None:
        pipe = self._pipe()
        if pipe is None:
            return
        try:
            pipe.write(line.encode())
            pipe.flush()
        except BrokenPipeError:
            self._process = None  # somebody killed it; the next command starts another one

    def pipe(self) -> int:
        """The descriptor to which a command's first process writes `+ GROUP` about itself.

        It does so before it becomes the command, so that no moment is left uncovered.
        """
        pipe = self._pipe()
        assert pipe is not None
        return pipe.fileno()

    def release(self, group: int) -> None:
        """`group` is gone; its number may be used again by others."""
        if self._process is not None:
            self._say(f"- {group}\n")

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
