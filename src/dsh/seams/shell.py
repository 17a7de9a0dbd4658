"""The shell seam: run one command line and say how it ended.

What comes in: a command, a directory, a deadline. What goes out: the ends of its output, what was
left out, and how the process ended: exit status, signal, deadline and leftovers, each by itself.
A provider never lets a process outlive its command, never keeps more output than its bound, and
passes on no key, token or secret of the environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from dsh.hooks import frozen
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from dsh.seams.environ import Credentials, Environ

__all__ = ["SHELL", "Shell", "ShellResult", "Watch", "command_environment"]

#: Gets the output of a running command, piece by piece as it comes. Quick; never raises.
Watch: TypeAlias = Callable[[bytes], None]

SECRET_ENDINGS: Final = ("_API_KEY", "_TOKEN", "_SECRET")
#: Programs that would wait for a person, or draw on a terminal, do neither.
PLAIN: Final[Mapping[str, str]] = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}


@frozen(kw_only=True, slots=True)
class ShellResult:
    """How one command ended. The facts are independent of each other.

    `exit_code` is 0 to 255, or None if a signal ended it; `signal` is then its number. `head` and
    `tail` are raw bytes of stdout and stderr together, `omitted` counts the bytes between them.
    `timed_out`: the deadline ended it. `stopped_background`: processes of its group were still
    running when the shell had exited, and were ended. `detached`: a process that left the group
    still holds the output.
    """

    exit_code: int | None
    signal: int | None
    head: bytes
    tail: bytes
    omitted: int
    timed_out: bool
    stopped_background: bool
    detached: bool


class Shell(ABC):
    """Runs command lines for tools."""

    @abstractmethod
    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout: float,  # noqa: ASYNC109 - the deadline is the command's, and the result tells of it
        owner: str | None = None,
        watch: Watch | None = None,
    ) -> ShellResult:
        """Run `command` in `cwd`, at most `timeout` seconds, without input.

        `owner` names the session it is for; a provider may keep a shell for each, which then is
        where the session's last command left it. `watch` sees all output, before this returns.

        Raises ToolError: the directory or the shell cannot be used. Cancelled: the command's whole
        process group is ended and waited for before `Cancelled` goes on.
        """


SHELL: Final[ServiceKey[Shell]] = ServiceKey("shell")


def command_environment(environ: Environ, credentials: Credentials | None) -> dict[str, str]:
    """What a command may see of our environment: no key of any provider, no token, no secret."""
    secret = credentials.secret_names() if credentials is not None else frozenset[str]()
    kept = {
        name: value
        for name, value in environ.variables().items()
        if name not in secret and not name.upper().endswith(SECRET_ENDINGS)
    }
    return kept | dict(PLAIN)
