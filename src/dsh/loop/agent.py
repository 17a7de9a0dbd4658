"""The live agent: what plugins and embedders call; it holds one session, one inbox, one driver.

What comes in: messages, edits, cancels, questions, maintenance jobs. What goes out: deliveries in
the order they were asked for, and the answers that `driver` and `asks` come to. Nothing of a turn
happens here.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from typing_extensions import override

from dsh import catalog as ev
from dsh.agent import Inbox
from dsh.catalog import records
from dsh.errors import AgentError
from dsh.hooks import frozen, live
from dsh.loop.admission import Admission
from dsh.loop.asks import Asks
from dsh.loop.course import Course
from dsh.loop.driver import Activity, Driver, Host
from dsh.loop.kit import Frames, Kit, Notices, Services
from dsh.loop.machine import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from dsh.hooks import Scope
    from dsh.kernel import CoreContext
    from dsh.session import Session
    from dsh.wire import StoredEvent

__all__ = ["LoopAgent", "Making"]

T = TypeVar("T")


@frozen(kw_only=True, eq=False)
class Making:
    """What one agent is made of."""

    session: Session
    ctx: CoreContext
    scope: Scope
    services: Services
    host: Host
    options: records.AgentOptions
    parent: live.Agent | None


class LoopAgent(live.Agent):
    """One agent of this loop."""

    def __init__(self, making: Making) -> None:
        session = making.session
        self._scope: Final = making.scope
        self._options: Final = making.options
        self._parent: Final = making.parent
        self._session: Final = session
        self._thread: Final = threading.get_ident()
        self._asks: Final = Asks(session.id)
        notices = Notices(making.ctx, self)
        self._inbox: Final = Inbox(session, notices.inbox(discarded=self._discarded))
        self._course: Final = Course(session, last_turn(session.events))
        self.kit: Final = Kit(
            agent=self,
            ctx=making.ctx,
            session=session,
            inbox=self._inbox,
            notices=notices,
            course=self._course,
            admission=Admission(session),
            asks=self._asks,
            frames=Frames(),
            services=making.services,
        )
        self.driver: Final = Driver(self.kit, making.host)

    @property
    @override
    def id(self) -> str:
        return self._session.id

    @property
    @override
    def scope(self) -> Scope:
        return self._scope

    @property
    @override
    def session(self) -> Session:
        return self._session

    @property
    @override
    def options(self) -> records.AgentOptions:
        return self._options

    @property
    @override
    def parent(self) -> live.Agent | None:
        return self._parent

    @property
    @override
    def status(self) -> records.AgentStatus:
        return status_of(self._course.phase)

    @property
    @override
    def turn(self) -> int:
        return self._course.turn

    @override
    def pending(self, target: records.InboxTarget) -> tuple[records.UserMessage, ...]:
        return self._inbox.lists.of(target)

    @override
    def send(
        self, message: records.UserMessage, *, target: records.InboxTarget, wakeup: bool
    ) -> None:
        """Put a message in the inbox. Inside a publication it is queued until that has finished.

        From idle, a waking one also opens the turn and claims before this returns. Raises
        AgentClosed (nobody would run it), InboxConflict (its id is pending), InvalidAppend (it
        cannot be stored): nothing changed then. Not for other threads.
        """
        self._check_thread()
        if not _is_message(message):
            raise AgentError(
                f"agent {self.id!r} was sent {type(message).__name__}; send a UserMessage, "
                "`user_message(text)` makes one",
                code="BAD_MESSAGE",
            )
        self.driver.refuse_if_closed(wakeup=wakeup)
        deliver = partial(
            self.driver.deliver, message, target, wakeup=wakeup, late=self.driver.cancelled
        )
        self._when_published(deliver)

    @override
    def followup(self, message: records.UserMessage) -> None:
        self.send(message, target="next-turn", wakeup=True)

    @override
    def steer(self, message: records.UserMessage) -> None:
        self.send(message, target="next-step", wakeup=True)

    @override
    def inject(self, message: records.UserMessage) -> None:
        self.send(message, target="next-step", wakeup=False)

    @override
    def remove(self, message_id: str) -> bool:
        self._check_thread()
        return self._inbox.remove(message_id)

    @override
    def replace(self, message_id: str, message: records.UserMessage) -> bool:
        self._check_thread()
        return self._inbox.replace(message_id, message)

    @override
    def clear(self) -> None:
        """Take all pending messages back. Inside a publication this is queued."""
        self._check_thread()
        self._when_published(self._inbox.clear)

    @override
    def wake(self) -> None:
        """Run what is parked in the inbox, if anything is. Raises AgentClosed."""
        self._check_thread()
        self.driver.refuse_if_closed(wakeup=True)
        self._when_published(self._wake_parked)

    @override
    def cancel(self, cause: records.CancelCause, *, keep_inbox: bool = False) -> None:
        """Stop the current activity; the first cause wins. Immediate, never queued.

        Without `keep_inbox` what is pending is taken back first (inside a publication: as soon as
        that has finished). When idle, that is all.
        """
        self._check_thread()
        try:
            if not keep_inbox and not self._session.closed:
                self._when_published(self._clear_for_cancel)
        finally:
            self.driver.cancel(cause, keep_inbox=keep_inbox)

    @override
    async def when_idle(self) -> None:
        """Return when no activity remains, nor any that replaced it. What is logged is synced.

        Raises StorageFailed when it cannot be. Cancellable; nothing is lost then.
        """
        await trio.lowlevel.checkpoint()
        while True:
            await self.driver.settled()
            await self._session.writer.barrier()
            if self.driver.signal is None:
                return

    @override
    async def ask(self, message: records.UserMessage) -> live.TurnOutcome:
        """`followup`, then wait for exactly the turn that claims this message; its log is synced.

        Raises AgentError (code WITHDRAWN) when the message was taken back, AgentClosed when the
        agent ended first, StorageFailed. Cancellable: the turn goes on.
        """
        self._asks.expect(message.id)
        try:
            self.followup(message)
            outcome = await self._asks.outcome_of(message.id)
        finally:
            self._asks.forget(message.id)
        await self._session.writer.barrier()
        return outcome

    @override
    async def run_maintenance(
        self, job: Callable[[live.TurnSignal], Coroutine[object, None, T]]
    ) -> T:
        """Run `job` while idle; input waits. Raises AgentBusy when not idle, and what `job` raises.

        A cancel reaches `job` through its signal. What woke the agent meanwhile runs afterwards.
        """
        self._check_thread()
        activity = self.driver.reserve()
        try:
            with self.kit.services.agents.initiators.boundary(self):
                return await job(activity.signal)
        finally:
            self.driver.release(activity)

    def reserve(self) -> Activity:
        """Maintenance without a job, for the time before the agent is published."""
        return self.driver.reserve()

    def stop(self) -> None:
        """Accept no new activity and cancel the running one; the inbox stays as it is."""
        self.driver.close()
        self.driver.cancel(records.DisposedCause(), keep_inbox=True)

    def gone(self) -> None:
        """The agent has left; whoever still waits for a turn is told so."""
        self._asks.close()

    def _wake_parked(self) -> None:
        if not self._inbox.empty:
            self.driver.wake()

    def _clear_for_cancel(self) -> None:
        self._inbox.clear()
        self.driver.drop_latch()

    def _discarded(self, message_id: str) -> None:
        if message_id not in self._inbox.lists.ids():
            self._asks.withdrawn(message_id)

    def _when_published(self, act: Callable[[], None]) -> None:
        """Now; or, inside a publication of the session, in turn when that has finished."""
        if self._session.publishing:
            self._session.after_publication(act)
        else:
            act()

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise AgentError(
                f"agent {self.id!r} was called from another thread; use "
                "`trio.from_thread.run_sync(agent.send, …)` there",
                code="WRONG_THREAD",
            )


def _is_message(value: object) -> bool:
    """Not every author checks types."""
    return isinstance(value, records.UserMessage)


def last_turn(events: Sequence[StoredEvent]) -> int:
    """The number of the newest turn in a log; 0 for a log without one."""
    for event in reversed(events):
        if isinstance(event.data, ev.turn.Start):
            return event.data.turn
    return 0
