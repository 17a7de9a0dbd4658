"""The grammar of a chunk stream: what may follow what.

What comes in: the chunks of one attempt, in order. What goes out: the first broken rule, in words,
or nothing. Pure; used by tests and by the invariants plugin, never on the normal path.

The rules: a block starts at most once and ends exactly once; its deltas are of its type and before
its end; an index belongs to one block; usage comes at most once and before the finish; the finish
comes exactly once; nothing follows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.catalog.records import (
    AbortedFinish,
    BlockEndChunk,
    BlockStartChunk,
    ErrorFinish,
    FinishChunk,
    ReasoningDeltaChunk,
    TextDeltaChunk,
    ToolCallDeltaChunk,
    UsageChunk,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh.catalog.records import StreamChunk

__all__ = ["ChunkGrammar", "grammar_fault"]


class ChunkGrammar:
    """Checks one stream chunk by chunk."""

    __slots__ = ("_ended", "_failed", "_finished", "_open", "_usage")

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self._ended: set[int] = set()
        self._usage = False
        self._finished = False
        self._failed = False

    def push(self, chunk: StreamChunk) -> str | None:
        """The rule that `chunk` breaks here, or None."""
        if self._finished:
            return f"{chunk.type} after the finish"
        match chunk:
            case BlockStartChunk():
                return self._start(chunk.index, chunk.block_type)
            case TextDeltaChunk():
                return self._delta(chunk.index, "text")
            case ReasoningDeltaChunk():
                return self._delta(chunk.index, "reasoning")
            case ToolCallDeltaChunk():
                return self._delta(chunk.index, "tool-call")
            case BlockEndChunk():
                return self._end(chunk.index, chunk.block.type)
            case UsageChunk():
                fault = "a second usage" if self._usage else None
                self._usage = True
                return fault
            case FinishChunk():
                self._finished = True
                self._failed = isinstance(chunk.reason, ErrorFinish | AbortedFinish)
                return None

    def end(self) -> str | None:
        """The rule that is broken when the stream ends here, or None."""
        if not self._finished:
            return "no finish"
        still_open = sorted(set(self._open) - self._ended)
        # A failed attempt may leave blocks open: nothing of it becomes a message.
        if still_open and not self._failed:
            return f"block {still_open[0]} never ended"
        return None

    def _start(self, index: int, kind: str) -> str | None:
        if index in self._open:
            return f"block {index} started twice"
        if index != len(self._open):
            return f"block {index} started where {len(self._open)} is next"
        self._open[index] = kind
        return None

    def _delta(self, index: int, kind: str) -> str | None:
        if index not in self._open:
            return f"{kind} delta for block {index}, which has not started"
        if index in self._ended:
            return f"{kind} delta for block {index}, which has ended"
        if self._open[index] != kind:
            return f"{kind} delta for block {index}, which is {self._open[index]}"
        return None

    def _end(self, index: int, kind: str) -> str | None:
        if index not in self._open:
            return f"end of block {index}, which has not started"
        if index in self._ended:
            return f"block {index} ended twice"
        if self._open[index] != kind:
            return f"block {index} ended as {kind}, started as {self._open[index]}"
        self._ended.add(index)
        return None


def grammar_fault(chunks: Iterable[StreamChunk]) -> str | None:
    """The first broken rule of a whole stream, with its place, or None."""
    grammar = ChunkGrammar()
    for place, chunk in enumerate(chunks):
        fault = grammar.push(chunk)
        if fault is not None:
            return f"chunk {place}: {fault}"
    return grammar.end()
