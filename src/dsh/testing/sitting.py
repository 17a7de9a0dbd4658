"""Somebody who sits at a shell in a real terminal (tmux), with `dsh` as a command.

What comes in: a command line's home and workspace, keys, texts to wait for. What goes out: what the
terminal shows, with its scrollback. Waiting is always for what is shown: the terminal tells of each
piece of output, and is looked at then; the only pauses are those between two keys. The server of
the terminal is started here on a socket of its own, and ended here.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import asynccontextmanager
from subprocess import DEVNULL
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final, final

import trio

from dsh.testing.command_line import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from dsh.testing.command_line import CommandLine

__all__ = ["NO_TMUX", "PROMPT", "Sitting", "sitting"]

#: Why a test that needs a real terminal is skipped; None where it need not be.
NO_TMUX: Final = None if shutil.which("tmux") else "tmux is not installed (apt-get install tmux)"
PROMPT: Final = "$ "
#: Between two keys, in seconds: more than a paste, less than a thought.
KEY_SECONDS: Final = 0.03
#: Output counts as ended when none came for so long, in seconds.
STILL_SECONDS: Final = 0.4


@final
class Sitting:
    """A person, a shell, a terminal. `screen` is what was seen when it was last looked at."""

    def __init__(self, tmux: tuple[str, ...]) -> None:
        self.screen = ""
        self._tmux: Final = tmux
        self._news = trio.Event()

    async def listens(self, fifo: Path, *, task_status: trio.TaskStatus[None]) -> None:
        """Hear of each piece of output, until cancelled."""
        handle = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        try:
            task_status.started()
            while True:
                await trio.lowlevel.wait_readable(handle)
                os.read(handle, 65536)
                self._news.set()
                self._news = trio.Event()
        finally:
            os.close(handle)

    async def looks(self, *, back: bool = False) -> str:
        """What the terminal shows now; `back`: and what has scrolled away."""
        since = ("-S", "-") if back else ()
        shown = await self._asks("capture-pane", "-p", *since)
        lines = [line.rstrip() for line in shown.split("\n")]
        return "\n".join(lines).rstrip("\n")

    async def until(self, seen: Callable[[str], bool], what: str, *, back: bool = False) -> str:
        """Wait until `seen` says so of the screen; that screen is returned."""
        shown = ""
        with trio.move_on_after(PATIENCE):
            while True:
                news = self._news
                shown = await self.looks(back=back)
                if not back:
                    self.screen = shown
                if seen(shown):
                    return shown
                await news.wait()
        raise AssertionError(f"never saw {what!r}:\n{shown}")

    async def sees(self, *texts: str) -> str:
        """Wait until all of this can be read on the screen."""
        return await self.until(lambda shown: all(text in shown for text in texts), str(texts))

    async def sees_no(self, text: str) -> str:
        """Wait until this is not on the screen any more."""
        return await self.until(lambda shown: text not in shown, f"no {text}")

    async def still(self) -> str:
        """Wait until nothing is written for a while. For making recordings only."""
        while True:
            with trio.move_on_after(STILL_SECONDS):
                await self._news.wait()
                continue
            return await self.looks()

    async def types(self, text: str) -> None:
        """Type letters, and see them stand in the last line that is typed into."""
        await self._asks("send-keys", "-l", "--", text)
        await self.sees(text)
        await trio.sleep(KEY_SECONDS)

    async def presses(self, *keys: str) -> None:
        """Press keys by the terminal's names for them: `Enter`, `C-c`, `Up`."""
        for key in keys:
            await self._asks("send-keys", key)
            await trio.sleep(KEY_SECONDS)

    async def sends(self, text: str) -> None:
        """Type a line, and Enter."""
        await self.types(text)
        await self.presses("Enter")

    async def reads(self, seconds: float) -> None:
        """Read a question for a while before answering: what is typed at once is no answer."""
        await trio.sleep(seconds)

    async def is_at_the_shell(self, *texts: str) -> str:
        """Wait until the shell asks for the next command, with all of this above it."""
        return await self.until(
            lambda shown: (
                shown.endswith(f"\n{PROMPT.rstrip()}") and all(text in shown for text in texts)
            ),
            f"the shell's prompt below {texts}",
        )

    async def _asks(self, *words: str) -> str:
        done = await trio.run_process(
            [*self._tmux, *words], capture_stdout=True, capture_stderr=True, stdin=DEVNULL
        )
        return done.stdout.decode("utf-8", "replace")


@asynccontextmanager
async def sitting(
    cli: CommandLine, *, columns: int = 100, rows: int = 30, **variables: str
) -> AsyncGenerator[Sitting]:
    """Open a terminal with a shell in the workspace. It is closed, with all in it, at the end."""
    place = trio.Path(mkdtemp(prefix="dsh-sitting-"))
    tmux = ("tmux", "-u", "-S", str(place / "socket"), "-f", "/dev/null")
    command = place / "dsh"
    await command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dsh.cli "$@"\n')
    await command.chmod(0o700)
    await (place / "rc").write_text(f"unset HISTFILE\nPS1='{PROMPT}'\n")
    fifo = place / "output"
    os.mkfifo(fifo)
    inherited = {**cli.having(**variables).environment(), "LANG": "C.UTF-8"}
    inherited["PATH"] = f"{place}{os.pathsep}{inherited['PATH']}"
    shell = f"exec bash --noprofile --rcfile {place / 'rc'}"
    one = Sitting(tmux)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(one.listens, fifo)
            await trio.run_process(
                [
                    *tmux,
                    *("start-server", ";", "set-option", "-g", "history-limit", "5000", ";"),
                    *("set-option", "-g", "status", "off", ";"),
                    *("new-session", "-d", "-x", str(columns), "-y", str(rows)),
                    *("-c", str(cli.workspace), shell, ";"),
                    *("pipe-pane", "-O", f"exec cat > {fifo}"),
                ],
                env=inherited,
                stdin=DEVNULL,
            )
            await one.until(lambda shown: shown == PROMPT.rstrip(), "the shell's prompt")
            yield one
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await trio.run_process([*tmux, "kill-server"], check=False, stderr=DEVNULL)
            shutil.rmtree(place, ignore_errors=True)
