"""The compaction seam: shorten a conversation on request.

What comes in: an idle agent, and if wanted the range to shorten. What goes out: what the shortening
came to, or why it was not done. Automatic compaction needs no seam: it is two listeners of the
loop. The log keeps everything; only what the model is shown changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dsh.errors import HarnessError
from dsh.hooks import frozen
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    from dsh.hooks.live import Agent

__all__ = ["COMPACTION", "Compacted", "CompactionEngine", "CompactionFailed", "FailureKind"]

#: busy: the agent works, or a compaction of its session is open; cancelled; changed: the range
#: changed while the summary was written, or is none; summary: the model gave none that could be
#: used; commit: the log refused it; persistence: it could not be made durable.
FailureKind: TypeAlias = Literal["busy", "cancelled", "changed", "summary", "commit", "persistence"]


class CompactionFailed(HarnessError):
    """A compaction that was not done, or could not be made durable. `kind` says which it was."""

    default_code = "COMPACTION"

    def __init__(self, kind: FailureKind, message: str, *, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.kind: FailureKind = kind


@frozen(kw_only=True, slots=True)
class Compacted:
    """One finished compaction. Token counts are estimates of the whole next request.

    `summary_seq` is the message that stands for the `shadowed` nodes; `prefix_tokens` stand
    unchanged before it.
    """

    compaction_id: str
    summary_seq: int
    shadowed: tuple[int, ...]
    tokens_before: int
    tokens_after: int
    prefix_tokens: int


class CompactionEngine(ABC):
    """Who provides this shortens conversations on request, whatever their size."""

    @abstractmethod
    async def compact_now(self, agent: Agent, instructions: str | None = None) -> Compacted | None:
        """Summarise everything but the newest messages of an idle agent.

        `instructions` are told to the model that writes the summary, after what it is asked for
        anyway; they are logged with the compaction's start. Blank text is none.
        None: there is nothing worth it, and nothing was logged. Raises CompactionFailed. What is
        logged is durable when this returns. `agent.cancel` ends it as CompactionFailed `cancelled`;
        cancelling the caller does, too. Then the compaction is closed as failed, and the
        conversation is as it was.
        """

    @abstractmethod
    async def compact_region(self, agent: Agent, start_seq: int, end_seq: int) -> Compacted:
        """Summarise exactly these nodes of an idle agent's surface, both included.

        Raises CompactionFailed `changed` when they are no nodes in this order, hold a system
        prompt, or would part a tool call from its result; otherwise as `compact_now`.
        """


COMPACTION: Final[ServiceKey[CompactionEngine]] = ServiceKey("compaction")
