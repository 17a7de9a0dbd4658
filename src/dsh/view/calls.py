"""The tools' side of a step: calls, rewrites, approvals, results, and what of them overlapped.

What comes in: the events of tool calls in log order. What goes out: one row and one span for each
call; waiting for an approval is a span of its own and not charged to the tool. A call ends when its
result is logged, which happens in the order of the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from dsh import catalog as ev
    from dsh.view.board import Board
    from dsh.view.tables import Row, State

__all__ = ["Calls"]

#: What the pipeline and the repair say of a call that was not carried out, or not to its end.
ABORTED: Final = frozenset({"ABORTED", "ABORTED_BEFORE_DISPATCH"})
CRASHED: Final = frozenset({"TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"})


@final
class _Call:
    def __init__(self, index: int, row: Row, span: int, name: str) -> None:
        self.index: Final = index
        self.row: Final = row
        self.span: Final = span
        self.name: Final = name


@final
class Calls:
    """Every call of one log."""

    def __init__(self, board: Board) -> None:
        self._board: Final = board
        self._open: Final[dict[str, _Call]] = {}
        self._asked: Final[dict[str, tuple[int, int, str | None]]] = {}
        self._running = 0
        self._running_since = 0

    def call(self, call: ev.tool.Call, seq: int) -> None:
        """The model asked for a tool."""
        board = self._board
        name = board.words.line(call.name)
        index, row = board.row("tool", seq, name=name, text=board.words.subject(call))
        row.state = "open"
        span = board.span("tool", index, board.now)
        board.tables.spans[span].state = "open"
        if not self._running:
            self._running_since = board.now
        self._running += 1
        self._open[call.call_id] = _Call(index, row, span, name)

    def rewritten(self, event: ev.tool.Rewritten, seq: int) -> None:
        """A plugin replaced the arguments."""
        board = self._board
        one = self._open.get(event.call_id)
        name = "" if one is None else one.name
        board.row("rewrite", seq, name=name, by=board.words.line(event.plugin))
        if one is not None:
            one.row.seqs.append(seq)
            board.changed(one.index)

    def asked(self, event: ev.approval.Asked, seq: int) -> None:
        """Somebody is asked whether a call may run."""
        board = self._board
        line = board.words.line
        index, row = board.row(
            "decision", seq, name=line(event.tool_name), text=line(event.reason or "")
        )
        row.state = "open"
        self._asked[event.id] = (index, board.span("approval", index, board.now), event.call_id)

    def decided(self, event: ev.approval.Decided, seq: int) -> None:
        """The answer came."""
        board = self._board
        index, span, call_id = self._asked.pop(event.id, (None, None, None))
        if index is None or span is None:
            return
        row = board.tables.rows[index]
        row.seqs.append(seq)
        row.end, row.note = board.now, str(event.outcome)
        row.state = "ok" if str(event.outcome).startswith(("allow", "approve")) else "denied"
        board.close(span, row.state)
        board.changed(index)
        one = None if call_id is None else self._open.get(call_id)
        if one is not None:
            one.row.waited += board.now - row.begin
            board.tables.spans[one.span].begin = board.now
            board.tables.touch("spans", one.span)
            board.changed(one.index)

    def result(self, result: ev.tool.Result, seq: int) -> None:
        """A call has its result."""
        board = self._board
        one = self._open.pop(result.message.tool_call_id, None)
        if one is None:
            index, row = board.row("tool", seq, name="(unknown call)")
        else:
            index, row = one.index, one.row
            row.seqs.append(seq)
        outcome = board.words.outcome(result)
        row.note, row.end = outcome.summary, board.now
        row.by = board.words.line(result.decided_by or "")
        row.state = _state(result, failed=outcome.failed, denied=outcome.denied_by is not None)
        if one is not None:
            board.close(one.span, row.state)
            self._ran(row)
        board.changed(index)

    def end_step(self) -> None:
        """The step ends; calls of a damaged log may still be open, and stay so."""
        self._open.clear()
        self._running = 0

    def _ran(self, row: Row) -> None:
        board = self._board
        self._running = max(self._running - 1, 0)
        if board.step is None:
            return
        board.step.tool_sum += board.now - row.begin - row.waited
        if not self._running:
            board.step.tool_wall += board.now - self._running_since


def _state(result: ev.tool.Result, *, failed: bool, denied: bool) -> State:
    code = "" if result.error is None else result.error.code
    if denied:
        return "denied"
    if code in ABORTED:
        return "aborted"
    if code in CRASHED:
        return "crashed"
    return "failed" if failed else "ok"
