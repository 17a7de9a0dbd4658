"""Approval at the terminal: a block that shows the whole call, and one line that answers it.

What comes in: questions of `approval/request`, and what a person types. What goes out: an outcome;
with `s` an exact rule for this session, with `n REASON` the reason as the person's next message.
A key that was not meant for the question never answers it: what was typed before it appeared is
dropped, only whole lines count, and only exact ones. It is used on a terminal alone; where nobody
sits, nothing here is mounted and the seam says that nobody is there.
"""

from __future__ import annotations

import json
import os
import termios
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast, final

import trio

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.cli.screen.inert import one_line
from dsh.cli.screen.questions import block_of, wrapped
from dsh.errors import AgentError
from dsh.hooks import frozen
from dsh.kernel import Context, Late, Plugin, late, plugin
from dsh.seams.approval import SESSION_RULES, SessionRules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from dsh.cli.screen.outputs import Screen
    from dsh.hooks import Next

__all__ = [
    "AnswerLines",
    "Approver",
    "PromptPlace",
    "Reply",
    "TerminalLines",
    "reply_of",
    "terminal",
]

#: How long no key may have been pressed before an answer can begin, in seconds.
QUIET: Final = 0.7
INDENT: Final = 4
LINE_MAX: Final = 65_536
#: Terminals wrap what is pasted into these, so that a pasted `y` is no `y`.
PASTE_ON: Final = "\x1b[?2004h"
PASTE_OFF: Final = "\x1b[?2004l"
LOCAL: Final = 3
INPUT: Final = 0

Word: TypeAlias = Literal["once", "session", "no", "view"]


@frozen(slots=True)
class Reply:
    """One answer. `reason` is there only for `no`, and may be empty."""

    word: Word
    reason: str = ""


def reply_of(line: str, *, offered: bool) -> Reply | None:
    """The answer that a line is; None for every other line. `offered`: whether `s` is one."""
    match line:
        case "y":
            return Reply("once")
        case "s" if offered:
            return Reply("session")
        case "v":
            return Reply("view")
        case "n":
            return Reply("no")
        case _ if line.startswith("n "):
            return Reply("no", line[2:].strip())
        case _:
            return None


class AnswerLines(Protocol):
    """Where answers are typed. Lines come whole, without their end."""

    async def line(self, prompt: str) -> str | None:
        """Show `prompt`, return the next line that was begun afterwards. None: nobody is there.

        Cancellable; what was typed so far is then dropped.
        """
        ...


class PromptPlace(Protocol):
    """Who shows the prompt and knows that its line is open."""

    def prompt(self, text: str) -> None:
        """Show a prompt and leave its line open."""
        ...

    def end_prompt(self, *, typed: bool) -> None:
        """The prompt is done with. `typed`: the person ended its line."""
        ...


@final
class TerminalLines:
    """Lines from a terminal that nobody else reads meanwhile.

    `plain`: leave paste mode alone, for terminals that know no escape sequences.
    """

    def __init__(
        self, screen: Screen, place: PromptPlace, *, fd: int = 0, plain: bool = False
    ) -> None:
        self._screen: Final = screen
        self._place: Final = place
        self._fd: Final = fd
        self._paste: Final = ("", "") if plain else (PASTE_ON, PASTE_OFF)

    async def line(self, prompt: str) -> str | None:
        """One line. What was typed before a pause of `QUIET` seconds is dropped, unseen."""
        await self._screen.flushed()
        with _restored(self._fd) as saved:
            _set(self._fd, saved, off=termios.ICANON | termios.ECHO)
            if not await self._quiet():
                return None
            _set(self._fd, saved, on=termios.ICANON | termios.ECHO)
            on, off = self._paste
            self._place.prompt(on + prompt)
            typed: bytes | None = None
            try:
                await trio.lowlevel.wait_readable(self._fd)
                typed = _read(self._fd)
            finally:
                self._screen.say(off)
                self._place.end_prompt(typed=typed is not None and typed.endswith(b"\n"))
        if not typed:
            return None
        return typed.decode("utf-8", "replace").rstrip("\r\n")

    async def _quiet(self) -> bool:
        """Drop keys until none came for a while. False: the terminal is gone."""
        while True:
            with trio.move_on_after(QUIET):
                await trio.lowlevel.wait_readable(self._fd)
                if not _read(self._fd):
                    return False
                continue
            return True


def _read(fd: int) -> bytes:
    """What is there; nothing if the terminal is gone. Called only when it is readable."""
    try:
        return os.read(fd, LINE_MAX)
    except OSError:
        return b""


_Attributes: TypeAlias = "list[int | list[bytes | int]]"


@contextmanager
def _restored(fd: int) -> Generator[_Attributes, None, None]:
    """The terminal's settings; put back at the end, with what was typed meanwhile dropped."""
    saved = cast("_Attributes", termios.tcgetattr(fd))
    try:
        yield saved
    finally:
        with suppress(termios.error):  # it is gone: nothing is left to put back
            termios.tcsetattr(fd, termios.TCSAFLUSH, saved)


def _set(fd: int, saved: _Attributes, *, on: int = 0, off: int = 0) -> None:
    changed = list(saved)
    changed[LOCAL] = (cast("int", saved[LOCAL]) | on | termios.ISIG) & ~off
    changed[INPUT] = cast("int", saved[INPUT]) | termios.ICRNL
    termios.tcsetattr(fd, termios.TCSANOW, changed)


# --- asking -------------------------------------------------------------------------------------


@final
class Approver:
    """Shows a question, reads lines until one answers it. `say` writes whole lines of our own.

    `shown` returns when everything that came before the question can be read. `mine` is the session
    that the person talks to; questions of others say whose they are. `other` takes a line
    that is no answer; without it, the person is told what an answer is.
    """

    def __init__(
        self,
        screen: Screen,
        say: Callable[[str], None],
        lines: AnswerLines,
        *,
        shown: Callable[[], Awaitable[None]],
        mine: Callable[[], str],
        other: Callable[[str], None] | None = None,
    ) -> None:
        self._screen: Final = screen
        self._say: Final = say
        self._lines: Final = lines
        self._shown: Final = shown
        self._mine: Final = mine
        self._other: Final = other

    async def ask(
        self, question: ev.approval.Request, rules: SessionRules | None
    ) -> ev.records.ApprovalOutcome | None:
        """The outcome; None: nobody is there. Cancelled: the question is gone, nothing is kept."""
        agent, tool = question.agent, question.tool_name
        offer = None
        if rules is not None:
            offer = rules.offer(agent, tool, question.arguments)
        await self._shown()
        whose = None if agent.id == self._mine() else agent.id
        self._say(block_of(question, self._screen, offer, whose=whose))
        outcome = await self._outcome(question, rules, offered=offer is not None)
        if whose is not None and outcome is not None:  # its own transcript is not on this screen
            how = "allowed once" if outcome == "allowed-once" else "denied"
            self._say(f"  {one_line(tool)} of agent {one_line(whose)} {how} by you\n")
        return outcome

    async def _outcome(
        self, question: ev.approval.Request, rules: SessionRules | None, *, offered: bool
    ) -> ev.records.ApprovalOutcome | None:
        """Read lines until one answers."""
        agent, tool = question.agent, question.tool_name
        while (line := await self._lines.line("approve> ")) is not None:
            reply = reply_of(line, offered=offered)
            if reply is None:
                self._not_an_answer(line, offered=offered)
                continue
            match reply.word:
                case "once":
                    return "allowed-once"
                case "session":
                    if rules is not None:
                        rules.remember(agent, tool, question.arguments)
                    return "allowed-once"
                case "no":
                    if reply.reason:
                        with suppress(AgentError):  # it is closing: nobody is left to read it
                            agent.steer(user_message(reply.reason))
                    return "rejected"
                case "view":
                    exact = json.dumps(question.arguments, indent=2)
                    self._say("\n".join(wrapped(exact, self._screen.width, INDENT)) + "\n")
        return None

    def _not_an_answer(self, line: str, *, offered: bool) -> None:
        if not line.strip():
            return
        if self._other is not None:
            self._other(line)
            return
        words = "y, s, n REASON or v" if offered else "y, n REASON or v"
        self._say(f"(no answer; type {words}, then Enter)\n")


@frozen
class _Deps:
    rules: Late[SessionRules] = late(SESSION_RULES)


def terminal(approver: Approver) -> Plugin:
    """The plugin `terminal`, which answers through this approver. Mount it where a person sits."""

    @plugin(name="terminal", deps=_Deps)
    async def answering(ctx: Context, _config: None, deps: _Deps) -> None:
        @ctx.on(ev.approval.REQUEST)
        async def answer(
            question: ev.approval.Request, call_next: Next[ev.records.ApprovalOutcome]
        ) -> ev.records.ApprovalOutcome:
            outcome = await approver.ask(question, deps.rules.current)
            return outcome if outcome is not None else await call_next()

    return answering
