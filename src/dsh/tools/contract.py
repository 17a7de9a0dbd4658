"""What a result must be before anyone outside the pipeline sees it.

What comes in: results that bodies, wrappers and listeners made. What goes out: the same results
with lossless, frozen JSON and well-formed blocks, or a failure that says what was wrong with them.
Nothing here runs a tool or a listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from attrs import evolve

from dsh import catalog as ev
from dsh.catalog import records
from dsh.catalog.codec import CodecError, encode_record
from dsh.hooks import InvalidJson, frozen_json
from dsh.hooks.live import ToolFailed, ToolResult, ToolSuccess
from dsh.tools.failures import INVALID_TOOL_OUTPUT, failed, wellformed
from dsh.tools.tool import InvalidOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.tools.tool import Bound

__all__ = ["accepted", "from_wrapper", "materialised", "reviewed", "text_of"]

_OTHER_BLOCKS: Final = (
    records.ReasoningBlock,
    records.ImageBlock,
    records.FileBlock,
    records.ToolCallBlock,
)


class _NotContent(ValueError):
    """Something that is no list of content blocks, or cannot be logged as one."""


def _block(block: object) -> records.ContentBlock:
    if isinstance(block, records.TextBlock):
        text = cast("object", block.text)  # an author's class may not have checked it
        if not isinstance(text, str):
            raise _NotContent(f"a text block holds {type(text).__name__}, not text")
        clean = wellformed(text)
        return block if type(text) is str and clean == text else records.TextBlock(text=clean)
    if not isinstance(block, _OTHER_BLOCKS):
        raise _NotContent(f"{type(block).__name__} is no content block")
    try:
        encode_record(block)
    except CodecError as error:
        raise _NotContent(str(error)) from None
    return block


def _blocks(content: object) -> tuple[records.ContentBlock, ...]:
    if not isinstance(content, tuple | list):
        raise _NotContent(f"content is {type(content).__name__}; it must be a list of blocks")
    return tuple(_block(block) for block in cast("Sequence[object]", content))


def _contexts(contexts: object) -> tuple[records.UserMessage, ...]:
    if not isinstance(contexts, tuple | list):
        raise _NotContent(
            f"contexts are {type(contexts).__name__}; they must be a list of messages"
        )
    found = cast("Sequence[object]", contexts)
    for message in found:
        if not isinstance(message, records.UserMessage):
            raise _NotContent(f"a context is {type(message).__name__}; it must be a UserMessage")
    return tuple(cast("Sequence[records.UserMessage]", found))


def text_of(content: Sequence[records.ContentBlock]) -> str:
    """The text of its text blocks, joined by line breaks."""
    return "\n".join(block.text for block in content if isinstance(block, records.TextBlock))


def materialised(result: ToolResult, *, by: str) -> ToolResult:
    """The result in its last form: lossless JSON, well-formed text, real blocks and messages.

    `by` says who made it, for the failure that takes its place if it is not loggable.
    """
    try:
        content, contexts = _blocks(result.content), _contexts(result.contexts)
        meta = frozen_json(result.meta)
        if isinstance(result, ToolSuccess):
            return evolve(
                result,
                value=frozen_json(result.value),
                content=content,
                contexts=contexts,
                meta=meta,
                concludes_turn=result.concludes_turn is True,
            )
        message = cast("object", result.message)
        text = wellformed(message) if isinstance(message, str) else "the tool failed"
        return evolve(result, message=text, content=content, contexts=contexts, meta=meta)
    except (InvalidJson, _NotContent, RecursionError) as error:
        told = f"the result that {by} made cannot be logged: {error}"
        return failed(told, code=INVALID_TOOL_OUTPUT, contexts=_salvaged(result))


def _salvaged(result: ToolResult) -> tuple[records.UserMessage, ...]:
    try:
        return _contexts(result.contexts)
    except _NotContent:
        return ()


def accepted(bound: Bound, name: str, value: object) -> ToolResult:
    """A value through the tool's output contract: a success, or INVALID_TOOL_OUTPUT."""
    try:
        good = bound.accept(value)
    except InvalidOutput as error:
        return failed(
            f"{name} returned what its contract forbids: {error}", code=INVALID_TOOL_OUTPUT
        )
    except Exception as error:  # noqa: BLE001 - a value's own conversion may raise anything
        told = f"{name} returned a value that cannot be read: {type(error).__name__}"
        return failed(told, code=INVALID_TOOL_OUTPUT)
    success = ToolSuccess(value=good.value, content=good.content, meta=good.meta)
    return materialised(success, by=name)


def from_wrapper(result: object, bound: Bound | None, name: str) -> ToolResult:
    """A result that a `tools/execute` listener made itself, through the owning tool's contract.

    `bound` is None when the tool is no longer visible: then there is no contract to pass.
    """
    if isinstance(result, ToolFailed):
        if not result.content:
            text = wellformed(result.message)
            result = evolve(result, content=(records.TextBlock(text=f"Error: {text}"),))
        return materialised(result, by="a tools/execute listener")
    if not isinstance(result, ToolSuccess):
        told = f"a tools/execute listener returned {type(result).__name__}; return a tool result"
        return failed(told, code=INVALID_TOOL_OUTPUT)
    if bound is None:
        told = f"{name} went away while it ran; its result has no contract any more"
        return failed(told, code=INVALID_TOOL_OUTPUT, contexts=_salvaged(result))
    again = accepted(bound, name, result.value)
    if isinstance(again, ToolFailed):
        return evolve(again, contexts=_salvaged(result))
    kept = evolve(again, contexts=result.contexts, concludes_turn=result.concludes_turn)
    return materialised(kept, by="a tools/execute listener")


def reviewed(result: ToolResult, decision: object, bound: Bound | None, name: str) -> ToolResult:  # noqa: PLR0911 - each refusal returns where it is found
    """Apply what `tools/post-execute` decided. Impossible decisions become failures."""
    if isinstance(decision, ev.tools.Block):
        text = text_of(decision.feedback) or "the result was blocked by a policy"
        content = tuple(decision.feedback) or (records.TextBlock(text=f"Error: {text}"),)
        return ToolFailed(
            message=text, content=content, contexts=tuple(decision.additional_contexts)
        )
    if not isinstance(decision, ev.tools.Accept):
        told = f"a tools/post-execute listener returned {type(decision).__name__}"
        return failed(f"{told}; return Accept or Block", contexts=result.contexts)
    contexts = (*result.contexts, *decision.additional_contexts)
    if decision.content is not None and decision.value is not None:
        told = "a tools/post-execute listener replaced both content and value; replace one"
        return failed(told, contexts=contexts)
    if decision.content is not None:
        return evolve(result, content=tuple(decision.content), contexts=contexts)
    if decision.value is None:
        return evolve(result, contexts=contexts) if decision.additional_contexts else result
    if isinstance(result, ToolFailed):
        told = "a tools/post-execute listener gave a value to a failed result"
        return failed(f"{told} ({result.message})", contexts=contexts)
    if bound is None:
        told = f"{name} went away before its value could be replaced"
        return failed(told, code=INVALID_TOOL_OUTPUT, contexts=contexts)
    replaced = accepted(bound, name, decision.value)
    if isinstance(replaced, ToolFailed):
        return evolve(replaced, contexts=contexts)
    return evolve(replaced, contexts=contexts, concludes_turn=result.concludes_turn)
