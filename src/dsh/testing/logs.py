"""Session logs for tests, made by ordinary appends.

What comes in: what was said and called. What goes out: a private session whose log is lawful, or
one that stops in the middle, as a crash leaves it. Nothing here needs a kernel, a disk or a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh import catalog as ev
from dsh.catalog import records
from dsh.session import Session
from dsh.wire import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.session import ProjectionSet

__all__ = ["LogWriting", "header", "said"]


def header(session_id: str = "s", *, cwd: str | None = "/work") -> records.SessionHeader:
    """The header of a new session."""
    return records.SessionHeader(version=FORMAT_VERSION, id=session_id, created_at=1, cwd=cwd)


def said(text: str, *, message_id: str) -> records.UserMessage:
    """A prompt of a person."""
    return records.UserMessage(
        id=message_id, content=(records.TextBlock(text=text),), source=records.UserSource()
    )


class LogWriting:
    """Writes turns into one session, an event at a time, as the loop would.

    Every method appends what its name says and returns the seq of its event. `session` may be any
    session; without one, a private session is made whose clock ticks one millisecond per append.
    """

    def __init__(
        self,
        session: Session | None = None,
        *,
        session_id: str = "s",
        now_ms: Callable[[], int] | None = None,
        units: ProjectionSet | None = None,
    ) -> None:
        self._ticks = 1000
        self.session: Final = session or Session(
            header(session_id), now_ms=self._tick if now_ms is None else now_ms, units=units
        )
        self.turn = 0
        self.step = 0

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def turn_start(self) -> int:
        """A turn begins."""
        self.turn += 1
        self.step = 0
        return self.session.append(ev.turn.Start(turn=self.turn)).seq

    def step_start(self) -> int:
        """A step begins."""
        self.step += 1
        return self.session.append(ev.step.Start(turn=self.turn, step=self.step)).seq

    def system(self, text: str) -> int:
        """A version of the system prompt."""
        message = records.SystemMessage(
            id=f"p{self.session.next_seq}",
            content=(records.TextBlock(text=text),),
            source=records.SystemPromptSource(),
        )
        return self.session.append(
            ev.system.Message(turn=self.turn, step=self.step, message=message),
            surface=records.Append(),
        ).seq

    def user(self, text: str = "hi") -> int:
        """A prompt enters the history."""
        message = said(text, message_id=f"u{self.session.next_seq}")
        return self.session.append(ev.user.Message(message=message), surface=records.Append()).seq

    def chunks(self, *texts: str) -> tuple[int, ...]:
        """One text delta each, of block 0."""
        return tuple(
            self.session.append(
                ev.assistant.Chunk(
                    turn=self.turn,
                    step=self.step,
                    chunk=records.TextDeltaChunk(index=0, text=text),
                )
            ).seq
            for text in texts
        )

    def reply(
        self,
        text: str = "hello",
        *,
        calls: Sequence[str] = (),
        sources: Sequence[int] | None = None,
    ) -> int:
        """The assembled reply, with one tool call for each id in `calls`."""
        blocks: list[records.ContentBlock] = [records.TextBlock(text=text)] if text else []
        blocks += [records.ToolCallBlock(id=call, name="bash", arguments="{}") for call in calls]
        message = records.AssistantMessage(
            id=f"a{self.session.next_seq}",
            content=tuple(blocks),
            source=records.ModelSource(provider="scripted", model="scripted"),
        )
        return self.session.append(
            ev.assistant.Message(turn=self.turn, step=self.step, message=message),
            surface=records.Append(),
            sources=sources,
        ).seq

    def call(self, call_id: str) -> int:
        """A tool call is about to run."""
        return self.session.append(
            ev.tool.Call(
                turn=self.turn, step=self.step, call_id=call_id, name="bash", arguments="{}"
            )
        ).seq

    def result(
        self, call_id: str, text: str = "done", *, sources: Sequence[int] | None = None
    ) -> int:
        """A call has its result."""
        return self.session.append(
            ev.tool.Result(turn=self.turn, step=self.step, message=result_message(call_id, text)),
            surface=records.Append(),
            sources=sources,
        ).seq

    def step_end(self) -> int:
        """The step ends."""
        return self.session.append(ev.step.End(turn=self.turn, step=self.step)).seq

    def turn_end(self, reason: records.TurnEndReason | None = None) -> int:
        """The turn ends; completed, if no other reason is given."""
        ended = records.CompletedTurnEnd() if reason is None else reason
        return self.session.append(ev.turn.End(turn=self.turn, reason=ended)).seq

    def whole_turn(
        self, prompt: str = "hi", *words: str, calls: Sequence[str] = (), result: str = "done"
    ) -> None:
        """One turn of one step: prompt, streamed words, reply, each call with its result."""
        self.turn_start()
        self.step_start()
        self.user(prompt)
        seqs = self.chunks(*words)
        self.reply("".join(words) or "hello", calls=calls, sources=seqs or None)
        for call_id in calls:
            self.result(call_id, result, sources=(self.call(call_id),))
        self.step_end()
        self.turn_end()


def result_message(call_id: str, text: str) -> records.ToolResultMessage:
    """The message of a successful call."""
    return records.ToolResultMessage(
        id=f"r-{call_id}",
        content=(records.TextBlock(text=text),),
        source=records.ToolSource(call_id=call_id),
        tool_call_id=call_id,
    )
