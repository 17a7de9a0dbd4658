"""The life of one agent: what it has acquired, and the one way in which all of it is given back.

What comes in: resources, in the order of their acquisition, and the wish to end. What goes out: one
teardown, run once, joined by everyone who asks, each of its stages run even if one before it
failed. A creation that fails half-way takes the same road with what it had.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from dsh.errors import AgentClosed, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.agent import Entry
    from dsh.hooks import live
    from dsh.kernel import CoreContext
    from dsh.loop.agent import LoopAgent
    from dsh.loop.driver import Activity, Host
    from dsh.seams.persistence import SessionPersistence, WriteHandle
    from dsh.session import Session

__all__ = ["Life", "raise_collected"]


class Life:
    """One agent's, from before anything of it exists until nothing of it is left."""

    def __init__(self, session_id: str, parent: live.Agent | None, host: Host) -> None:
        self.session_id = session_id
        self.parent = parent
        self._host = host
        self.making: trio.CancelScope | None = trio.CancelScope()
        self.reason: str | None = None
        self.done = trio.Event()
        self.failures: list[Exception] = []
        self._started = False
        # Acquired one by one:
        self.store: SessionPersistence | None = None  # set when a failed creation must be removed
        self.write: WriteHandle | None = None
        self.session: Session | None = None
        self.ctx: CoreContext | None = None
        self.agent: LoopAgent | None = None
        self.setup: Activity | None = None
        self.detach_session: Callable[[], None] | None = None
        self.entry: Entry | None = None
        self.children: Callable[[], tuple[Life, ...]] = tuple
        self.forget: Callable[[], None] = _nothing

    @property
    def ending(self) -> bool:
        """Whether somebody asked for the end."""
        return self.reason is not None

    def check(self) -> None:
        """Raise AgentClosed if the end was asked for while the agent was being made."""
        if self.reason is not None:
            raise AgentClosed(f"agent {self.session_id!r} was not published: {self.reason}")

    def request_end(self, reason: str) -> None:
        """Ask for the end; the first reason stays. Never waits."""
        if self.reason is None:
            self.reason = reason
        if self.making is not None:
            self.making.cancel()  # whoever makes it rolls it back
        elif not self._started:
            self._started = True
            if self.agent is not None:
                self.agent.stop()
            self._host.start(self._teardown)

    async def end(self, reason: str) -> None:
        """Ask for the end and wait for it; raise what failed. Cancelled: it goes on."""
        self.request_end(reason)
        await self.done.wait()
        raise_collected(f"closing agent {self.session_id!r} failed", self.failures)

    async def aclose(self) -> None:
        """The handle's: `end` without more to say."""
        await self.end("its handle was closed")

    async def roll_back(self) -> None:
        """Give back what a failed making had acquired. Shielded; failures are kept, not raised."""
        self.making = None
        self._started = True
        await self._teardown()

    async def _teardown(self) -> None:
        onward: BaseException | None = None
        with trio.CancelScope(shield=True):
            for stage in (
                self._stop,
                self._end_children,
                self._settle,
                self._last_words,
                self._close_log,
                self._leave_no_trace,
                self._unwind,
                self._leave_agents,
                self._leave_sessions,
            ):
                try:
                    await stage()
                except Exception as error:  # noqa: BLE001 - the other stages are due all the same
                    self.failures.append(error)
                except BaseException as error:  # noqa: BLE001 - Ctrl-C; raised on below
                    onward = error
        self.forget()
        self.done.set()
        if onward is not None:
            raise onward

    async def _stop(self) -> None:
        agent, setup, self.setup = self.agent, self.setup, None
        if agent is not None:
            agent.stop()
            if setup is not None:
                agent.driver.release(setup)

    async def _end_children(self) -> None:
        children = self.children()
        for child in children:
            child.request_end(f"its parent {self.session_id!r} is closing")
        for child in children:
            await child.done.wait()
            self.failures += child.failures

    async def _settle(self) -> None:
        if self.agent is not None:
            await self.agent.driver.settled()

    async def _last_words(self) -> None:
        if self.entry is not None and self.agent is not None and self.ctx is not None:
            await self.ctx.drain(self.agent)

    async def _close_log(self) -> None:
        try:
            if self.session is not None:
                await self.session.writer.aclose()
        finally:
            if self.write is not None:
                await self.write.aclose()

    async def _leave_no_trace(self) -> None:
        """Of a failed creation; also of what was logged while it was announced."""
        if self.store is not None and self.write is not None and self.write.next_seq > 0:
            with suppress(SessionNotFound):
                await self.store.remove(self.session_id)

    async def _unwind(self) -> None:
        if self.ctx is not None:
            await self.ctx.close()

    async def _leave_agents(self) -> None:
        if self.entry is not None:
            self.entry.detach()

    async def _leave_sessions(self) -> None:
        if self.detach_session is not None:
            self.detach_session()
        if self.agent is not None:
            self.agent.gone()


def _nothing() -> None:
    """The end of a life that no factory keeps."""


def raise_collected(text: str, failures: list[Exception]) -> None:
    """Raise the one failure itself, several as a group, none not at all."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(text, failures)
