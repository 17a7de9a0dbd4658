"""The model's side of a step: attempts, how they streamed, what failed and was tried again.

What comes in: chunks, replies and retries in log order. What goes out: one row, one span and one
request for each attempt; a failed one keeps what it had said, which nobody was sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from dsh.catalog.records import (
    AbortedFinish,
    ErrorFinish,
    FinishChunk,
    ReasoningDeltaChunk,
    TextBlock,
    TextDeltaChunk,
    ToolCallBlock,
    ToolCallDeltaChunk,
)
from dsh.view.tables import Request, Spent

if TYPE_CHECKING:
    from dsh import catalog as ev
    from dsh.catalog.records import LlmFailure, Usage
    from dsh.view.board import Board
    from dsh.view.tables import Row

__all__ = ["Attempts", "spent_of"]

SILENCE_MS: Final = 1000
#: How often a growing reply counts as changed, for whoever watches.
SHOW_MS: Final = 250
SHOWN: Final = 400


def spent_of(usage: Usage) -> Spent:
    """A reply's counts: all input, what of it came from the cache, output."""
    cached = usage.cache_read_tokens or 0
    whole = usage.input_tokens + cached + (usage.cache_write_tokens or 0)
    return Spent(whole, cached, usage.output_tokens)


@final
class _Open:
    """The attempt that streams."""

    def __init__(self, index: int, row: Row, span: int) -> None:
        self.index: Final = index
        self.row: Final = row
        self.span: Final = span
        self.pieces: Final[list[str]] = []
        self.last = row.begin
        self.shown = row.begin


@final
class Attempts:
    """Every attempt of one log. `partials` holds what a failed one had said, by row."""

    def __init__(self, board: Board) -> None:
        self.partials: Final[dict[int, str]] = {}
        self._board: Final = board
        self._open: _Open | None = None
        self._failed: int | None = None
        self._backoff: int | None = None
        self._count = 0
        self._header: int | None = None
        self._context: int | None = None

    def header(self, seq: int) -> None:
        """A request header is in force from here on."""
        self._header = seq

    def context(self, seq: int) -> None:
        """Route facts are in force from here on."""
        self._context = seq

    def begin_step(self) -> None:
        """A step begins: its attempts count from 1."""
        self._count = 0
        self._failed = None

    def streaming(self) -> bool:
        """Whether an attempt is open."""
        return self._open is not None

    def chunk(self, event: ev.assistant.Chunk, seq: int) -> None:
        """One chunk more."""
        one = self._open or self._begin(seq)
        now = self._board.now
        one.row.chunks += 1
        if one.row.first is not None and now - one.last > SILENCE_MS:
            one.row.gaps.append((one.last, now - one.last))
        one.last = now
        match event.chunk:
            case TextDeltaChunk(text=text) | ReasoningDeltaChunk(text=text):
                self._first(one)
                one.pieces.append(text)
            case ToolCallDeltaChunk():
                self._first(one)
            case FinishChunk(reason=ErrorFinish(failure=failure)):
                self._fail(one, failure)
                return
            case FinishChunk(reason=AbortedFinish()):
                self._cut(one)
                return
            case _:
                pass
        if now - one.shown >= SHOW_MS:
            one.shown = now
            one.row.text = self._board.words.line("".join(one.pieces)[-SHOWN:])
            self._board.changed(one.index)

    def reply(self, reply: ev.assistant.Message, seq: int) -> None:
        """The attempt came to a reply."""
        board = self._board
        one = self._open or self._begin(seq)
        row = one.row
        row.seqs = [seq]
        row.calls = sum(isinstance(block, ToolCallBlock) for block in reply.message.content)
        text = " ".join(b.text for b in reply.message.content if isinstance(b, TextBlock))
        row.text = board.words.line(text[:SHOWN])
        if reply.usage is not None:
            self._spend(row, spent_of(reply.usage))
        row.state = "cut" if reply.interrupted else "ok"
        self._close(one)

    def retry(self, retry: ev.llm.Retry, seq: int) -> None:
        """A failed attempt will be tried again, after a wait."""
        board = self._board
        if self._open is not None:
            self._fail(self._open, retry.failure)
        if self._failed is None:
            self._fail(self._begin(seq), retry.failure)
        index = self._failed
        assert index is not None
        row = board.tables.rows[index]
        row.kind, row.state = "try", "retried"
        row.delay = int(retry.delay_ms)
        row.by = retry.plugin or ""
        if seq not in row.seqs:
            row.seqs.append(seq)
        board.changed(index)
        self._backoff = board.span("backoff", index, board.now)
        self._failed = None

    def retry_started(self) -> None:
        """The wait is over."""
        self.end_wait()
        self._board.ready = self._board.now

    def end_wait(self) -> None:
        """No wait goes on any more."""
        if self._backoff is not None:
            self._board.close(self._backoff)
            self._backoff = None

    def end_step(self, *, crashed: bool = False) -> None:
        """The step ends: what still streams was cut."""
        self.end_wait()
        if self._open is not None:
            self._open.row.note = "interrupted by a crash" if crashed else ""
            self._cut(self._open)

    def _begin(self, seq: int) -> _Open:
        board = self._board
        index, row = board.row("reply", seq)
        turn, step = board.place
        self._count += 1
        row.begin = min(board.ready, board.now)
        row.attempt = self._count
        row.state = "open"
        if self._failed is not None:
            # Whoever recovers without a wait says so only by asking again.
            earlier = board.tables.rows[self._failed]
            earlier.kind, earlier.state = "try", "retried"
            board.changed(self._failed)
            self._failed = None
        row.request = board.tables.add(
            "requests",
            Request(
                turn, step, self._count, index, len(board.tables.ops), self._header, self._context
            ),
        )
        self._open = _Open(index, row, board.span("model", index, row.begin))
        return self._open

    def _first(self, one: _Open) -> None:
        if one.row.first is None:
            one.row.first = self._board.now
            self._board.tables.spans[one.span].first = self._board.now
            self._board.tables.touch("spans", one.span)

    def _spend(self, row: Row, spent: Spent) -> None:
        board = self._board
        row.spent = spent
        if row.request is not None:
            request = board.tables.requests[row.request]
            request.input, request.cache_read = spent.input, spent.cached
            board.tables.touch("requests", row.request)
        if board.turn is not None:
            total = board.turn.spent
            total.input += spent.input
            total.cached += spent.cached
            total.output += spent.output

    def _fail(self, one: _Open, failure: LlmFailure) -> None:
        line = self._board.words.line
        status = "" if failure.status is None else f" ({failure.status})"
        one.row.state = "failed"
        one.row.name = line(failure.code) + status
        one.row.note = line(failure.message[:SHOWN])
        self._keep(one)
        self._close(one)
        self._failed = one.index

    def _cut(self, one: _Open) -> None:
        one.row.state = "cut"
        self._keep(one)
        self._close(one)

    def _keep(self, one: _Open) -> None:
        said = "".join(one.pieces)
        one.row.text = self._board.words.line(said[:SHOWN])
        if said:
            one.row.partial = True
            self.partials[one.index] = said

    def _close(self, one: _Open) -> None:
        one.row.end = self._board.now
        self._board.close(one.span, one.row.state)
        self._board.changed(one.index)
        self._open = None
