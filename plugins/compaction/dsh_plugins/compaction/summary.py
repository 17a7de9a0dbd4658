"""The model call that writes a summary: one attempt, outside of the loop.

What comes in: the messages that are to be summarised with everything before them, exactly as the
last request had them, and a route. What goes out: the summary's text with what it cost, or
CompactionFailed. The request begins like the conversation's own, so that a provider's prefix cache
serves it; only the last message is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.catalog import records
from dsh.errors import LlmError
from dsh.hooks import frozen
from dsh.hooks.live import LlmRequest
from dsh.llm import Assembler, failure_of
from dsh.seams.compaction import CompactionFailed
from dsh_plugins.compaction.checkpoint import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.hooks.live import TurnSignal
    from dsh.llm import LlmRuntime

__all__ = ["PURPOSE", "Summary", "write_summary"]

#: The request's purpose: adapters and listeners of `llm/stream` can tell it from the loop's own.
PURPOSE: Final = "compaction"


@frozen(kw_only=True, slots=True)
class Summary:
    """A usable summary, whole, and the facts of the call that wrote it."""

    text: str
    output: tuple[records.ContentBlock, ...]
    provider: str
    model: str
    max_tokens: int | None
    usage: records.Usage | None


async def write_summary(
    llm: LlmRuntime,
    config: records.LlmCallConfig,
    tools: Sequence[records.ToolSchema],
    messages: Sequence[records.Message],
    *,
    session_id: str,
    signal: TurnSignal,
) -> Summary:
    """Make the request whose `messages` end with what is asked for; the reply is the summary.

    Raises CompactionFailed `summary`, with the code of the failure; a reply that is cut off, empty,
    or calls a tool is one. Cancellable at every await; the connection is closed then.
    """
    assembler = Assembler()
    try:
        call = await llm.prepare_call(config, signal)
        request = LlmRequest(
            provider=call.config.provider,
            model=call.config.model,
            messages=messages,
            tools=tuple(tools),
            reasoning_effort=call.config.reasoning_effort,
            temperature=call.config.temperature,
            max_tokens=call.config.max_tokens,
            stop=call.config.stop,
            session_id=session_id,
            purpose=PURPOSE,
            signal=signal,
        )
        async with call.stream(request) as chunks:
            async for chunk in chunks:
                assembler.push(chunk)
    except LlmError as error:
        failure = failure_of(error)
        raise CompactionFailed("summary", failure.message, code=failure.code) from error
    blocks = assembler.blocks()
    _refuse(assembler.finish, blocks)
    return Summary(
        text=text_of(blocks).strip(),
        output=blocks,
        provider=call.config.provider,
        model=call.config.model,
        max_tokens=call.config.max_tokens,
        usage=assembler.usage,
    )


def _refuse(finish: records.FinishReason, blocks: Sequence[records.ContentBlock]) -> None:
    problem = ""
    match finish:
        case records.ErrorFinish(failure=failure) | records.AbortedFinish(failure=failure):
            raise CompactionFailed("summary", failure.message, code=failure.code)
        case records.MaxTokensFinish():
            problem = "the summary was cut off at its longest length"
        case records.ToolCallsFinish():
            problem = "the model called a tool instead of writing a summary"
        case records.StopFinish():
            other = [b.type for b in blocks if not isinstance(b, _READABLE)]
            problem = f"the summary holds {other[0]}, which is no text" if other else ""
            if not problem and not text_of(blocks).strip():
                problem = "the summary is empty"
    if problem:
        raise CompactionFailed("summary", problem)


_READABLE: Final = (records.TextBlock, records.ReasoningBlock)
