"""The driver: which activity an agent runs, who woke it, and how it comes to rest.

What comes in: deliveries, wakes, cancels, maintenance jobs. What goes out: turns, one after the
other, in one task per activity; status notices; a moment of idleness that waiters can trust. What
happens inside a turn is `turn`'s business; which moves are legal is `machine`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from typing_extensions import TypeVarTuple

from dsh import catalog as ev
from dsh.agent import ActivitySignal
from dsh.catalog import records
from dsh.errors import AgentBusy, AgentClosed
from dsh.hooks import frozen
from dsh.loop.machine import Move, Phase, after_close
from dsh.loop.turn import Opening, Turn

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Awaitable, Callable

    from dsh.loop.kit import Kit

__all__ = ["Activity", "Driver", "Host"]

Ts = TypeVarTuple("Ts")


@frozen(eq=False)
class Host:
    """Where a loop's tasks live, and whether new work is taken there.

    Tasks start from `context`, not from that of whoever woke them: a listener's place in a running
    dispatch must not be inherited by a task that outlives it.
    """

    nursery: trio.Nursery
    context: contextvars.Context
    accepting: Callable[[], bool]

    def start(self, fn: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Start a task."""
        self.context.copy().run(lambda: self.nursery.start_soon(fn, *args))


class Activity:
    """One driver run (several turns may share it) or one maintenance job.

    `signal` is that of its current turn.
    """

    __slots__ = ("done", "signal")

    def __init__(self) -> None:
        self.signal = ActivitySignal()
        self.done = trio.Event()


class Driver:
    """The one of its agent. Everything but the tasks it starts is synchronous."""

    def __init__(self, kit: Kit, host: Host) -> None:
        self._kit: Final = kit
        self._host: Final = host
        self._activity: Activity | None = None
        self._announcing_idle = False
        self._wake_due = False
        self._closing = False

    @property
    def signal(self) -> ActivitySignal | None:
        """The signal of the running activity, or None."""
        return None if self._activity is None else self._activity.signal

    @property
    def cancelled(self) -> bool:
        """Whether the activity was cancelled and is not at rest yet."""
        return self._activity is not None and self._activity.signal.cancelled

    def refuse_if_closed(self, *, wakeup: bool) -> None:
        """Raise AgentClosed when nothing can be delivered, or nobody would run it."""
        if self._kit.session.closed or (wakeup and not self._host.accepting()):
            raise AgentClosed(
                f"agent {self._kit.agent.id!r} takes no more messages: it, or the loop that runs "
                f"it, was closed; resume session {self._kit.session.id!r} to go on"
            )

    # -- deliveries ------------------------------------------------------------------------

    def deliver(
        self, message: records.UserMessage, target: records.InboxTarget, *, wakeup: bool, late: bool
    ) -> None:
        """Insert, notify, and wake if asked.

        `late`: when it was sent, the activity had been cancelled and was not at rest. Such a
        waking message cannot join what was cancelled; it becomes a prompt of its own, and is run
        at convergence. That is decided before the insertion, so that a listener of the insertion
        which cancels cannot change it.
        """
        activity = self._activity
        late = late and wakeup and activity is not None
        maintained = self._kit.course.phase is Phase.MAINTENANCE
        self._kit.inbox.append("next-turn" if late else target, message)
        if late:
            self._latch()
        elif wakeup and activity is not None and activity is self._activity and not maintained:
            activity.signal.woken = True
        elif wakeup:
            self.wake()

    def cancel(self, cause: records.CancelCause, *, keep_inbox: bool) -> None:
        """Drop what would wake the agent again, unless the inbox is kept; the first cause wins."""
        if not keep_inbox:
            self.drop_latch()
        if self._activity is not None:
            self._activity.signal.cancel(cause)

    def drop_latch(self) -> None:
        """Forget that something asked to be run at convergence."""
        self._wake_due = False
        if self._activity is not None:
            self._activity.signal.latched = False

    def wake(self) -> None:
        """Run what is pending: at once when idle, otherwise the activity looks for itself."""
        if self._closing:
            return
        if self._announcing_idle:
            self._wake_due = True
        elif self._activity is None:
            self._start()
        elif self._kit.course.phase is Phase.MAINTENANCE or self._activity.signal.cancelled:
            self._latch()
        else:
            self._activity.signal.woken = True

    def _latch(self) -> None:
        activity = self._activity
        if activity is not None and not isinstance(activity.signal.cause, records.DisposedCause):
            activity.signal.latched = True

    # -- activities ------------------------------------------------------------------------

    def _start(self) -> None:
        """Reserve, announce, open the turn and claim; only the rest of it is a task."""
        self._kit.course.move(Move.WAKE)
        activity = self._activity = Activity()
        self._kit.notices.status("running")
        opening = self._open_turn(activity)
        if opening is None:
            self._converge(activity, announce=True)
        else:
            self._host.start(self._run, activity, opening)

    def _open_turn(self, activity: Activity) -> Opening | None:
        """`turn/start` and the claim, synchronously; None: there is no turn, nothing is logged."""
        kit = self._kit
        if activity.signal.cancelled:
            return None
        try:
            kit.course.log(Move.OPEN_TURN, lambda at: ev.turn.Start(turn=at.turn))
        except Exception as error:  # noqa: BLE001 - a veto must not escape the send that woke us
            kit.notices.error(kit.course.turn + 1, 0, error)
            return None
        kit.asks.began()
        activity.signal.woken = False
        if activity.signal.cause is not None:  # a listener of turn/start: what it keeps stays
            return Opening((), None)
        try:
            claimed = kit.inbox.claim(prompt=True, turn=kit.course.turn)
        except Exception as error:  # noqa: BLE001 - the turn is open; its task closes it as failed
            return Opening((), error)
        kit.asks.claimed(claimed, kit.course.turn)
        return Opening(claimed, None)

    async def _run(self, activity: Activity, opening: Opening) -> None:
        """One driver task.

        Shielded: a shutdown reaches it as a cause of its signal, never as an exception in the
        middle of a commit.
        """
        kit = self._kit
        with trio.CancelScope(shield=True):
            try:
                with kit.services.agents.initiators.boundary(kit.agent):
                    following: Opening | None = opening
                    while following is not None:
                        outcome = await Turn(kit, activity.signal, following).run()
                        following = self._next_turn(activity, normal=outcome.normal)
            finally:
                self._converge(activity, announce=True)

    def _next_turn(self, activity: Activity, *, normal: bool) -> Opening | None:
        lists = self._kit.inbox.lists
        choice = after_close(
            normal=normal,
            pending=bool(lists.next_turn) or (activity.signal.woken and bool(lists.next_step)),
            cancelled=activity.signal.cancelled,
        )
        self._kit.course.move(choice)
        if choice is Move.PARK:
            return None
        activity.signal = ActivitySignal()
        return self._open_turn(activity)

    def _converge(self, activity: Activity, *, announce: bool) -> None:
        """Come to rest; replay a latched wake; only then tell the waiters of this activity.

        So a waiter finds the activity that replaced this one, if there is one.
        """
        match self._kit.course.phase:
            case Phase.RESERVED:
                self._kit.course.move(Move.WITHDRAW)
            case Phase.MAINTENANCE:
                self._kit.course.move(Move.SETTLE)
            case Phase.CLOSED:
                self._kit.course.move(Move.PARK)
            case _:
                pass
        self._activity = None
        self._wake_due = activity.signal.latched
        try:
            if announce:
                self._announce_idle()
            due, self._wake_due = self._wake_due, False
            if due and not self._closing and not self._kit.inbox.empty:
                self._start()
        finally:
            activity.done.set()

    def _announce_idle(self) -> None:
        self._announcing_idle = True
        try:
            self._kit.notices.status("idle")
        finally:
            self._announcing_idle = False

    # -- rest ------------------------------------------------------------------------------

    async def settled(self) -> None:
        """Return when no activity runs, nor one that replaced it."""
        while (activity := self._activity) is not None:
            await activity.done.wait()

    def reserve(self) -> Activity:
        """Begin maintenance: the agent is not idle inside, and publicly is. Raises AgentBusy."""
        if self._activity is not None or self._announcing_idle or self._closing:
            raise AgentBusy(
                f"agent {self._kit.agent.id!r} is "
                f"{'closing' if self._closing else self._kit.course.phase.value}; maintenance "
                "needs an idle one: `await agent.when_idle()` first"
            )
        self._kit.course.move(Move.MAINTAIN)
        self._activity = Activity()
        return self._activity

    def release(self, activity: Activity) -> None:
        """End maintenance; what woke the agent meanwhile is run, if it is still pending."""
        self._converge(activity, announce=False)

    def close(self) -> None:
        """Start nothing any more; whatever arrives from now on stays parked."""
        self._closing = True
