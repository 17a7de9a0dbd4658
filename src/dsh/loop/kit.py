"""What every part of one agent's loop works with: its services, its session, its scoped context.

What comes in: services of the rooms below, chosen once by the factory. What goes out: one frozen
bundle, and the notices an agent emits with their `agent` field filled in. No behaviour of a turn
is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh import catalog as ev
from dsh.agent import Agents, Inbox, InboxNotices
from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.agent import TurnProgram
    from dsh.catalog import records
    from dsh.hooks import live
    from dsh.kernel import CoreContext
    from dsh.llm import LlmRuntime
    from dsh.loop.admission import Admission
    from dsh.loop.asks import Asks
    from dsh.loop.course import Course
    from dsh.prompt import SystemPrompt
    from dsh.session import Session
    from dsh.tools import ToolRuntime

__all__ = ["Frames", "Kit", "Notices", "Services"]


@frozen(kw_only=True, eq=False)
class Services:
    """The rooms below, as one loop uses them, and what its turns do.

    `limit` is read at the start of each tool group.
    """

    agents: Agents
    llm: LlmRuntime
    prompt: SystemPrompt
    tools: ToolRuntime
    limit: Callable[[], int]
    program: TurnProgram


class Notices:
    """What one agent tells the world. Listeners are contained by each event's own policy."""

    def __init__(self, ctx: CoreContext, agent: live.Agent) -> None:
        self._ctx = ctx
        self._agent = agent

    def inbox(self, *, discarded: Callable[[str], None]) -> InboxNotices:
        """The inbox's three notices; `discarded` also hears the id of what was withdrawn."""

        def tell_discarded(message: records.UserMessage) -> None:
            self._ctx.emit(ev.agent.InboxDiscarded(agent=self._agent, message=message))
            discarded(message.id)

        return InboxNotices(
            inserted=lambda message: self._ctx.emit(
                ev.agent.InboxInserted(agent=self._agent, message=message)
            ),
            discarded=tell_discarded,
            claimed=lambda message, turn: self._ctx.emit(
                ev.agent.InboxClaimed(agent=self._agent, message=message, turn=turn)
            ),
        )

    def status(self, status: records.AgentStatus) -> None:
        """The public status changed."""
        self._ctx.emit(ev.agent.Status(agent=self._agent, status=status))

    def error(
        self, turn: int, step: int, error: Exception, messages: Sequence[records.UserMessage] = ()
    ) -> None:
        """Something failed; `messages` had been claimed and were not admitted."""
        self._ctx.emit(
            ev.agent.Error(
                agent=self._agent, turn=turn, step=step, error=error, messages=tuple(messages)
            )
        )

    def frame(self, frame: records.AssistantStreamFrame) -> None:
        """One live frame of the running attempt."""
        self._ctx.emit(ev.agent.AssistantStream(agent=self._agent, frame=frame))


class Frames:
    """Numbers the attempts and live frames of one agent."""

    __slots__ = ("attempts", "revision")

    def __init__(self) -> None:
        self.attempts = 0
        self.revision = 0


@frozen(kw_only=True, eq=False)
class Kit:
    """One agent's own things, and the services it shares."""

    agent: live.Agent
    ctx: CoreContext
    session: Session
    inbox: Inbox
    notices: Notices
    course: Course
    admission: Admission
    asks: Asks
    frames: Frames
    services: Services
