"""A person at `dsh chat`: keys pressed one after another, and what the terminal shows for them.

What comes in: a command line, keys, waits for texts, signals. What goes out: everything that was
shown (as an emulated terminal has it, and as bytes) and the exit code. Waiting is always for
something that is shown; the only pauses are those between two keys, which are what a person does.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from dsh.testing.command_line import COMMAND, PATIENCE
from dsh.testing.emulator import Emulator

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from dsh.testing.command_line import CommandLine

__all__ = ["Person", "talking"]

#: Between two keys, in seconds: more than a paste, less than a thought.
KEY_SECONDS: Final = 0.03
#: What the editor asks for first of all.
PASTE_ON: Final = "\x1b[?2004h"
PASTE_OFF: Final = "\x1b[?2004l"
SPANS: Final = re.compile(r"\d+\.\d s\b")


@final
class Person:
    """Somebody who sits at the terminal. `gone`: the command has closed it."""

    def __init__(
        self, process: trio.Process, leader: int, emulator: Emulator, before: object
    ) -> None:
        self._process: Final = process
        self._leader: Final = leader
        self.terminal: Final = emulator
        self._before: Final = before
        self.raw: Final = bytearray()
        self._news = trio.Event()
        self.gone = False

    @property
    def lines(self) -> list[str]:
        """Everything that can be read by scrolling up, oldest first."""
        return self.terminal.transcript

    @property
    def shown(self) -> str:
        """The same, as one text."""
        return "\n".join(self.lines)

    @property
    def steady(self) -> str:
        """The same, with what differs from run to run (spans of time) as `N s`."""
        return re.sub(r" +(N s)", r" \1", SPANS.sub("N s", self.shown))

    @property
    def restored(self) -> bool:
        """Whether the terminal is set as it was before the command, and its paste mode is off."""
        asked = self.terminal.asked
        paste = [one for one in asked if one in (PASTE_ON, PASTE_OFF)]
        return termios.tcgetattr(self._leader) == self._before and paste[-1:] == [PASTE_OFF]

    async def listens(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Read what the command writes until it is gone."""
        task_status.started()
        while True:
            await trio.lowlevel.wait_readable(self._leader)
            try:
                piece = os.read(self._leader, 65536)
            except OSError:  # EIO: the last one who had it open closed it
                piece = b""
            self.raw.extend(piece)
            self.terminal.feed(piece)
            self._news.set()
            self._news = trio.Event()
            if not piece:
                self.gone = True
                return

    async def until(self, seen: Callable[[Person], bool], what: str) -> None:
        """Wait until `seen` says so."""
        with trio.move_on_after(PATIENCE):
            while not seen(self) and not self.gone:
                await self._news.wait()
        assert seen(self), f"never saw {what!r}:\n{self.shown}"

    async def sees(self, text: str, *, times: int = 1) -> None:
        """Wait until `text` can be read this often."""
        await self.until(lambda one: one.shown.count(text) >= times, text)

    async def sees_no(self, text: str) -> None:
        """Wait until `text` is not on the screen any more."""
        await self.until(lambda one: text not in "\n".join(one.terminal.screen), f"no {text}")

    async def presses(self, keys: str) -> None:
        """Press keys at once (a paste, an escape sequence), then pause."""
        os.write(self._leader, keys.encode())
        await trio.sleep(KEY_SECONDS)

    async def types(self, text: str) -> None:
        """Type letters, with a pause behind."""
        os.write(self._leader, text.encode())
        await self.sees(text.splitlines()[-1])
        await trio.sleep(KEY_SECONDS)

    async def sends(self, text: str) -> None:
        """Type a line, and Enter."""
        await self.types(text)
        await self.presses("\r")

    async def reads(self, seconds: float) -> None:
        """Read a question for a while before answering: what is typed at once is no answer."""
        await trio.sleep(seconds)

    def resizes(self, columns: int) -> None:
        """Make the window narrower or wider."""
        size = struct.pack("HHHH", self.terminal.rows, columns, 0, 0)
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, size)
        self.terminal.resize(columns)

    def signals(self, number: int = signal.SIGINT) -> None:
        """Send a signal to the command alone."""
        self._process.send_signal(number)

    async def ended(self) -> int:
        """The exit code."""
        with trio.fail_after(PATIENCE):
            code = await self._process.wait()
            while not self.gone:
                await self._news.wait()
        return code


@asynccontextmanager
async def talking(
    cli: CommandLine, *arguments: str, columns: int = 100, rows: int = 30
) -> AsyncGenerator[Person]:
    """Start `dsh chat` on a terminal of its own, and wait for its editor.

    What still runs at the end is killed.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    before = termios.tcgetattr(leader)
    process = await trio.lowlevel.open_process(
        ["setsid", "-c", *COMMAND, "chat", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=cli.workspace,
        env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **cli.environment()},
    )
    os.close(follower)
    person = Person(process, leader, Emulator(columns, rows), before)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(person.listens)
            await person.until(lambda one: PASTE_ON in one.terminal.asked or one.gone, "the editor")
            yield person
            nursery.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        os.close(leader)
