"""The conversation as lines: what goes to the scrollback for good, and what is going on now.

What comes in: the committed events of one session, in order. What goes out: finished lines, each
once and never changed, and a `Doing` that says what the live lines show. It prints nothing, reads
no clock but the events' own, and never raises into the log's publication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from attrs import define, evolve, field

from dsh import catalog as ev
from dsh.catalog import records
from dsh.cli.screen.card_lines import MEDIUM, WIDE, RunningTool, card_lines
from dsh.cli.screen.cards import outcome_of, seconds, subject_of
from dsh.cli.screen.inert import inert, one_line
from dsh.cli.screen.previews import change_of, parsed_arguments
from dsh.cli.screen.progress import Spent, reason_in_words
from dsh.cli.screen.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.cli.screen.card_lines import Looks
    from dsh.cli.screen.retries import Waiting
    from dsh.hooks import AnyDurable
    from dsh.wire import UnknownEvent

__all__ = ["Doing", "Transcript"]

FENCE: Final = "```"


@define(slots=True)
class Doing:
    """What is going on. Times are epoch milliseconds; `since` is when this began."""

    turn: int = 0
    step: int = 0
    open: bool = False
    #: When the turn began.
    began: int = 0
    since: int = 0
    #: "asked" until the first token, then what the model is doing.
    phase: str = "asked"
    #: The reply's last line, as far as it has come.
    partial: str = ""
    #: Who was asked last, if that is known.
    provider: str | None = None
    tools: dict[str, RunningTool] = field(factory=dict[str, RunningTool])
    #: The wait before the next attempt.
    waiting: Waiting | None = None
    compacting: bool = False


@final
class Transcript:
    """The lines of one session. `print` takes finished lines, each without its end."""

    def __init__(self, print_line: Callable[[str], None], looks: Looks) -> None:
        self.doing = Doing()
        self.thinking_shown = False
        #: Every result of this session by its number, for `/out N`.
        self.results: list[tuple[RunningTool, ev.tool.Result]] = []
        #: Every finished reply of this session, for `/copy N`.
        self.replies: list[str] = []
        self._print_line: Final = print_line
        #: What was printed last; at first something that no line is.
        self._last = "\n"
        self._looks: Final = looks
        self._began = 0
        self._steps = 0
        self._spent = Spent()
        self._retries: Final = Retries()
        self._fenced = False
        self._thought = ""
        self._shown = False
        self._asked: dict[str, tuple[str, str | None]] = {}

    def see(self, data: AnyDurable | UnknownEvent, time: int) -> None:  # noqa: C901, PLR0912 - one case each
        """Take one event, committed at `time`. Prints what it finishes."""
        match data:
            case ev.assistant.Chunk(chunk=chunk):
                self._chunk(chunk, time)
            case ev.assistant.Message() as message:
                self._replied(message, time)
            case ev.tool.Call() as call:
                self.doing.tools[call.call_id] = RunningTool(
                    one_line(call.name),
                    subject_of(call),
                    time,
                    change=change_of(parsed_arguments(call.arguments)),
                )
            case ev.tool.Result() as result:
                self._returned(result, time)
            case ev.user.Message(message=message) if isinstance(message.source, records.UserSource):
                self._said(message)
            case ev.llm.Retry() as retry:
                self._retried(retry, time)
            case ev.llm.RetryStarted():
                self.doing.waiting = None
                self._phase("asked", time)
            case ev.approval.Asked() as asked:
                self._asked[asked.id] = (one_line(asked.tool_name), asked.call_id)
                self._mark(asked.call_id, time, asked=True)
            case ev.approval.Decided() as decided:
                self._decided(decided, time)
            case ev.turn.Start(turn=turn):
                self._began, self._steps, self._spent = time, 0, Spent()
                provider = self.doing.provider
                self.doing = Doing(turn, open=True, began=time, since=time, provider=provider)
            case ev.step.Start(step=step):
                self._steps += 1
                self.doing.step = step
                self._phase("asked", time)
            case ev.request.Header(header=header):
                self.doing.provider = one_line(header.config.provider)
            case ev.turn.End() as end:
                self._ended(end, time)
            case ev.compaction.Start():
                self.doing.compacting, self.doing.since = True, time
            case ev.compaction.End() as end:
                self._compacted(end)
            case _:
                pass

    def _print(self, line: str) -> None:
        self._last = line
        self._print_line(line)

    # -- the reply -------------------------------------------------------------------------------

    def _phase(self, phase: str, time: int) -> None:
        if self.doing.phase != phase or phase == "asked":
            self.doing.phase, self.doing.since = phase, time

    def _chunk(self, chunk: records.StreamChunk, time: int) -> None:
        match chunk:
            case records.TextDeltaChunk(text=text) if text:
                self._phase("writing", time)
                self._text(text)
            case records.ReasoningDeltaChunk(text=text):
                self._phase("thinking", time)
                self._think(text)
            case records.ToolCallDeltaChunk():
                self._phase("calling", time)
            case _:
                pass

    def _text(self, text: str) -> None:
        self._end_thought()
        *lines, self.doing.partial = (self.doing.partial + text).split("\n")
        self._shown = True
        for line in lines:
            self._reply_line(line)

    def _reply_line(self, line: str) -> None:
        """One line of Markdown: headings bold, fences and their code in one colour."""
        shown = inert(line)
        if line.lstrip().startswith(FENCE):
            self._fenced = not self._fenced
            self._print(self._looks.styled(shown, "cyan"))
        elif self._fenced:
            self._print(self._looks.styled(shown, "cyan") if shown else "")
        else:
            heading = line.startswith("#") and line.lstrip("#").startswith(" ")
            self._print(self._looks.styled(shown, "bold") if heading else shown)

    def _flush_text(self) -> None:
        if self.doing.partial:
            self._reply_line(self.doing.partial)
        self.doing.partial = ""
        self._fenced = False

    def _think(self, text: str) -> None:
        if not self.thinking_shown:
            return
        *lines, self._thought = (self._thought + text).split("\n")
        for line in lines:
            self._print(f"  | {inert(line)}")

    def _end_thought(self) -> None:
        if self._thought:
            self._print(f"  | {inert(self._thought)}")
            self._thought = ""

    def _replied(self, message: ev.assistant.Message, time: int) -> None:
        self._end_thought()
        if not self._shown:  # a log that was read back, or a model that does not stream
            self._text("".join(_texts(message.message)))
        self._flush_text()
        reply = "".join(_texts(message.message))
        if reply.strip():
            self.replies.append(reply)
        self._shown = False
        self._phase("tools", time)
        if message.usage is not None:
            self._spent.add(message.usage)
        if message.interrupted:
            self._print("(cut off)")

    def _cut(self) -> None:
        """Text of an attempt that left no reply: say that nobody will read it again."""
        self._end_thought()
        self._flush_text()
        if self._shown:
            self._print("(cut off; the model will not see this)")
        self._shown = False

    # -- tools -----------------------------------------------------------------------------------

    def shows(self, call_id: str, text: str) -> None:
        """What a running tool shows now, in place of what it showed before."""
        tool = self.doing.tools.get(call_id)
        if tool is not None:
            self.doing.tools[call_id] = evolve(tool, shows=text)

    def _returned(self, result: ev.tool.Result, time: int) -> None:
        running = self.doing.tools.pop(result.message.tool_call_id, None)
        if running is None:
            return
        self.results.append((running, result))
        outcome = outcome_of(result, self._looks.previews())
        took = seconds(time - running.began)
        for line in card_lines(running, outcome, took, len(self.results), self._looks):
            self._print(line)

    def _mark(self, call_id: str | None, time: int, *, asked: bool) -> None:
        tool = self.doing.tools.get(call_id or "")
        if tool is not None and call_id is not None:
            self.doing.tools[call_id] = evolve(tool, began=time, asked=asked)

    def _decided(self, decided: ev.approval.Decided, time: int) -> None:
        name, call_id = self._asked.pop(decided.id, ("a call", None))
        self._mark(call_id, time, asked=False)
        match decided.outcome:
            case "allowed-once":
                self._print(f"  {name} allowed once by you")
            case "rejected":
                self._print(f"  {name} denied by you")
            case _:
                self._print(f"  {name}: approval {decided.outcome}")

    # -- turns -----------------------------------------------------------------------------------

    def _said(self, message: records.UserMessage) -> None:
        lines = inert("".join(_texts(message))).split("\n")
        steered = self._steps > 1 and self.doing.open
        if steered:
            lines[-1] += f" (steered into step {self.doing.step})"
        first, *others = lines
        if self._last:  # two messages in a row are parted by one empty line
            self._print("")
        self._print(self._looks.styled("> ", "cyan") + first)
        for line in others:
            self._print(f"  {line}")
        self._print("")

    def _retried(self, retry: ev.llm.Retry, time: int) -> None:
        self._cut()
        self.doing.waiting = self._retries.waiting(retry, time)
        self._print(self._looks.styled(self._retries.line(retry), "yellow"))

    def _ended(self, end: ev.turn.End, time: int) -> None:
        self._cut()
        if isinstance(end.reason, records.ErrorTurnEnd):
            failure = end.reason.error
            status = f" ({failure.status})" if failure.status is not None else ""
            said = f"!! {one_line(failure.code)}{status}: {one_line(failure.message)}"
            self._print(self._looks.styled(said, "red"))
        width = self._looks.width()
        how = f"turn {end.turn} {reason_in_words(end.reason)}"
        steps = "1 step" if self._steps == 1 else f"{self._steps} steps"
        spent = self._spent.in_words()
        parts = [how, seconds(time - self._began)]
        if width >= MEDIUM:
            parts = [how, steps, parts[1], *spent[: 2 if width >= WIDE else 1]]
        self._print(f"-- {self._looks.separator.join(parts)} --")
        self.doing = Doing(turn=end.turn, provider=self.doing.provider)

    def _compacted(self, end: ev.compaction.End) -> None:
        self.doing.compacting = False
        if end.error is not None:
            self._print(f"-- not compacted: {one_line(end.error)} --")
        elif end.tokens_before is not None and end.tokens_after is not None:
            self._print(f"-- compacted {end.tokens_before} -> {end.tokens_after} tokens --")


def _texts(message: records.Message) -> list[str]:
    return [block.text for block in message.content if isinstance(block, records.TextBlock)]
