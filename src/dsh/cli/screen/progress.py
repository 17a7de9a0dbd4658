"""What a person sees while `dsh run` works: streamed text, tool lines, waits, the last line.

What comes in: the committed events of one session, in order. What goes out: text on the screen:
the reply streams to a terminal, tools and everything else go to standard error, and in a pipe
almost nothing is said. It never decides anything and never raises into the log's publication; when
standard output is gone it says so through `out_closed`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from dsh import catalog as ev
from dsh.catalog import records
from dsh.cli.screen.behind_log import BehindLog
from dsh.cli.screen.cards import outcome_of, seconds, subject_of
from dsh.cli.screen.inert import cells, clipped, inert, one_line
from dsh.cli.screen.outlet import OutletClosed
from dsh.cli.screen.pacing import Pacing
from dsh.cli.screen.retries import Retries

if TYPE_CHECKING:
    from dsh.cli.screen.outlet import Outlet
    from dsh.cli.screen.outputs import Screen
    from dsh.hooks import AnyDurable, Logged

__all__ = ["Progress", "Spent", "reason_in_words"]

NAME_CELLS: Final = 10
THOUSAND: Final = 1000


@final
class Progress:
    """The view of one session's run. `quiet`: no text streams, only what a person must know."""

    def __init__(self, screen: Screen, *, stream: Outlet | None, verbose: bool) -> None:
        self._closed: Final = trio.Event()
        self._failure: OutletClosed | None = None
        self._screen: Final = screen
        self._stream: Final = stream
        self._lines: Final = screen.err.is_terminal or stream is not None
        self._verbose: Final = verbose
        self._mid_line = False
        self._attempt_shown = False
        self._calls: dict[str, tuple[ev.tool.Call, int]] = {}
        self._asked: dict[str, tuple[str, int]] = {}
        self._last_called: str | None = None
        self._began = 0
        self._steps = 0
        self._spent = Spent()
        #: What is shown of the session waits for its log, if it was told whose.
        self.behind: Final = BehindLog()
        self._retries: Final = Retries()
        self._pacing: Final = Pacing()

    def see(self, event: Logged[AnyDurable]) -> None:
        """Show one event, if it is one that people look at, when its log has it."""
        if self._stream is not None or type(event.data) is not ev.assistant.Chunk:
            self.behind.act(event.seq, partial(self._see, event))

    def _see(self, event: Logged[AnyDurable]) -> None:
        match event.data:
            case ev.assistant.Chunk(chunk=records.TextDeltaChunk(text=text)):
                self._text(text)
            case ev.assistant.Message() as message:
                self._reply_done(message)
            case ev.tool.Call() as call:
                self._called(call, event.time)
            case ev.tool.Result() as result:
                self._returned(result, event.time)
            case ev.approval.Asked(call_id=call_id, id=asked) if call_id is not None:
                self._asked[asked] = (call_id, event.time)
            case ev.approval.Decided(id=asked):
                self._decided(asked, event.time)
            case ev.llm.Retry() as retry:
                self._waits(retry)
            case ev.turn.Start():
                self._began, self._steps, self._spent = event.time, 0, Spent()
            case ev.step.Start():
                self._steps += 1
            case ev.turn.End() as end:
                self._ended(end, event.time)
            case _:
                pass

    def tool_shows(self, payload: ev.tools.Progress) -> None:
        """What a running tool shows: its last line, on a terminal, now and then."""
        if not self._lines:
            return
        lines = [line for line in payload.text.splitlines() if line.strip()]
        if lines and self._pacing.is_due(payload.exec.call_id, lines[-1], trio.current_time()):
            indent = " " * (NAME_CELLS + 3)
            text = indent + clipped(one_line(lines[-1]), self._screen.width - len(indent)) + "\n"
            self.say(text)

    async def out_closed(self) -> OutletClosed:
        """Return when the stream's reader is gone, with the reason. Cancellable."""
        while self._failure is None:
            await self._closed.wait()
        return self._failure

    def say(self, text: str) -> None:
        """Whole lines of our own on standard error, after what waits to be shown."""
        self.behind.after(partial(self.say_now, text))

    def say_now(self, text: str) -> None:
        """The same, at once. Never in the middle of a line of streamed text."""
        self._fresh_line()
        self._screen.say(text)

    def prompt(self, text: str) -> None:
        """Show a prompt and leave its line open, until `end_prompt`."""
        self._fresh_line()
        self._screen.say(text)
        self._mid_line = True

    def end_prompt(self, *, typed: bool) -> None:
        """The prompt is done with. `typed`: the person ended its line."""
        if typed:
            self._mid_line = False
        else:
            self._fresh_line()

    def _text(self, text: str) -> None:
        if self._stream is None or not text:
            return
        self._put(inert(text))
        self._mid_line = not text.endswith("\n")
        self._attempt_shown = True

    def _put(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.text(text)
        except OutletClosed as error:
            self._failure = error
            self._closed.set()

    def _fresh_line(self) -> None:
        if self._mid_line:
            self._put("\n")
            self._mid_line = False

    def _reply_done(self, message: ev.assistant.Message) -> None:
        self._fresh_line()
        self._attempt_shown = False
        if message.usage is not None:
            self._spent.add(message.usage)

    def _cut(self) -> None:
        """Text of an attempt that left no reply: say that nobody will read it again."""
        if self._attempt_shown:
            self.say_now("(cut off; the model will not see this)\n")
            self._attempt_shown = False

    def _called(self, call: ev.tool.Call, time: int) -> None:
        self._calls[call.call_id] = (call, time)
        self._last_called = call.call_id
        if self._lines:
            self.say_now(self._row(call.name, subject_of(call)) + "\n")

    def _decided(self, asked: str, time: int) -> None:
        """A person's thinking is not the tool's time: let the call begin that much later."""
        call_id, since = self._asked.pop(asked, (None, time))
        if call_id is not None and call_id in self._calls:
            call, began = self._calls[call_id]
            self._calls[call_id] = (call, began + time - since)

    def _row(self, name: str, text: str) -> str:
        shown = one_line(name)
        padding = " " * max(NAME_CELLS - cells(shown), 0)
        room = self._screen.width - 3 - max(cells(shown), NAME_CELLS)
        body = clipped(text, max(room, 10))
        return f"  {self._screen.styled(shown, 'bold')}{padding} {body}".rstrip()

    def _returned(self, result: ev.tool.Result, time: int) -> None:
        call, began = self._calls.pop(result.message.tool_call_id, (None, time))
        self._pacing.forget(result.message.tool_call_id)
        if call is None:
            return
        outcome = outcome_of(result)
        took = seconds(time - began)
        if self._lines:
            self._card(call, result, took)
        elif self._verbose:
            self.say_now(
                f"{call.turn}.{call.step} {one_line(call.name)} {subject_of(call)}: "
                f"{outcome.summary}, {took}\n"
            )
        if outcome.denied_by is not None and not self._lines:
            # Also in a pipe: a denial is why the answer may be poorer than expected.
            said = "".join(outcome.preview[:1])
            self.say_now(f"denied {one_line(call.name)} by {one_line(outcome.denied_by)}: {said}\n")

    def _card(self, call: ev.tool.Call, result: ev.tool.Result, took: str) -> None:
        outcome = outcome_of(result)
        dot = self._screen.separator
        name = "" if self._last_called == call.call_id else f"{one_line(call.name)}: "
        hidden = f"{dot}{outcome.hidden} more lines" if outcome.hidden else ""
        summary = self._screen.styled(outcome.summary, "red" if outcome.failed else "plain")
        indent = " " * (NAME_CELLS + 3)
        self.say_now(f"{indent}{name}{summary}{dot}{took}{hidden}\n")
        if outcome.denied_by is not None:
            # With its remedy, whole: a person has to be able to read and copy it.
            self.say_now(f"{indent}{' '.join(outcome.preview)}\n")
            return
        for line in outcome.preview:
            self.say_now(indent + clipped(line, self._screen.width - len(indent)) + "\n")

    def _waits(self, retry: ev.llm.Retry) -> None:
        self._cut()
        hint = f"{self._screen.separator}Ctrl-C stops" if self._lines else ""
        self.say_now(self._retries.line(retry, hint=hint) + "\n")

    def _ended(self, end: ev.turn.End, time: int) -> None:
        self._fresh_line()
        self._cut()
        if not self._lines:
            return
        dot = self._screen.separator
        steps = "1 step" if self._steps == 1 else f"{self._steps} steps"
        how = f"turn {end.turn} {reason_in_words(end.reason)}"
        parts = [how, steps, seconds(time - self._began), *self._spent.in_words()]
        self.say_now(f"-- {dot.join(parts)} --\n")


class Spent:
    """The tokens of one turn, summed over its replies."""

    def __init__(self) -> None:
        self._input = self._cached = self._output = 0

    def add(self, usage: records.Usage) -> None:
        """One reply's counts more."""
        cached = usage.cache_read_tokens or 0
        self._input += usage.input_tokens + cached + (usage.cache_write_tokens or 0)
        self._cached += cached
        self._output += usage.output_tokens

    def in_words(self) -> list[str]:
        """`in 18.4k (82% cached)` and `out 612`; empty when nothing was reported."""
        if not self._input and not self._output:
            return []
        share = f" ({100 * self._cached // self._input}% cached)" if self._cached else ""
        return [f"in {_short(self._input)}{share}", f"out {_short(self._output)}"]


def _short(count: int) -> str:
    return str(count) if count < THOUSAND else f"{count / THOUSAND:.1f}k"


def reason_in_words(reason: records.TurnEndReason) -> str:
    """How a turn ended, for the last line of its output."""
    match reason:
        case records.CompletedTurnEnd():
            return "done"
        case records.AbortedTurnEnd(reason=cause):
            return f"stopped by {_by(cause)}"
        case records.BlockedTurnEnd(reason=why, plugin=plugin):
            by = f" by {one_line(plugin)}" if plugin is not None else ""
            return f"blocked{by}" + (f": {one_line(why)}" if why is not None else "")
        case records.ErrorTurnEnd():
            return "failed"
        case records.MaxTokensTurnEnd():
            return "cut at the output cap (max tokens)"
        case records.InterruptedTurnEnd():
            return "interrupted by a crash"


def _by(cause: records.CancelCause) -> str:
    match cause:
        case records.UserCause():
            return "you"
        case records.ParentCause():
            return "the agent above"
        case records.HookCause(reason=why):
            return f"a plugin: {one_line(why)}"
        case records.DisposedCause():
            return "the end of the program"
