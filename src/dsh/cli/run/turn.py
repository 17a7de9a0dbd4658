"""One turn, run for the command line: house, session, prompt, answer.

What comes in: a plan and the options of `dsh run`. What goes out: the turn's outcome and exit code,
after everything that is said to be done is synced. It owns the house it opens; nothing of it is
left when `run` returns.
"""

from __future__ import annotations

import traceback
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.boot import mounted
from dsh.catalog import records
from dsh.cli.run.approving import Approver, TerminalLines, terminal
from dsh.cli.run.jsonl import EventLines
from dsh.cli.run.opening import Opened, opened
from dsh.cli.run.stopping import Stopping
from dsh.cli.screen.inert import inert
from dsh.cli.screen.outlet import OutletClosed
from dsh.cli.screen.progress import Progress
from dsh.errors import HarnessError
from dsh.hooks import frozen
from dsh.seams.persistence import PERSISTENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.boot import Harness, Plan
    from dsh.cli.grammar.arguments import RunOptions
    from dsh.cli.screen.outputs import Screen
    from dsh.hooks import live

__all__ = ["Ended", "TurnRun"]

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_BLOCKED: Final = 3
EXIT_CANCELLED: Final = 130
EXIT_BROKEN_PIPE: Final = 141


@frozen(kw_only=True, slots=True)
class Ended:
    """How a run ended. `outcome` is None when it was stopped before there was a turn.

    `path` is the place of the session's log, if its store has places. `culprit` names the plugin
    whose error ended the turn, and the line.
    """

    code: int
    outcome: live.TurnOutcome | None = None
    path: str | None = None
    culprit: str | None = None


@final
class TurnRun:
    """The run of one prompt. `started` is True once there is a session."""

    def __init__(self, options: RunOptions, plan: Plan, prompt: str, screen: Screen) -> None:
        self.started = False
        self._options: Final = options
        self._plan: Final = plan
        self._prompt: Final = prompt
        self._screen: Final = screen
        stream = screen.out if screen.out.is_terminal else screen.err
        shown = stream if stream.is_terminal and not options.json else None
        self.progress: Final = Progress(screen, stream=shown, verbose=options.verbose)
        self._stopping: Final = Stopping(self.progress.say_now, self._last_words)
        self._lines: EventLines | None = None
        self._session_id: str | None = None
        self._broken: OutletClosed | None = None
        self._culprit: str | None = None
        self._ended: Ended | None = None
        #: Says how it ended and ends the process, when plugins keep it from ending by itself.
        self.leave: Callable[[Ended], None] | None = None

    async def run(self) -> Ended:
        """Run it. Raises whatever refused it; Ctrl-C and its kin end it as they should."""
        ended: Ended | None = None
        async with trio.open_nursery() as nursery:
            await nursery.start(self._stopping.watch)
            with self._stopping.start:
                async with mounted(self._plan, strict=True, held=self._held) as harness:
                    ended = self._ended = await self._in(harness)
            nursery.cancel_scope.cancel()
        if ended is None:
            return Ended(code=self._stopped)
        return ended

    def _held(self, _lines: tuple[str, ...]) -> None:
        """Everything that can be undone is; what cannot has been named and must not hold us up."""
        if self.leave is not None:
            code = self._stopped if self._stopping.code is not None else EXIT_FAILED
            self.leave(self._ended if self._ended is not None else Ended(code=code))

    def _last_words(self) -> None:
        self.progress.behind.release()
        self._screen.finish()

    @property
    def _stopped(self) -> int:
        code = self._stopping.code
        return EXIT_CANCELLED if code is None else code

    async def _in(self, harness: Harness) -> Ended:
        harness.on(ev.session.EVENT)(self._saw)
        harness.on(ev.tools.PROGRESS)(self._shown)
        harness.on(ev.agent.ERROR)(partial(self._failed, harness))
        if not self._options.json and self._screen.asks:
            lines = TerminalLines(self._screen, self.progress)
            approver = Approver(
                self._screen,
                self.progress.say,
                lines,
                shown=self.progress.behind.shown,
                mine=lambda: self._session_id or "",
            )
            await harness.kernel.mount(terminal(approver)).ready()
        place = await opened(harness, self._options, self._plan, self.progress.say, self._named)
        self.started = True
        self.progress.behind.follow(place.session.writer)
        try:
            outcome = await self._ask(place)
        finally:
            with trio.CancelScope(shield=True):
                await place.handle.aclose()
            self.progress.behind.release()
            self._print_rest()
        code = self._code(outcome.reason)
        if self._broken is not None:
            code = EXIT_BROKEN_PIPE if self._broken.broken else EXIT_FAILED
        path = await self._path(harness)
        return Ended(code=code, outcome=outcome, path=path, culprit=self._culprit)

    def _failed(self, harness: Harness, payload: ev.agent.Error) -> None:
        if payload.agent.id != self._session_id:
            return
        if not isinstance(payload.error, HarnessError):
            self._culprit = harness.blamed(payload.error)
        if self._options.debug:
            self.progress.say(inert("".join(traceback.format_exception(payload.error))))

    def _named(self, session_id: str) -> None:
        self._session_id = session_id

    async def _ask(self, place: Opened) -> live.TurnOutcome:
        agent = place.handle.agent
        async with trio.open_nursery() as nursery:
            if self._options.json:
                self._lines = EventLines(self._screen.out, place.session, place.stored)
                self._lines.nudge()
                nursery.start_soon(self._print_lines, self._lines, agent)
            nursery.start_soon(self._watch_out, agent)
            self._stopping.attend(agent, place.session)
            outcome = await agent.ask(user_message(self._prompt))
            nursery.cancel_scope.cancel()
        return outcome

    def _shown(self, payload: ev.tools.Progress) -> None:
        agent = payload.exec.agent
        if agent is not None and agent.id == self._session_id:
            self.progress.tool_shows(payload)

    def _saw(self, payload: ev.session.Event) -> None:
        if payload.session.id != self._session_id:
            return  # another agent's: it has a log of its own
        self.progress.see(payload.event)
        if self._lines is not None:
            self._lines.nudge()

    async def _print_lines(self, lines: EventLines, agent: live.Agent) -> None:
        try:
            await lines.run()
        except OutletClosed as error:
            self._reader_gone(error, agent)

    async def _watch_out(self, agent: live.Agent) -> None:
        self._reader_gone(await self.progress.out_closed(), agent)

    def _reader_gone(self, error: OutletClosed, agent: live.Agent) -> None:
        """Nobody reads the answer: stop the turn. What it did so far is in the log."""
        self._broken = error
        agent.cancel(records.UserCause())

    def _print_rest(self) -> None:
        """The last events: the log is closed, so the store has all of them."""
        if self._lines is not None and self._broken is None:
            try:
                self._lines.print_stored()
            except OutletClosed as error:
                self._broken = error

    def _code(self, reason: records.TurnEndReason) -> int:
        match reason:
            case records.CompletedTurnEnd():
                return EXIT_DONE
            case records.BlockedTurnEnd() | records.MaxTokensTurnEnd():
                return EXIT_BLOCKED
            case records.AbortedTurnEnd():
                return self._stopped
            case records.ErrorTurnEnd() | records.InterruptedTurnEnd():
                return EXIT_FAILED

    async def _path(self, harness: Harness) -> str | None:
        """Where the log is. Only the demo says it, so only the demo asks the store."""
        if not self._plan.profile.scripted or self._session_id is None:
            return None
        log = await harness.service(PERSISTENCE).read(self._session_id)
        return log.path
