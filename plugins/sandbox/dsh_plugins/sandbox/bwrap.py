"""How a process is confined: through `bwrap`, or not at all.

What comes in: arguments and a workspace. What goes out: the arguments that start it. The whole
system is visible read-only, with a /dev, /proc, /tmp and /run of its own; the workspace alone can
be written. Nothing inside has a capability, nor gets one by a namespace of its own.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import trio
from attrs import evolve
from typing_extensions import override

from dsh.errors import ToolError
from dsh.hooks import frozen
from dsh.seams.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bubblewrap", "Unconfined", "working"]

#: What stays visible of /run. The rest of it is sockets of services that would act for whoever
#: connects, and no read-only mount keeps anyone from connecting.
RUNNING: Final = ("/run/current-system", "/run/systemd/resolve")
TRY_SECONDS: Final = 5.0


@frozen(kw_only=True)
class Bubblewrap(Sandbox):
    """Confinement by `bwrap`. `network`: whether it reaches the network.

    `closed`: this version can refuse new user namespaces inside; without that a process could get
    capabilities in one, with which nothing outside of the workspace can be written either.
    """

    program: str
    network: bool
    closed: bool = True

    @override
    def confined(self, argv: Sequence[str], cwd: str) -> tuple[str, ...]:
        workspace = os.path.realpath(cwd)
        shown = {*RUNNING, os.path.realpath("/etc/resolv.conf")}
        visible = (path for path in sorted(shown) if path.startswith("/run/"))
        return (
            self.program,
            # Without a user namespace root would keep the right to mount everything anew, writable.
            *("--unshare-user", "--cap-drop", "ALL"),
            *(("--disable-userns",) if self.closed else ()),
            *("--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try"),
            *(() if self.network else ("--unshare-net",)),
            *("--ro-bind", "/", "/"),
            *("--dev", "/dev"),
            # Root may write settings of the kernel without any capability: they are its files.
            *("--proc", "/proc", "--remount-ro", "/proc"),
            *("--tmpfs", "/tmp"),
            *("--tmpfs", "/run"),
            *(word for path in visible for word in ("--ro-bind-try", path, path)),
            *("--bind", workspace, workspace),
            *("--chdir", workspace),
            # No --die-with-parent: the parent is a thread, which ends when it has been idle for a
            # while. Who starts processes ends their session, and with it the whole sandbox.
            "--",
            *argv,
        )


async def working(wanted: Bubblewrap) -> Bubblewrap | str:
    """The sandbox as it works on this system, or why it does not, in a line."""
    problem = await _tried(wanted)
    if problem is None:
        return wanted
    older = evolve(wanted, closed=False)
    return older if await _tried(older) is None else problem


async def _tried(sandbox: Bubblewrap) -> str | None:
    with trio.move_on_after(TRY_SECONDS):
        done = await trio.run_process(
            sandbox.confined(["true"], "/tmp"),
            stdin=b"",
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        said = done.stdout.decode(errors="replace").strip().splitlines()
        return None if done.returncode == 0 else (said or [f"status {done.returncode}"])[-1]
    return f"no answer within {TRY_SECONDS:g} s"


@frozen
class Unconfined(Sandbox):
    """No confinement, and `why`. `refuse`: then nothing runs."""

    why: str
    refuse: bool

    @override
    def confined(self, argv: Sequence[str], cwd: str) -> tuple[str, ...]:
        if self.refuse:
            raise ToolError(
                f"sandbox: processes have to be confined, and {self.why}; "
                "install bubblewrap, or set sandbox.required to false"
            )
        return tuple(argv)
