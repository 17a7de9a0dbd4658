"""The command `dsh` under test: a process of its own, a home and a workspace of its own.

What comes in: arguments, a model server, what to type and when to interrupt. What goes out: exit
code and what was printed, on pipes or on a terminal. Nothing of the caller's own settings, keys or
sessions is seen by the command.
"""

from __future__ import annotations

import os
import pty
import signal
import sys
from contextlib import asynccontextmanager
from functools import partial
from subprocess import PIPE
from typing import TYPE_CHECKING, Final, final

import trio
from attrs import evolve, field, frozen

from dsh.boot import process_environ

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from dsh.testing.model_server import ModelServer

__all__ = ["CommandLine", "Ran", "Running", "refused"]

COMMAND: Final = (sys.executable, "-m", "dsh.cli")
#: Seconds after which a command that does not end is a failure.
PATIENCE: Final = 30.0
#: What a command keeps of the caller's environment.
KEPT: Final = ("PATH", "PYTHONPATH", "LANG", "TMPDIR", "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV")


@frozen
class Ran:
    """A command that has ended. `out` and `err` are what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Standard output by lines."""
        return self.out.splitlines()


@final
class Running:
    """A command that runs, with what it has said so far."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._out = bytearray()

    @property
    def said(self) -> str:
        """What was read of its standard output so far."""
        return self._out.decode()

    async def until(self, text: str) -> None:
        """Read standard output until `text` was seen."""
        stdout = self._process.stdout
        assert stdout is not None
        with trio.fail_after(PATIENCE):
            while text.encode() not in self._out:
                piece = await stdout.receive_some()
                assert piece, f"it ended without saying {text!r}: {self._out.decode()}"
                self._out += piece

    async def hears(self, data: bytes) -> None:
        """Write to its standard input; more than a pipe holds returns when it reads."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(data)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Send a signal; by default that of Ctrl-C."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it as a crash would."""
        self._process.kill()

    async def ended(self) -> Ran:
        """Read the rest and wait for the end."""
        err = bytearray()
        assert self._process.stderr is not None
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._rest)
                async for piece in self._process.stderr:
                    err += piece
            code = await self._process.wait()
        return Ran(code, self._out.decode(), err.decode())

    async def _rest(self) -> None:
        assert self._process.stdout is not None
        async for piece in self._process.stdout:
            self._out += piece


@frozen
class CommandLine:
    """The command in a home and a workspace of its own."""

    home: Path
    workspace: Path
    variables: dict[str, str] = field(factory=dict[str, str])

    def talking_to(self, server: ModelServer) -> CommandLine:
        """The same, with the provider `deepseek` on this server and a key it takes."""
        variables = {"DEEPSEEK_API_KEY": "sk-test-key", "DEEPSEEK_BASE_URL": server.base_url}
        return self.having(**variables)

    def having(self, **variables: str) -> CommandLine:
        """The same, with these environment variables too."""
        return evolve(self, variables={**self.variables, **variables})

    def environment(self) -> dict[str, str]:
        """What the command finds in its environment."""
        outer = process_environ().variables()
        inherited = {name: outer[name] for name in KEPT if name in outer}
        return {**inherited, "DSH_HOME": str(self.home), "HOME": str(self.home), **self.variables}

    async def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        cwd: Path | None = None,
        stdout: int | None = None,
    ) -> Ran:
        """Run it to its end. `stdout`: a descriptor in place of the captured output."""
        run = partial(
            trio.run_process,
            [*COMMAND, *arguments],
            stdin=stdin,
            capture_stderr=True,
            check=False,
            cwd=self.workspace if cwd is None else cwd,
            env=self.environment(),
        )
        with trio.fail_after(PATIENCE):
            if stdout is None:
                done = await run(capture_stdout=True)
            else:
                done = await run(stdout=stdout)
        return Ran(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncGenerator[Running, None]:
        """Start it; what still runs when the block is left is killed."""
        process = await trio.lowlevel.open_process(
            [*COMMAND, *arguments],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self.workspace,
            env=self.environment(),
        )
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def on_terminal(self, *arguments: str, split: bool = False) -> Ran:
        """Run it with standard output on a terminal, and standard error too unless `split`."""
        leader, follower = pty.openpty()
        shown = bytearray()
        done: list[Ran] = []

        async def read() -> None:
            while True:
                await trio.lowlevel.wait_readable(leader)
                try:
                    piece = os.read(leader, 65536)
                except OSError:  # EIO: the last writer closed the terminal
                    return
                shown.extend(piece)

        async def run() -> None:
            process = await trio.lowlevel.open_process(
                [*COMMAND, *arguments],
                stdin=PIPE,
                stdout=follower,
                stderr=PIPE if split else follower,
                cwd=self.workspace,
                env=self.environment(),
            )
            os.close(follower)
            err = bytearray()
            if process.stderr is not None:
                async for piece in process.stderr:
                    err += piece
            done.append(Ran(await process.wait(), "", err.decode()))

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                nursery.start_soon(run)
        os.close(leader)
        return Ran(done[0].code, shown.decode().replace("\r\n", "\n"), done[0].err)


def refused(ran: Ran, *words: str, code: int) -> str:
    """Assert that `ran` was refused well, and return what it said.

    Well means: this exit code, nothing on standard output, one paragraph on standard error that
    contains all `words`, and no traceback.
    """
    said = [line for line in ran.err.splitlines() if not line.startswith("session ")]
    text = " ".join(said)
    assert (ran.code, ran.out) == (code, ""), ran
    assert "Traceback" not in ran.err, ran.err
    assert text.startswith("dsh: "), ran.err
    missing = [word for word in words if word not in text]
    assert not missing, (missing, text)
    return text
