"""Logs with times, for tests of what is shown: tools that overlap, waits, tries, compactions.

What comes in: what happens and how long it takes. What goes out: a private session whose log is
lawful, event by event as the loop and the plugins write it. No model, tool or clock runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from attrs import evolve, frozen

from dsh import catalog as ev
from dsh.catalog import records
from dsh.session import Session
from dsh.testing.logs import header, said
from dsh.wire import StoredLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["TOOLS", "Called", "TimedLog"]

EPOCH: Final = 1_772_460_060_000
TOOLS: Final = ("bash", "edit_file", "glob", "grep", "read_file", "write_file")


@frozen(kw_only=True, slots=True)
class Called:
    """One tool call: what it is given, how long its body takes, and what comes back."""

    name: str = "bash"
    arguments: Mapping[str, object]
    ms: int = 100
    result: str = "done"
    error: str | None = None
    decided_by: str | None = None
    exit_code: int | None = None


class TimedLog:
    """Writes a session on a clock of its own. Each method takes the time that its name says."""

    def __init__(self, session_id: str = "s7f3", *, cwd: str = "/home/ada/shop") -> None:
        self.now = EPOCH
        told = evolve(header(session_id, cwd=cwd), created_at=EPOCH)
        self.session: Final = Session(told, now_ms=lambda: self.now)
        self.turn = 0
        self.step = 0
        self._calls = 0
        self._tools: tuple[str, ...] = ()
        self._retry = 0

    @property
    def stored(self) -> StoredLog:
        """The log as a reader finds it."""
        return StoredLog(header=self.session.header, events=tuple(self.session.events))

    def wait(self, ms: int) -> None:
        """Nothing happens for a while."""
        self.now += ms

    def begin(self, prompt: str, *, system: str | None = None) -> None:
        """A turn and its first step begin with a prompt."""
        self.turn += 1
        self.step = 0
        self.session.append(ev.turn.Start(turn=self.turn))
        self.next_step()
        if system is not None:
            message = records.SystemMessage(
                id=f"p{self.session.next_seq}",
                content=(records.TextBlock(text=system),),
                source=records.SystemPromptSource(),
            )
            self.session.append(
                ev.system.Message(turn=self.turn, step=self.step, message=message),
                surface=records.Append(),
            )
        self.say(prompt)

    def say(self, prompt: str) -> None:
        """A message of the person enters the history."""
        message = said(prompt, message_id=f"u{self.session.next_seq}")
        self.session.append(ev.user.Message(message=message), surface=records.Append())

    def next_step(self) -> None:
        """A step begins; the one before it has ended."""
        if self.step:
            self.session.append(ev.step.End(turn=self.turn, step=self.step))
        self.step += 1
        self.session.append(ev.step.Start(turn=self.turn, step=self.step))

    def offer(self, *tools: str, model: str = "deepseek-chat") -> None:
        """The next request offers these tools."""
        schemas = tuple(
            records.ToolSchema(name=name, description=f"{name}, as ever", parameters={})
            for name in tools
        )
        self.session.append(
            ev.request.Header(
                header=records.EpochHeader(
                    config=records.LlmCallConfig(provider="deepseek", model=model), tools=schemas
                ),
                reason="change" if self._tools else "initial",
            )
        )
        self._tools = tools

    def chunk(self, chunk: records.StreamChunk) -> int:
        """One chunk arrives."""
        return self.session.append(
            ev.assistant.Chunk(turn=self.turn, step=self.step, chunk=chunk)
        ).seq

    def stream(self, text: str, *, first: int = 600, ms: int = 900, pieces: int = 4) -> list[int]:
        """A text streams: the time to its first token, then the rest."""
        self.wait(first)
        size = max(len(text) // pieces, 1)
        seqs: list[int] = []
        for at in range(0, len(text), size):
            seqs.append(self.chunk(records.TextDeltaChunk(index=0, text=text[at : at + size])))
            self.wait(ms // pieces)
        return seqs

    def reply(
        self,
        text: str,
        calls: Sequence[Called] = (),
        *,
        sources: Sequence[int] = (),
        usage: tuple[int, int, int] | None = None,
        reasoning: str = "",
    ) -> list[records.ToolCallBlock]:
        """The reply is complete. `usage`: new input, input from the cache, output."""
        blocks = [
            records.ToolCallBlock(
                id=f"c{self._calls + n}",
                name=call.name,
                arguments=orjson.dumps(call.arguments).decode(),
            )
            for n, call in enumerate(calls, start=1)
        ]
        self._calls += len(calls)
        thought = (records.ReasoningBlock(text=reasoning),) if reasoning else ()
        spoken = (records.TextBlock(text=text),) if text else ()
        message = records.AssistantMessage(
            id=f"a{self.session.next_seq}",
            content=(*thought, *spoken, *blocks),
            source=records.ModelSource(provider="deepseek", model="deepseek-chat"),
        )
        counted = None
        if usage is not None:
            counted = records.Usage(
                input_tokens=usage[0], cache_read_tokens=usage[1], output_tokens=usage[2]
            )
        self.session.append(
            ev.assistant.Message(turn=self.turn, step=self.step, message=message, usage=counted),
            surface=records.Append(),
            sources=tuple(sources) or None,
        )
        return blocks

    def run(self, blocks: Sequence[records.ToolCallBlock], calls: Sequence[Called]) -> None:
        """The calls run together; each is answered when it and those before it are done."""
        began = self.now
        seqs = [
            self.session.append(
                ev.tool.Call(
                    turn=self.turn,
                    step=self.step,
                    call_id=block.id,
                    name=block.name,
                    arguments=block.arguments,
                )
            ).seq
            for block in blocks
        ]
        for block, call, seq in zip(blocks, calls, seqs, strict=True):
            self.now = max(self.now, began + call.ms)
            self.answer(block, call, seq)

    def answer(self, block: records.ToolCallBlock, call: Called, seq: int) -> None:
        """A call has its result now."""
        message = records.ToolResultMessage(
            id=f"r{block.id}",
            content=(records.TextBlock(text=call.result),),
            source=records.ToolSource(call_id=block.id),
            tool_call_id=block.id,
            is_error=call.error is not None,
        )
        error = None if call.error is None else records.ToolErrorInfo(name="X", code=call.error)
        self.session.append(
            ev.tool.Result(
                turn=self.turn,
                step=self.step,
                message=message,
                error=error,
                decided_by=call.decided_by,
                meta=None if call.exit_code is None else {"exit_code": call.exit_code},
            ),
            surface=records.Append(),
            sources=(seq,),
        )

    def approve(self, block: records.ToolCallBlock, *, after: int) -> None:
        """Somebody is asked about a call that has been logged, and allows it."""
        asked = f"q-{block.id}"
        reason = "no rule for bash"
        self.session.append(
            ev.approval.Asked(id=asked, tool_name=block.name, call_id=block.id, reason=reason)
        )
        self.wait(after)
        self.session.append(ev.approval.Decided(id=asked, outcome="allowed-once"))

    def work(
        self,
        text: str,
        *calls: Called,
        usage: tuple[int, int, int] | None = None,
        reasoning: str = "",
    ) -> None:
        """A streamed reply and its calls, in the open step."""
        sources = self.stream(text)
        self.run(self.reply(text, calls, sources=sources, usage=usage, reasoning=reasoning), calls)

    def failed_try(self, text: str, code: str, message: str, *, status: int, delay: int) -> None:
        """An attempt fails after some text, and is tried again after a wait."""
        self.stream(text, first=400, ms=300)
        failure = records.LlmFailure(message=message, code=code, status=status)
        self.chunk(records.FinishChunk(reason=records.ErrorFinish(failure=failure)))
        self._retry += 1
        run = f"r{self.turn}.{self.step}"
        self.session.append(
            ev.llm.Retry(
                retry_id=run,
                turn=self.turn,
                step=self.step,
                provider="deepseek",
                plugin="llm-retry",
                mode="normal",
                policy_key="k",
                retry=self._retry,
                max_retries=4,
                delay_ms=delay,
                failure=failure,
            )
        )
        self.wait(delay)
        self.session.append(
            ev.llm.RetryStarted(retry_id=run, turn=self.turn, step=self.step, retry=self._retry)
        )

    def compact(self, summary: str, *, keep: int, ms: int = 4_000) -> None:
        """Everything but the last `keep` nodes becomes a summary."""
        nodes = list(self.session.surface.nodes)
        hidden = nodes[1 : len(nodes) - keep]
        key = f"k{self.session.next_seq}"
        self.session.append(
            ev.compaction.Start(compaction_id=key, turn=self.turn, trigger="pressure")
        )
        self.wait(ms)
        first, last = hidden[0], hidden[-1]
        with self.session.batch():
            self.session.append(
                ev.compaction.Summary(
                    compaction_id=key,
                    summary=(records.TextBlock(text=summary),),
                    shadowed_range=records.SeqRange(start=first, end=last),
                    shadowed_seqs=tuple(hidden),
                    shadowed_token_count=92_000,
                    provider="deepseek",
                    model="deepseek-chat",
                    usage=records.Usage(input_tokens=95_000, output_tokens=870),
                )
            )
            message = records.UserMessage(
                id=f"k{self.session.next_seq}",
                content=(records.TextBlock(text=summary),),
                source=records.PluginSource(plugin="compaction", form="recall"),
            )
            self.session.append(
                ev.user.Message(message=message),
                surface=records.Replace(start_seq=first, end_seq=last),
                sources=tuple(sorted(hidden)),
            )
        self.session.append(
            ev.compaction.End(
                compaction_id=key, turn=self.turn, tokens_before=101_000, tokens_after=9_200
            )
        )

    def end(self, reason: records.TurnEndReason | None = None) -> None:
        """Step and turn end."""
        self.session.append(ev.step.End(turn=self.turn, step=self.step))
        ended = records.CompletedTurnEnd() if reason is None else reason
        self.session.append(ev.turn.End(turn=self.turn, reason=ended))
