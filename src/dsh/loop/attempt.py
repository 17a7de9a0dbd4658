"""One attempt: a request streamed to its end, its chunks in the log, its reply committed.

What comes in: an admitted request and the call it was prepared for. What goes out: the committed
reply, or the failure of the provider. A cancelled attempt keeps what the user could read; a failed
one keeps only its chunks. Live frames follow what is in the log, never lead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.agent import new_message_id
from dsh.catalog import codec, records
from dsh.hooks import frozen
from dsh.llm import Assembler
from dsh.loop.machine import Move
from dsh.loop.request import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.agent import ActivitySignal
    from dsh.hooks import live
    from dsh.llm import PreparedCall
    from dsh.loop.kit import Kit

__all__ = ["Attempt", "AttemptFailed", "Reply"]


@frozen
class Reply:
    """A committed reply: its text, the calls it asks for, whether it was cut by the output cap."""

    text: str
    calls: tuple[records.ToolCallBlock, ...]
    truncated: bool


@frozen
class AttemptFailed:
    """The provider failed. `policy` is that of the registration that served, None without one."""

    provider: str
    failure: records.LlmFailure
    policy: records.RetryPolicy | None


class Attempt:
    """One of these per dispatched request."""

    def __init__(self, kit: Kit, signal: ActivitySignal, request: live.LlmRequest) -> None:
        self._kit = kit
        self._signal = signal
        self._request = request
        self._assembler = Assembler()
        self._seqs: list[int] = []
        kit.frames.attempts += 1
        self._id = f"{kit.session.id}:{kit.frames.attempts}"

    async def run(self, call: PreparedCall) -> Reply | AttemptFailed:
        """Stream, log, commit. Raises TurnCancelled, or what a stream listener raised.

        Interruptible at every chunk; a cancel keeps the readable prefix as an interrupted reply.
        Exactly one start and one end frame are emitted, whatever happens.
        """
        kit = self._kit
        self._frame(
            lambda revision: records.StartFrame(
                attempt_id=self._id, revision=revision, turn=kit.course.turn, step=kit.course.step
            )
        )
        committed: int | None = None
        try:
            try:
                with self._signal.scope():
                    await self._consume(call)
                self._signal.raise_if_set()
            finally:
                if self._signal.cancelled:
                    committed = self._commit_prefix()
            failure = self._failure()
            if failure is not None:
                return AttemptFailed(self._request.provider, failure, call.retry_policy)
            committed, reply = self._commit()
            return reply
        finally:
            self._end(committed)

    async def _consume(self, call: PreparedCall) -> None:
        kit, signal, seqs = self._kit, self._signal, self._seqs
        turn, step = kit.course.turn, kit.course.step
        append, push, made = kit.session.append, self._assembler.push, ev.assistant.Chunk
        frames, heard, live_frame = kit.frames, kit.ctx.heard, ev.agent.ASSISTANT_STREAM
        async with call.stream(self._request) as chunks:
            async for chunk in chunks:
                if signal.cancelled:
                    return
                logged = append(made(turn=turn, step=step, chunk=chunk))
                seqs.append(logged.seq)
                push(chunk)
                frames.revision += 1
                if heard(live_frame):
                    self._chunk_frame(chunk, logged.time)

    def _chunk_frame(self, chunk: records.StreamChunk, time: int) -> None:
        kit = self._kit
        kit.notices.frame(
            records.ChunkFrame(
                attempt_id=self._id,
                revision=kit.frames.revision,
                index=len(self._seqs) - 1,
                time=time,
                chunk=chunk,
            )
        )

    def _failure(self) -> records.LlmFailure | None:
        match self._assembler.finish:
            case records.ErrorFinish(failure=failure) | records.AbortedFinish(failure=failure):
                return failure
            case _:
                return None

    def _commit(self) -> tuple[int, Reply]:
        blocks = self._assembler.blocks()
        seq = self._append(blocks, replay=self._assembler.replay_state, interrupted=False)
        self._kit.course.move(Move.ANSWER)
        return seq, Reply(
            text=text_of(blocks),
            calls=tuple(block for block in blocks if isinstance(block, records.ToolCallBlock)),
            truncated=isinstance(self._assembler.finish, records.MaxTokensFinish),
        )

    def _commit_prefix(self) -> int | None:
        """The readable part of a cancelled reply; nothing of one that the provider failed."""
        if isinstance(self._assembler.finish, records.ErrorFinish) and self._assembler.finished:
            return None
        blocks = self._assembler.interrupted_blocks()
        if not blocks:
            return None
        return self._append(blocks, replay=None, interrupted=True)

    def _append(
        self,
        blocks: tuple[records.ContentBlock, ...],
        *,
        replay: records.ReplayEnvelope | None,
        interrupted: bool,
    ) -> int:
        kit = self._kit
        logged = kit.session.append(
            ev.assistant.Message(
                turn=kit.course.turn,
                step=kit.course.step,
                message=records.AssistantMessage(
                    id=new_message_id(),
                    content=blocks,
                    source=records.ModelSource(
                        provider=self._request.provider,
                        model=self._request.model,
                        replay_state=None if replay is None else codec.encode_record(replay),
                    ),
                ),
                usage=self._assembler.usage,
                interrupted=interrupted,
            ),
            surface=records.Append(),
            sources=tuple(self._seqs),
        )
        kit.asks.said(text_of(blocks))
        return logged.seq

    def _frame(self, make: Callable[[int], records.AssistantStreamFrame]) -> None:
        frames = self._kit.frames
        frames.revision += 1
        self._kit.notices.frame(make(frames.revision))

    def _end(self, committed: int | None) -> None:
        outcome: records.AssistantStreamOutcome = records.AbortedOutcome()
        if committed is not None:
            # The token's name is the one literal that the field allows.
            name = ev.assistant.MESSAGE.name
            outcome = records.CommittedOutcome(event_type=name, seq=committed)  # type: ignore[arg-type]
        self._frame(
            lambda revision: records.EndFrame(
                attempt_id=self._id, revision=revision, index=len(self._seqs), outcome=outcome
            )
        )
