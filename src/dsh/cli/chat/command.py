"""`dsh chat`: a conversation on a terminal, or in whole lines.

What comes in: typed options. What goes out: what `dsh chat --help` promises, and an exit code: 0
when the person left, 2 when nothing could begin, 130 after Ctrl-C, 128 and the signal's number
after TERM or HUP. The terminal is as it was before on every way out.
"""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING, Final, final

import trio
from attrs import evolve

from dsh.boot import mounted, process_environ, watching
from dsh.cli.chat.actions import COMMANDS
from dsh.cli.chat.front_choice import chosen_front
from dsh.cli.chat.resuming import pick_session
from dsh.cli.chat.talk import Talk
from dsh.cli.failures import explained
from dsh.cli.grammar.arguments import RunOptions
from dsh.cli.grammar.chat import PICK, ChatOptions
from dsh.cli.run.approving import Approver, terminal
from dsh.cli.run.preparing import planned_for, show_contained, with_demo
from dsh.cli.screen.inert import cells
from dsh.cli.screen.outputs import Screen, open_screen
from dsh.cli.screen.questions import homely
from dsh.cli.screen.terminal_state import TerminalState
from dsh.seams.persistence import PERSISTENCE

if TYPE_CHECKING:
    from dsh.boot import Harness, Plan
    from dsh.cli.chat.front import Front

__all__ = ["chat"]

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FLUSH_SECONDS: Final = 2.0
EXIT_STOPPED: Final = 130


def chat(options: ChatOptions) -> int:
    """Talk until the person leaves. Returns the exit code; what goes wrong is said."""
    environ = process_environ()
    screen = open_screen(options.color, environ)
    state: TerminalState | None = None
    work: _Chat | None = None
    code = 1
    try:
        options = with_demo(options, screen)
        plan = planned_for(options)
        gc.freeze()
        gc.enable()
        front, redrawn = chosen_front(plan, screen, environ, plain=options.plain)
        state = TerminalState(0, escapes=redrawn, colored=screen.colored)
        work = _Chat(options, plan, screen, front, state)
        show_contained(work.say, debug=options.debug)
        code = trio.run(work.run)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BaseException as error:  # noqa: BLE001 - the last frame: a person gets a sentence
        before = work is None or work.talk is None
        text, code = explained(error, debug=options.debug, before_session=before)
        if state is not None:
            state.restore()
        screen.say(text)
    if state is not None:
        state.restore()
    if work is not None:
        work.last_words()
    screen.finish()
    return code


@final
class _Chat:
    """One run of the command. `talk` is there once there is a session."""

    def __init__(
        self,
        options: ChatOptions,
        plan: Plan,
        screen: Screen,
        front: Front,
        state: TerminalState,
    ) -> None:
        self.talk: Talk | None = None
        self._options: Final = options
        self._plan: Final = plan
        self._screen: Final = screen
        self._front: Final = front
        self._state: Final = state
        self._start: Final = trio.CancelScope()
        self._code: int | None = None
        self._up = False

    def say(self, text: str) -> None:
        """Whole lines of our own: above the window while it is up, on standard error otherwise."""
        if self._up:
            self._front.page(text.rstrip("\n"))
        else:
            self._screen.say(text)

    def last_words(self) -> None:
        """Say where the session is, if there was one."""
        if self.talk is not None and self.talk.session_id:
            session = self.talk.session_id
            dot = self._screen.separator
            self._screen.say(
                f"saved {session}{dot}dsh chat --resume {session}{dot}dsh sessions show {session}\n"
            )

    async def run(self) -> int:
        """Run it. Raises whatever refused it."""
        code = EXIT_STOPPED
        async with trio.open_nursery() as nursery:
            await nursery.start(self._hear_signals)
            with self._start:
                async with mounted(self._plan, held=self._held) as harness:
                    code = await self._in(harness)
                    self._code = code
            nursery.cancel_scope.cancel()
        return self._code if self._code is not None else code

    async def _in(self, harness: Harness) -> int:
        wish = _as_run(self._options)
        talk = Talk(harness, self._plan, wish, self._front, self._screen, COMMANDS)
        talk.listen()
        approver = Approver(
            self._screen,
            self.say,
            self._front,
            shown=talk.behind.shown,
            mine=lambda: talk.session_id,
            other=talk.submit,
        )
        await harness.kernel.mount(terminal(approver)).ready()
        if wish.resume != PICK:
            await talk.open(wish)  # what refuses it is said before anything is drawn
            self._greet(talk)
        harness.live.tell = talk.hear_news
        harness.live.restarts.resumed = talk.rebind
        async with watching(harness), trio.open_nursery() as nursery:
            await nursery.start(self._listening, talk)
            self._up = True
            try:
                if wish.resume == PICK:
                    wish = await self._picked(harness, talk)
                    await talk.open(wish)
                    self._greet(talk)
                self.talk = talk
                await self._talking(talk)
            finally:
                self._up = False
                nursery.cancel_scope.cancel()
        return talk.code

    async def _listening(
        self, talk: Talk, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await self._front.run(talk.hands(), task_status=task_status)
        talk.leaving.set()

    async def _picked(self, harness: Harness, talk: Talk) -> RunOptions:
        store = harness.service(PERSISTENCE)
        clock = harness.context.clock
        picked = await pick_session(store, self._front, self._plan.cwd, clock, talk.marked)
        return evolve(_as_run(self._options), resume=picked)

    async def _talking(self, talk: Talk) -> None:
        try:
            if self._options.prompt is not None:
                talk.send(self._options.prompt)
            await talk.attend()
        finally:
            deadline = trio.current_time() + FLUSH_SECONDS if talk.code else float("inf")
            with trio.CancelScope(shield=True, deadline=deadline) as scope:
                await talk.close()
            if scope.cancelled_caught:
                await self._leave_now(talk.code)

    def _greet(self, talk: Talk) -> None:
        gauge, width = talk.gauge(), self._front.width
        dot, hint = self._screen.separator, "/help"
        parts = ["dsh", gauge.model, homely(str(self._plan.cwd)), f"session {gauge.session}"]
        if cells(dot.join([*parts, hint])) > width:
            del parts[2]  # of all of it, the person knows where they are
        while len(parts) > 1 and cells(dot.join([*parts, hint])) > width:
            parts.pop()
        self._front.print(dot.join([*parts, hint]))

    # -- ways out --------------------------------------------------------------------------------

    async def _hear_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        heard = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        if not heard:
            task_status.started()
            return
        with trio.open_signal_receiver(*heard) as signals:
            task_status.started()
            async for number in signals:
                await self._heard(number)

    async def _heard(self, number: int) -> None:
        talk = self.talk
        if talk is None:
            if self._start.cancel_called:
                await self._leave_now(128 + number)
            self._code = 128 + number
            self._start.cancel()
        elif talk.leaving.is_set():
            await self._leave_now(talk.code or 128 + number)
        elif number == signal.SIGINT:
            self._front.interrupt()
        else:
            talk.leave(128 + number)

    async def _leave_now(self, code: int) -> None:
        """Give the log its time, then end the process: tasks that hang cannot hold it."""
        place = self.talk.place if self.talk is not None else None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + FLUSH_SECONDS):
            if place is not None:
                try:
                    await place.session.writer.barrier()
                except Exception as error:  # noqa: BLE001 - it is said, and nothing else is left
                    self._screen.say(f"dsh: the log may miss its end: {error}\n")
        self._end(code)

    def _held(self, _lines: tuple[str, ...]) -> None:
        """Everything that can be undone is; what cannot has been named and must not hold us up."""
        self._end(self._code if self._code is not None else 1)

    def _end(self, code: int) -> None:
        self._state.restore()
        self.last_words()
        self._screen.finish()
        os._exit(code)


def _as_run(options: ChatOptions) -> RunOptions:
    """The same wish, for the code that opens sessions."""
    return RunOptions(
        debug=options.debug,
        color=options.color,
        profile=options.profile,
        config=options.config,
        sets=options.sets,
        cwd=options.cwd,
        prompt=None,
        provider=options.provider,
        model=options.model,
        session=options.session,
        resume=options.resume,
        json=False,
        allow=options.allow,
        yolo=options.yolo,
        verbose=False,
    )
