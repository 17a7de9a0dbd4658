"""The conversation: one live session at a time, what the person does to it, what it shows.

What comes in: a running house, a front, options. What goes out: an exit code, after the session's
log is closed. It owns the agent it opened; listeners and the front are its eyes. Everything here
runs in the trio thread.
"""

from __future__ import annotations

import traceback
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.cli.chat.front import Hands, Marked, View
from dsh.cli.chat.live_rows import Gauge, activity_rows, queued_rows, status_row
from dsh.cli.chat.transcript import Transcript
from dsh.cli.chat.words import parsed, unknown
from dsh.cli.failures import explained
from dsh.cli.run.opening import Opened, opened
from dsh.cli.screen.behind_log import BehindLog
from dsh.cli.screen.card_lines import Looks
from dsh.cli.screen.inert import inert, one_line
from dsh.errors import HarnessError
from dsh.seams.previews import PREVIEWS, PreviewLines
from dsh.seams.prices import PRICES
from dsh.seams.token_meter import TOKEN_METER
from dsh.session import SESSIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh.agent import AgentHandle
    from dsh.boot import Harness, News, Plan
    from dsh.cli.chat.front import Front
    from dsh.cli.grammar.arguments import RunOptions
    from dsh.cli.screen.outputs import Screen

__all__ = ["Talk"]

#: How often what is going on is looked at, in seconds.
TICK: Final = 0.1
AGAIN_SECONDS: Final = 2.0
EXIT_STOPPED: Final = 130


@final
class Talk:
    """One conversation. `commands` are what follows a slash; `leaving` is set when it ends."""

    def __init__(
        self,
        harness: Harness,
        plan: Plan,
        options: RunOptions,
        front: Front,
        screen: Screen,
        commands: dict[str, Callable[[Talk, str], Awaitable[None]]],
    ) -> None:
        self.harness: Final = harness
        self.plan: Final = plan
        self.options = options
        self.front: Final = front
        self.code = 0
        self.debug = options.debug
        self.leaving: Final = trio.Event()
        self.place: Opened | None = None
        self._looks: Final = Looks(
            screen.styled, screen.separator, lambda: front.width, self._previews
        )
        self.styled: Final = screen.styled
        self.transcript = Transcript(front.print, self._looks)
        self._commands: Final = commands
        self._session_id: str | None = None
        self._steered: dict[str, str] = {}
        self._later: dict[str, str] = {}
        self._stopping = False
        #: Words with a slash that are being done.
        self._words = 0
        self._again = float("-inf")
        self._nursery: trio.Nursery | None = None
        self._idle = trio.Event()
        self._serial: Final = trio.Lock()
        #: What is shown of the session waits for its log.
        self.behind: Final = BehindLog()
        #: Which list of sessions was looked at last.
        self.marked: Final = Marked()

    # -- life ------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Register what the conversation hears. Call once, before a session is opened."""
        self.harness.on(ev.session.EVENT)(self._saw)
        self.harness.on(ev.agent.ERROR)(self._failed)
        self.harness.on(ev.agent.STATUS)(self._status_changed)
        self.harness.on(ev.tools.PROGRESS)(self._shown)

    async def open(self, options: RunOptions) -> None:
        """Open the session that the options ask for, in place of the open one if there is one.

        Raises what refuses it; the open session is then as it was.
        """
        before, id_before, transcript = self.place, self._session_id, self.transcript
        self.transcript = Transcript(self.front.print, self._looks)
        self.transcript.thinking_shown = transcript.thinking_shown
        try:
            place = await opened(self.harness, options, self.plan, self._say, self._named)
        except BaseException:
            self._session_id, self.transcript = id_before, transcript
            raise
        self.place = place
        self.behind.follow(place.session.writer)
        self._steered, self._later = {}, {}
        self.options = evolve(self.options, allow=())  # whatever is wrong with them was said
        if place.stored:
            self._tell_last_turn(place)
        if before is not None:
            await before.handle.aclose()

    async def close(self) -> None:
        """Close the session's log. Cancelled: it goes on being closed, and nobody waits for it."""
        if self.place is not None:
            await self.place.handle.aclose()
            self.behind.release()
            self.place = None

    def hands(self) -> Hands:
        """What the front may call."""
        return Hands(
            submit=self.submit,
            send=self.send,
            take_back=self.take_back,
            interrupt=self.interrupt,
            leave=self.leave,
            ended=self.ended,
        )

    async def attend(self) -> None:
        """Keep the live lines and the inbox going until cancelled or left."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._tick)
            nursery.start_soon(self._wake_parked)
            await self.leaving.wait()
            nursery.cancel_scope.cancel()

    @property
    def session_id(self) -> str:
        """The id of the open session, or ""."""
        return self._session_id or ""

    def _say(self, text: str) -> None:
        if text != f"session {self._session_id}\n":  # the greeting names it
            self.front.print(text.rstrip("\n"))

    def _named(self, session_id: str) -> None:
        self._session_id = session_id

    def _tell_last_turn(self, place: Opened) -> None:
        """Tell the newest turn of a resumed log, and how many came before."""
        events = place.session.events  # with what closed a turn that a crash had cut
        starts = [at for at, one in enumerate(events) if isinstance(one.data, ev.turn.Start)]
        if len(starts) > 1:
            earlier = len(starts) - 1
            turns = "turn" if earlier == 1 else "turns"
            self.front.print(f"{earlier} earlier {turns}: dsh sessions show {place.session.id}")
        for event in events[starts[-1] if starts else 0 :]:
            self.transcript.see(event.data, event.time)

    # -- what it hears ---------------------------------------------------------------------------

    def _saw(self, payload: ev.session.Event) -> None:
        if payload.session.id == self._session_id:
            event = payload.event
            self.behind.act(event.seq, partial(self.transcript.see, event.data, event.time))
            if isinstance(payload.event.data, ev.user.Message):
                self._steered.pop(payload.event.data.message.id, None)
                self._later.pop(payload.event.data.message.id, None)

    def _shown(self, payload: ev.tools.Progress) -> None:
        agent = payload.exec.agent
        if agent is not None and agent.id == self._session_id:
            self.transcript.shows(payload.exec.call_id, payload.text)

    def _failed(self, payload: ev.agent.Error) -> None:
        if payload.agent.id != self._session_id:
            return
        if not isinstance(payload.error, HarnessError):
            culprit = self.harness.blamed(payload.error)
            if culprit is not None:
                line = f"!! raised by {inert(culprit)}"
                self.behind.after(partial(self.front.print, line))
        if self.debug:
            self.front.page(inert("".join(traceback.format_exception(payload.error))))

    def _status_changed(self, payload: ev.agent.Status) -> None:
        if payload.agent.id == self._session_id and payload.status == "idle":
            self._stopping = False
            self._idle.set()
        self._show()

    async def _wake_parked(self) -> None:
        """A turn that failed leaves later prompts parked; here somebody waits for them."""
        while True:
            await self._idle.wait()
            self._idle = trio.Event()
            agent = self.place.handle.agent if self.place is not None else None
            if agent is not None and (agent.pending("next-turn") or agent.pending("next-step")):
                agent.wake()

    def rebind(self, handle: AgentHandle) -> None:
        """The loop was restarted under us: this is the same agent, alive again."""
        session = self.harness.service(SESSIONS).get(handle.agent.id)
        if handle.agent.id == self._session_id and session is not None:
            self.place = Opened(handle=handle, session=session, stored=session.next_seq)
            self.behind.follow(session.writer)

    def hear_news(self, news: News) -> None:
        """A plugin or the composition was edited: say what came of it."""
        refused = news.kind in ("kept", "restart")
        for line in inert(news.text).split("\n"):
            self.front.print(self.styled(f"-- {line} --", "yellow" if refused else "plain"))

    # -- what the person does --------------------------------------------------------------------

    def submit(self, text: str) -> None:
        """A line or a message was sent."""
        words = parsed(text)
        if words is not None:
            self._command(*words)
        else:
            self.send(text)

    def send(self, text: str) -> None:
        """A message was sent: a prompt, or while a turn runs input for its next step."""
        if self.place is None:
            self.front.notice("no session is open yet")
            return
        agent, message = self.place.handle.agent, user_message(text)
        if agent.status == "running":
            self._steered[message.id] = text
            agent.steer(message)
        else:
            agent.followup(message)
        self._show()

    def later(self, text: str) -> None:
        """A prompt for a turn of its own, after this one."""
        if self.place is not None:
            message = user_message(text)
            self._later[message.id] = text
            self.place.handle.agent.followup(message)

    def take_back(self) -> None:
        """Withdraw the newest queued message into the editor, unless it was claimed meanwhile."""
        queued = self._later if not self._steered else self._steered
        if self.place is None or not queued:
            return
        message_id, text = queued.popitem()
        if self.place.handle.agent.remove(message_id):
            self.front.draft(text)
        else:
            # What was claimed and is not in the log yet goes into the step that is being prepared.
            self.front.notice(f"already sent in step {self.transcript.doing.step + 1}")
        self._show()

    def interrupt(self, draft: str) -> None:
        """Ctrl-C: stop the turn; stopping: leave; idle: clear the draft, or say how to leave."""
        agent = self.place.handle.agent if self.place is not None else None
        if agent is not None and agent.status == "running" and not self._stopping:
            self._stopping = True
            for message_id, text in reversed([*self._steered.items(), *self._later.items()]):
                if agent.remove(message_id):
                    self.front.draft(text)
            self._steered, self._later = {}, {}
            agent.cancel(records.UserCause(), keep_inbox=True)
            self._show()
        elif draft and not self._stopping:
            self.front.clear()
        elif self._stopping or trio.current_time() < self._again + AGAIN_SECONDS:
            self.leave(EXIT_STOPPED)
        else:
            self._again = trio.current_time()
            self.front.notice("Ctrl-C again to leave")

    def leave(self, code: int = 0) -> None:
        """End the conversation."""
        self.code = code
        self.leaving.set()

    def ended(self) -> None:
        """No more input will come: leave when what was asked for is done."""
        if self._nursery is not None:
            self._nursery.start_soon(self._leave_when_done)

    async def _leave_when_done(self) -> None:
        async with self._serial:  # a command may still be at it
            if self.place is not None:
                await self.place.handle.agent.when_idle()
        self.leave()

    def _command(self, name: str, argument: str) -> None:
        wrong = unknown(name)
        if wrong is not None:
            self.front.notice(wrong)
        elif self._nursery is not None:
            self._words += 1
            self._nursery.start_soon(self._do, name, argument)

    async def _do(self, name: str, argument: str) -> None:
        try:
            async with self._serial:
                await self._commands[name](self, argument)
        except Exception as error:  # noqa: BLE001 - a slip of a command must not end the talk
            text, _ = explained(error, debug=self.debug, before_session=False)
            self.front.print(text.rstrip("\n").removeprefix("dsh: "))
        finally:
            self._words -= 1

    # -- what it shows ---------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._show()
            await trio.sleep(TICK)

    def _show(self) -> None:
        doing, width = self.transcript.doing, self.front.width
        now = self.harness.context.clock.now_ms()
        rows = activity_rows(doing, now=now, width=width, stopping=self._stopping)
        rows += queued_rows(tuple(self._steered.values()), len(self._later), width)
        status = status_row(
            doing,
            self.gauge(),
            now=now,
            width=width,
            separator=self._looks.separator,
            stopping=self._stopping,
        )
        running = self.place is not None and self.place.handle.agent.status == "running"
        # What a turn said is shown when the log has it, which may be after the agent is idle.
        busy = running or doing.open or self._words > 0
        queued = bool(self._steered or self._later)
        self.front.show(View(rows=tuple(rows), status=status, busy=busy, queued=queued))

    def _previews(self) -> PreviewLines:
        previews = self.harness.context.get(PREVIEWS)
        return previews.lines() if previews is not None else PreviewLines()

    def gauge(self) -> Gauge:
        """The numbers of the status line and of /context: one source for both."""
        place = self.place
        if place is None:
            return Gauge(session="", model="")
        session = place.session
        route, options = session.request_context(), place.handle.agent.options
        model = route.model if route is not None else options.model
        gauge = partial(
            Gauge,
            session=session.id,
            model=one_line(model or "(no model)"),
            window=route.context_window if route is not None else None,
        )
        meter = self.harness.context.get(TOKEN_METER)
        if meter is None:
            return gauge()
        measured, usage = meter.measure(session), meter.usage(session)
        prices = self.harness.context.get(PRICES)
        return gauge(
            cost=prices.cost(usage.routes) if prices is not None and usage.routes else None,
            context=measured.total_tokens,
            estimated=measured.baseline == "estimated",
            tokens=usage.session.total_tokens,
        )
