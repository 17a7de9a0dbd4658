"""A session's log as a trajectory: turns, steps, attempts, tool calls, waits, what hid what.

What comes in: stored events in log order, one at a time, so that a growing log costs what it adds.
What goes out: tables of plain entities, and for each request the nodes it was made of. It judges
nothing, writes nothing, and never fails on an event: what it does not know is a row that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

from dsh import catalog as ev
from dsh.catalog.records import (
    AbortedTurnEnd,
    Append,
    BlockedTurnEnd,
    CompletedTurnEnd,
    ErrorTurnEnd,
    InterruptedTurnEnd,
    MaxTokensTurnEnd,
    PluginSource,
    Replace,
    TextBlock,
    UserSource,
)
from dsh.session import Surface, SurfaceFault
from dsh.view.attempts import SHOWN, Attempts, spent_of
from dsh.view.board import Board
from dsh.view.calls import Calls
from dsh.view.tables import Op, Step, Turn
from dsh.wire import UnknownEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dsh.catalog.records import Message, TurnEndReason
    from dsh.view.tables import Row, State, Tables
    from dsh.view.words import Words
    from dsh.wire import StoredEvent

__all__ = ["Trajectory"]

Surfaced: TypeAlias = "ev.user.Message | ev.system.Message | ev.assistant.Message | ev.tool.Result"


@final
class Trajectory:
    """One log as told so far. `tables` is live: read it, and never change it."""

    def __init__(self, words: Words) -> None:
        self.words: Final = words
        self._board: Final = Board(words)
        self._attempts: Final = Attempts(self._board)
        self._calls: Final = Calls(self._board)
        self._surface: Final = Surface()
        self._compaction: int | None = None
        self._compacting: int | None = None
        self._pruned: int | None = None
        self.events = 0
        self.unknown = 0
        self._named = self._asked = ""

    @property
    def tables(self) -> Tables:
        """Turns, steps, requests, rows, spans, operations."""
        return self._board.tables

    @property
    def base(self) -> int:
        """The time of the first event, in epoch milliseconds; all other times count from it."""
        return self._board.base or 0

    @property
    def title(self) -> str:
        """What the session is called, else what was asked first; empty when nothing was."""
        return self._named or self._asked

    @property
    def length(self) -> int:
        """Milliseconds from the first event to the newest."""
        return self._board.now

    @property
    def partials(self) -> Mapping[int, str]:
        """What attempts had said that left no reply, by row."""
        return self._attempts.partials

    def see_all(self, events: Iterable[StoredEvent]) -> None:
        """Take in several events."""
        for event in events:
            self.see(event)

    def see(self, event: StoredEvent) -> None:
        """Take in the next event."""
        self.events += 1
        before = len(self.tables.rows)
        if self._board.tick(event) and not isinstance(event.data, ev.assistant.Chunk):
            self._tell(event)
            for row in self.tables.rows[before:]:
                row.backwards = True
            return
        self._tell(event)

    def _tell(self, event: StoredEvent) -> None:
        board, seq = self._board, event.seq
        match event.data:
            case ev.assistant.Chunk() as chunk:
                self._attempts.chunk(chunk, seq)
            case ev.turn.Start(turn=number):
                self._turn_starts(number, seq)
            case ev.turn.End(reason=reason):
                self._turn_ends(reason, seq)
            case ev.step.Start(turn=turn, step=number):
                board.step = Step(turn, number, board.now)
                board.tables.add("steps", board.step)
                board.ready = board.now
                self._attempts.begin_step()
            case ev.step.End():
                self._step_ends()
            case ev.llm.Retry() as retry:
                self._attempts.retry(retry, seq)
            case ev.llm.RetryStarted():
                self._attempts.retry_started()
            case (
                ev.user.Message() | ev.system.Message() | ev.assistant.Message() | ev.tool.Result()
            ) as node:
                self._node(node, event)
            case _:
                self._tell_call(event)

    def _tell_call(self, event: StoredEvent) -> None:
        """The events of tool calls."""
        seq = event.seq
        match event.data:
            case ev.tool.Call() as call:
                self._calls.call(call, seq)
            case ev.tool.Rewritten() as rewritten:
                self._calls.rewritten(rewritten, seq)
            case ev.approval.Asked() as asked:
                self._calls.asked(asked, seq)
            case ev.approval.Decided() as decided:
                self._calls.decided(decided, seq)
            case _:
                self._tell_more(event)

    def _tell_more(self, event: StoredEvent) -> None:
        """The events that are told less often."""
        board, seq = self._board, event.seq
        line = board.words.line
        match event.data:
            case ev.request.Header(header=header, reason=reason):
                self._attempts.header(seq)
                self._admitted()
                model = f"{header.config.provider}/{header.config.model}"
                text = f"{line(model)}, {len(header.tools)} tools"
                board.row("request", seq, text=text, note=str(reason))
            case ev.request.RouteContext():
                self._attempts.context(seq)
                self._admitted()
                board.row("event", seq, name=event.type)
            case ev.compaction.Start(trigger=trigger):
                self._compaction, row = board.row("compaction", seq, name=trigger or "")
                row.state = "open"
                self._compacting = board.span("compaction", self._compaction, board.now)
            case ev.compaction.Summary() as summary:
                self._summarised(summary, seq)
            case ev.compaction.End() as end:
                self._compacted(end, seq)
            case ev.compaction.Prune() as prune:
                self._prune(prune, seq)
            case ev.agent.InboxSpliced() as splice:
                self._spliced(splice, seq)
            case ev.session.Title(title=title):
                self._named = line(title)
                board.row("event", seq, name=event.type, text=self._named)
            case ev.session.EndSeed(inherited=inherited):
                told = "what came before is the parent session's" if inherited else "the seed ends"
                board.row("seed", seq, text=told)
            case UnknownEvent(problem=problem):
                self.unknown += 1
                by = line(event.owner or "a newer dsh")
                board.row("unknown", seq, name=line(event.type), text=problem, by=by)
            case _:
                owner = line((event.owner or "").partition("@")[0])
                board.row("event", seq, name=line(event.type), by=owner)

    def _turn_starts(self, number: int, seq: int) -> None:
        board = self._board
        board.turn = Turn(number, len(board.tables.rows), board.now)
        board.step = None
        board.tables.add("turns", board.turn)
        _, row = board.row("turn", seq)
        row.state = "open"

    def _turn_ends(self, reason: TurnEndReason, seq: int) -> None:
        board = self._board
        self._step_ends(crashed=isinstance(reason, InterruptedTurnEnd))
        turn = board.turn
        if turn is None:
            return
        turn.end, turn.words, turn.state = board.now, board.words.ending(reason), _ended(reason)
        board.tables.touch("turns", len(board.tables.turns) - 1)
        row = board.tables.rows[turn.row]
        row.end, row.state, row.note = board.now, turn.state, turn.words
        row.seqs.append(seq)
        row.spent = turn.spent
        if isinstance(reason, ErrorTurnEnd):
            line = board.words.line
            row.text = f"{line(reason.error.code)}: {line(reason.error.message[:SHOWN])}"
        board.changed(turn.row)
        board.turn = None

    def _step_ends(self, *, crashed: bool = False) -> None:
        board = self._board
        self._attempts.end_step(crashed=crashed)
        self._calls.end_step()
        if board.step is not None:
            board.step.end = board.now
            board.tables.touch("steps", len(board.tables.steps) - 1)
            if board.turn is not None:
                board.turn.steps += 1
                board.tables.touch("turns", len(board.tables.turns) - 1)
        board.step = None

    def _admitted(self) -> None:
        """Something that the next request is made of was logged."""
        if self._board.step is not None and not self._attempts.streaming():
            self._board.ready = self._board.now

    def _node(self, node: Surfaced, event: StoredEvent) -> None:
        op, hidden = event.surface_op, list[int]()
        if isinstance(op, Replace):
            hidden = self._hidden(op)
        replaces = isinstance(op, Replace)
        match node:
            case ev.assistant.Message() if not replaces:
                self._attempts.reply(node, event.seq)
            case ev.tool.Result() if not replaces:
                self._calls.result(node, event.seq)
            case ev.user.Message(message=message) if not replaces:
                self._user(message, event.seq)
            case ev.system.Message(message=message) if not replaces:
                text = _text(message)
                self._board.row(
                    "system", event.seq, text=self._board.words.line(text[:SHOWN]),
                    note=f"{len(text):,} characters",
                )  # fmt: skip
            case _:
                self._replaced(node.message, event.seq, hidden)
        # The operation comes after the row: a reply is not part of its own request.
        if op is not None:
            self._operate(event.seq, op)
        self._admitted()

    def _hidden(self, op: Replace) -> list[int]:
        try:
            return self._surface.shadowed(op)
        except SurfaceFault:
            return []

    def _operate(self, seq: int, op: Append | Replace) -> None:
        try:
            self._surface.apply(seq, op)
        except SurfaceFault:  # a damaged log; the invariants say more
            return
        if isinstance(op, Replace):
            self._board.op(Op(seq, op.start_seq, op.end_seq))
        else:
            self._board.op(Op(seq))

    def _user(self, message: Message, seq: int) -> None:
        board = self._board
        text = board.words.line(_text(message)[:SHOWN])
        if isinstance(message.source, UserSource):
            self._asked = self._asked or text
            index, row = board.row("user", seq, text=text)
            if row.step > 1:
                row.note = "steered"
            span = board.span("mark", index, board.now)
            board.close(span)
        else:
            by = message.source.plugin if isinstance(message.source, PluginSource) else ""
            board.row("context", seq, text=text, by=board.words.line(by))

    def _replaced(self, message: Message, seq: int, hidden: list[int]) -> None:
        """A node took the place of others: of a compaction, a prune, or a plugin's own."""
        board = self._board
        index = self._compaction
        if index is None and self._pruned == len(board.tables.rows) - 1:
            index = self._pruned  # what a prune puts in place follows it at once
        if index is None:
            by = message.source.plugin if isinstance(message.source, PluginSource) else ""
            text = board.words.line(_text(message)[:SHOWN])
            index, row = board.row("replace", seq, text=text, by=board.words.line(by))
        else:
            row = board.tables.rows[index]
            row.seqs.append(seq)
        row.hidden += hidden
        row.node = seq
        board.changed(index)

    def _summarised(self, summary: ev.compaction.Summary, seq: int) -> None:
        row = self._compaction_row(seq)
        text = " ".join(block.text for block in summary.summary if isinstance(block, TextBlock))
        row.text = self._board.words.line(text[:SHOWN])
        if summary.usage is not None:
            row.spent = spent_of(summary.usage)

    def _compacted(self, end: ev.compaction.End, seq: int) -> None:
        board = self._board
        row = self._compaction_row(seq)
        row.end = board.now
        row.before, row.after = end.tokens_before, end.tokens_after
        row.state = "ok" if end.error is None else "failed"
        row.note = board.words.line(end.error or "")
        if self._compacting is not None:
            board.close(self._compacting, row.state)
        self._compaction = self._compacting = None
        board.ready = board.now

    def _compaction_row(self, seq: int) -> Row:
        """The row of the open compaction; of a new one, in a log that lost its start."""
        board = self._board
        if self._compaction is None:
            self._compaction, _ = board.row("compaction", seq)
        row = board.tables.rows[self._compaction]
        if seq not in row.seqs:
            row.seqs.append(seq)
        board.changed(self._compaction)
        return row

    def _prune(self, prune: ev.compaction.Prune, seq: int) -> None:
        """Neighbouring prunes are one row."""
        board = self._board
        if self._pruned is None or self._pruned != len(board.tables.rows) - 1:
            self._pruned, row = board.row("prune", seq)
            row.before = 0
        else:
            row = board.tables.rows[self._pruned]
            row.seqs.append(seq)
        row.before = (row.before or 0) + prune.shadowed_token_count
        row.end = board.now
        board.changed(self._pruned)

    def _spliced(self, splice: ev.agent.InboxSpliced, seq: int) -> None:
        """What waits in the inbox, and what is taken back; a claim shows as what it led to."""
        board = self._board
        if not splice.inserted and splice.outcome is None:
            return
        text = " ".join(_text(message) for message in splice.inserted)
        _, row = board.row("queue", seq, text=board.words.line(text[:SHOWN]))
        taken_back = f"{splice.removed_count} taken back"
        row.note = taken_back if splice.outcome is not None else str(splice.target)


def _text(message: Message) -> str:
    return " ".join(block.text for block in message.content if isinstance(block, TextBlock))


def _ended(reason: TurnEndReason) -> State:
    match reason:
        case CompletedTurnEnd():
            return "ok"
        case AbortedTurnEnd():
            return "aborted"
        case BlockedTurnEnd():
            return "blocked"
        case ErrorTurnEnd():
            return "failed"
        case MaxTokensTurnEnd():
            return "cut"
        case InterruptedTurnEnd():
            return "crashed"
