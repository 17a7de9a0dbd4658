"""Folding a reply's chunks into the blocks of one assistant message.

What comes in: the chunks of one attempt, in order. What goes out: content blocks in first-seen
order, the usage, the finish, the replay state, and, for a reply that was cut off by the user, the
part worth keeping. Pure: the same chunks always give the same blocks, so a log can be refolded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Never, NoReturn

from dsh.catalog.records import (
    BlockEndChunk,
    BlockStartChunk,
    ErrorFinish,
    FinishChunk,
    LlmFailure,
    MaxTokensFinish,
    ReasoningBlock,
    ReasoningDeltaChunk,
    ReplayEnvelope,
    TextBlock,
    TextDeltaChunk,
    ToolCallBlock,
    ToolCallDeltaChunk,
    UsageChunk,
)
from dsh.errors import InvariantError

if TYPE_CHECKING:
    from dsh.catalog.records import ContentBlock, FinishReason, StreamChunk, Usage

__all__ = ["Assembler"]

_OPEN_TYPES: Final = frozenset({"text", "reasoning", "tool-call"})


class _Partial:
    """One block that is being received. `closed` is the block as its end chunk gave it."""

    __slots__ = ("arguments", "call_id", "closed", "kind", "name", "texts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.arguments: list[str] = []
        self.call_id = ""
        self.name = ""
        self.closed: ContentBlock | None = None


class Assembler:
    """The fold over one attempt's chunks.

    Deltas without a block start open their block; a second start, a second end and deltas after an
    end are ignored. A call without an id gets `call-<index>` (adapters give ids of their own; this
    is for listeners that make chunks), a second call with the same id gets a suffix. A reply that
    ended for lack of output tokens has no tool calls: their arguments may be cut.
    """

    __slots__ = ("_finish", "_partials", "_replay", "usage")

    def __init__(self) -> None:
        self._partials: dict[int, _Partial] = {}
        self._finish: FinishReason | None = None
        self._replay: ReplayEnvelope | None = None
        #: The newest usage that was reported, or None.
        self.usage: Usage | None = None

    def push(self, chunk: StreamChunk) -> None:
        """Fold one chunk. Raises InvariantError for something that is no chunk of the catalog."""
        if type(chunk) is TextDeltaChunk:
            partial = self._partials.get(chunk.index)
            if partial is not None:
                # Nearly every chunk of a reply; the same as `_texts` does.
                if partial.closed is None:
                    partial.texts.append(chunk.text)
                return
        match chunk:
            case TextDeltaChunk():
                self._texts(chunk.index, "text", chunk.text)
            case ReasoningDeltaChunk():
                self._texts(chunk.index, "reasoning", chunk.text)
            case ToolCallDeltaChunk():
                self._call(chunk)
            case BlockStartChunk():
                self._open(chunk.index, chunk.block_type)
            case BlockEndChunk():
                partial = self._open(chunk.index, chunk.block.type)
                if partial.closed is None:
                    partial.closed = chunk.block
            case UsageChunk():
                self.usage = chunk.usage
            case FinishChunk():
                self._finish = chunk.reason
                self._replay = chunk.replay_state
            case _:
                _refuse(chunk)

    @property
    def finish(self) -> FinishReason:
        """How the attempt ended; a stream without a finish was cut off (STREAM_CLOSED)."""
        if self._finish is None:
            return ErrorFinish(
                failure=LlmFailure(
                    message="the model's stream ended without saying why", code="STREAM_CLOSED"
                )
            )
        return self._finish

    @property
    def finished(self) -> bool:
        """True once a finish chunk was folded."""
        return self._finish is not None

    def blocks(self) -> tuple[ContentBlock, ...]:
        """The content of the message, in first-seen order of the blocks.

        Raises InvariantError for an open block of a type that has no deltas to build it from.
        """
        used: set[str] = set()
        found: list[ContentBlock] = []
        for index, partial in self._partials.items():
            if self._dropped(partial):
                continue
            block = partial.closed if partial.closed is not None else _built(index, partial)
            if isinstance(block, ToolCallBlock):
                block = _with_unique_id(block, index, used)
            found.append(block)
        return tuple(found)

    def interrupted_blocks(self) -> tuple[ContentBlock, ...]:
        """What is kept of a reply that the user cut off: text and reasoning that is not blank."""
        found: list[ContentBlock] = []
        for partial in self._partials.values():
            block = partial.closed
            if block is None and partial.kind in {"text", "reasoning"}:
                block = _built(0, partial)
            if isinstance(block, TextBlock | ReasoningBlock) and block.text.strip():
                found.append(block)
        return tuple(found)

    @property
    def replay_state(self) -> ReplayEnvelope | None:
        """What the adapter wants back with this message, pruned in step with `blocks()`.

        Per-block entries that do not match the blocks one to one are left out.
        """
        state = self._replay
        if state is None or not state.blocks:
            return state
        if len(state.blocks) != len(self._partials):
            return ReplayEnvelope(response=state.response)
        kept = tuple(
            entry
            for entry, partial in zip(state.blocks, self._partials.values(), strict=True)
            if not self._dropped(partial)
        )
        if len(kept) == len(state.blocks):
            return state
        return ReplayEnvelope(response=state.response, blocks=kept)

    def _dropped(self, partial: _Partial) -> bool:
        return partial.kind == "tool-call" and isinstance(self._finish, MaxTokensFinish)

    def _open(self, index: int, kind: str) -> _Partial:
        partial = self._partials.get(index)
        if partial is None:
            partial = self._partials[index] = _Partial(kind)
        return partial

    def _texts(self, index: int, kind: Literal["text", "reasoning"], text: str) -> None:
        partial = self._partials.get(index)
        if partial is None:
            partial = self._partials[index] = _Partial(kind)
        if partial.closed is None:
            partial.texts.append(text)

    def _call(self, chunk: ToolCallDeltaChunk) -> None:
        partial = self._open(chunk.index, "tool-call")
        if partial.closed is None:
            partial.arguments.append(chunk.arguments_delta)
            partial.call_id = partial.call_id or chunk.id
            partial.name = chunk.name or partial.name


def _built(index: int, partial: _Partial) -> ContentBlock:
    match partial.kind:
        case "text":
            return TextBlock(text="".join(partial.texts))
        case "reasoning":
            return ReasoningBlock(text="".join(partial.texts))
        case "tool-call":
            return ToolCallBlock(
                id=partial.call_id, name=partial.name, arguments="".join(partial.arguments)
            )
        case other:
            raise InvariantError(
                f"block {index} of type {other!r} was opened and never ended; only "
                f"{', '.join(sorted(_OPEN_TYPES))} can be built from deltas"
            )


def _with_unique_id(block: ToolCallBlock, index: int, used: set[str]) -> ToolCallBlock:
    call_id = wanted = block.id or f"call-{index}"
    count = 2
    while call_id in used:
        call_id = f"{wanted}-{count}"
        count += 1
    used.add(call_id)
    if call_id == block.id:
        return block
    return ToolCallBlock(id=call_id, name=block.name, arguments=block.arguments)


def _refuse(chunk: Never) -> NoReturn:
    raise InvariantError(
        f"{type(chunk).__name__} is not a stream chunk; use the classes of dsh.catalog.records"
    )
