"""The service `sessions` in a running kernel: identity, publication, scopes, pairs of notices."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import pytest
import trio
from attrs import evolve, frozen

from dsh import catalog as ev
from dsh.catalog import records
from dsh.errors import (
    InvalidAppend,
    ReentrantAppend,
    SessionClosed,
    SessionError,
    SessionExists,
    SessionUnreadable,
    StorageFailed,
)
from dsh.hooks import Logged, Scope
from dsh.kernel import Context, CoreContext, Kernel, core_of, open_kernel, plugin, required
from dsh.session import SESSIONS, Projection, Session, Sessions, sessions_plugin
from dsh.testing import LogWriting, MemoryStore
from dsh.testing.logs import header
from dsh.wire import StoredEvent, UnknownEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

Seed: TypeAlias = "tuple[StoredEvent, ...]"


@frozen(slots=True)
class Deps:
    sessions: Sessions = required(SESSIONS)


class World:
    """A kernel with the plugin `sessions` and one listening plugin."""

    def __init__(self, kernel: Kernel, ctx: CoreContext, sessions: Sessions) -> None:
        self.kernel = kernel
        self.ctx = ctx
        self.sessions = sessions

    def enter(self, session_id: str = "s", scope: Scope | None = None) -> Session:
        session = self.sessions.prepare(header(session_id))
        self.sessions.enter(session, scope)
        return session


@asynccontextmanager
async def world() -> AsyncGenerator[World, None]:
    made: list[World] = []

    @plugin(name="watcher", deps=Deps)
    async def watcher(ctx: Context, _config: None, deps: Deps) -> None:
        made.append(World(kernel, core_of(ctx), deps.sessions))

    async with open_kernel() as kernel:
        await kernel.mount(sessions_plugin).ready()
        await kernel.mount(watcher).ready()
        yield made[0]


@pytest.mark.holds("SS47", "SS50", "A2")
async def test_a_private_session_is_unknown_and_silent_until_it_is_entered() -> None:
    async with world() as w:
        heard: list[str] = []
        w.ctx.on(ev.session.EVENT)(lambda payload: heard.append(payload.event.data.TOKEN.name))
        w.ctx.on(ev.session.CREATED)(lambda payload: heard.append(f"created {payload.session.id}"))
        session = w.sessions.prepare(header())
        LogWriting(session).turn_start()
        assert w.sessions.get("s") is None
        assert heard == []
        w.sessions.enter(session, None)
        assert w.sessions.get("s") is session
        assert w.sessions.live() == (session,)
        w.sessions.announce(session)
        w.sessions.announce(session)
        session.append(ev.step.Start(turn=1, step=1))
        assert heard == ["created s", "step/start"]


@pytest.mark.holds("SS48", "SS49", "SS51")
async def test_an_id_is_live_once_and_a_session_used_once() -> None:
    async with world() as w:
        session, rival = w.sessions.prepare(header()), w.sessions.prepare(header())
        detach = w.sessions.enter(session, None)
        with pytest.raises(SessionExists, match="'s'"):
            w.sessions.enter(rival, None)
        assert w.sessions.get("s") is session
        detach()
        with pytest.raises(SessionExists):
            w.sessions.enter(session, None)
        w.sessions.enter(rival, None)
        detach()
        assert w.sessions.get("s") is rival, "a stale detach removes nobody else"


@pytest.mark.holds("SC01", "SC02", "SC12")
async def test_events_are_heard_in_their_scope_alone() -> None:
    async with world() as w:
        one, two = Scope("one"), Scope("two")
        heard: list[str] = []

        def note(who: str) -> Callable[[Logged[ev.turn.Start]], None]:
            return lambda event: heard.append(f"{who} {event.session.id}")

        for scope in (one, two):
            await w.ctx.child(scope.label, scope=scope)
        w.ctx.scoped(one).on(ev.turn.START)(note("one"))
        w.ctx.scoped(two).on(ev.turn.START)(note("two"))
        w.ctx.on(ev.turn.START)(note("all"))
        for session_id, owner in (("a", one), ("b", two), ("c", None)):
            LogWriting(w.enter(session_id, owner)).turn_start()
        assert heard == ["one a", "all a", "two b", "all b", "all c"]


@pytest.mark.holds("SS63", "B16")
async def test_a_listener_that_raises_or_appends_is_contained_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w:
        session = w.enter()
        heard: list[int] = []

        @w.ctx.on(ev.turn.START)
        def bad(_event: Logged[ev.turn.Start]) -> None:
            LogWriting(session).step_start()

        w.ctx.on(ev.turn.START)(lambda event: heard.append(event.seq))
        with caplog.at_level(logging.WARNING):
            LogWriting(session).turn_start()
        assert heard == [0]
        assert session.next_seq == 1
        assert any(
            entry.name == "dsh.plugin.watcher"
            and entry.exc_info is not None
            and isinstance(entry.exc_info[1], ReentrantAppend)
            for entry in caplog.records
        )


@pytest.mark.holds("SS62", "SC03")
async def test_a_veto_of_creation_is_raised_and_paired_with_disposal() -> None:
    async with world() as w:
        heard: list[str] = []
        scope = Scope("agent")
        await w.ctx.child("agent", scope=scope)

        def veto(_payload: ev.session.Created) -> None:
            raise ValueError("not this one")

        w.ctx.on(ev.session.CREATED)(veto)
        w.ctx.scoped(scope).on(ev.session.DISPOSED)(lambda p: heard.append(p.session.id))
        session = w.sessions.prepare(header())
        detach = w.sessions.enter(session, scope)
        with pytest.raises(ValueError, match="not this one"):
            w.sessions.announce(session)
        detach()
        detach()
        assert heard == ["s"]
        assert w.sessions.get("s") is None


async def test_a_session_that_was_never_announced_is_not_disposed_of() -> None:
    async with world() as w:
        heard: list[str] = []
        w.ctx.on(ev.session.DISPOSED)(lambda p: heard.append(p.session.id))
        w.sessions.enter(w.sessions.prepare(header()), None)()
        assert heard == []


@pytest.mark.holds("SS53", "A6")
async def test_a_detach_during_creation_waits_for_the_other_listeners() -> None:
    async with world() as w:
        heard: list[str] = []
        session = w.sessions.prepare(header())
        detach = w.sessions.enter(session, None)
        w.ctx.on(ev.session.CREATED)(lambda _p: detach())
        w.ctx.on(ev.session.CREATED)(
            lambda p: heard.append(f"created {w.sessions.get(p.session.id) is session}")
        )
        w.ctx.on(ev.session.DISPOSED)(lambda _p: heard.append("disposed"))
        w.sessions.announce(session)
        assert heard == ["created True", "disposed"]


@pytest.mark.holds("SS68")
async def test_a_detach_during_an_append_waits_for_the_publication() -> None:
    async with world() as w:
        heard: list[str] = []
        session = w.sessions.prepare(header())
        detach = w.sessions.enter(session, None)
        w.sessions.announce(session)
        w.ctx.on(ev.turn.START)(lambda _event: detach())
        w.ctx.on(ev.turn.START)(lambda event: heard.append(f"heard {event.seq}"))
        w.ctx.on(ev.session.DISPOSED)(lambda _p: heard.append("disposed"))
        LogWriting(session).turn_start()
        assert heard == ["heard 0", "disposed"]
        with pytest.raises(SessionClosed):
            LogWriting(session).turn_start()


@pytest.mark.holds("SS70", "SS71")
async def test_failing_disposed_listeners_are_contained() -> None:
    async with world() as w:
        heard: list[str] = []

        def fail(_payload: ev.session.Disposed) -> None:
            raise RuntimeError("no")

        w.ctx.on(ev.session.DISPOSED)(fail)
        w.ctx.on(ev.session.DISPOSED)(lambda p: heard.append(p.session.id))
        session = w.sessions.prepare(header())
        detach = w.sessions.enter(session, None)
        w.sessions.announce(session)
        detach()
        assert heard == ["s"]


@pytest.mark.holds("SS61")
async def test_unloading_the_plugin_detaches_its_sessions() -> None:
    async with world() as w:
        session = w.enter()
    assert session.closed
    with pytest.raises(SessionClosed):
        LogWriting(session).turn_start()


class TestFlush:
    @pytest.mark.holds("SC04", "SC05")
    async def test_without_listeners_it_syncs_and_returns(self) -> None:
        async with world() as w:
            store = MemoryStore()
            session = w.sessions.prepare(header())
            handle = await store.create(session.header)
            session.writer.attach(handle)
            w.sessions.enter(session, None)
            LogWriting(session).turn_start()
            assert store.syncs == 0
            await session.flush()
            assert (store.writes, store.syncs) == (1, 1)
            store.failing = OSError(28, "No space left on device")
            LogWriting(session).turn_start()
            with pytest.raises(StorageFailed):
                await session.flush()

    @pytest.mark.holds("SC06", "SC09", "SC07")
    async def test_every_listener_is_waited_for_and_failures_are_raised(self) -> None:
        async with world() as w:
            session = w.enter()
            done: list[str] = []

            async def slow(_payload: ev.session.Flush) -> None:
                await trio.lowlevel.checkpoint()
                done.append("slow")

            async def failing(_payload: ev.session.Flush) -> None:
                await trio.lowlevel.checkpoint()
                raise RuntimeError("telemetry is down")

            w.ctx.on(ev.session.FLUSH)(slow)
            await session.flush()
            w.ctx.on(ev.session.FLUSH)(failing)
            with pytest.raises(ExceptionGroup) as raised:
                await session.flush()
            assert raised.group_contains(RuntimeError, match="telemetry is down")
            assert done == ["slow", "slow"]

    @pytest.mark.holds("SC10", "SC11")
    async def test_a_session_that_is_not_live_cannot_be_flushed(self) -> None:
        async with world() as w:
            session = w.sessions.prepare(header())
            with pytest.raises(SessionError, match="not live"):
                await session.flush()
            w.sessions.enter(session, None)()
            with pytest.raises(SessionError, match="not live"):
                await session.flush()


SPOILS: list[Callable[[Seed], Seed]] = [
    lambda seed: seed[1:],
    lambda seed: (*seed[:2], *seed[3:]),
    lambda seed: (seed[0], seed[0]),
    lambda seed: (seed[1], seed[0]),
    lambda seed: (*seed[:2], evolve(seed[2], surface_op=None)),
    lambda seed: (evolve(seed[0], surface_op=records.Append()),),
    lambda seed: (*seed[:2], evolve(seed[2], source_event_seqs=(2,))),
    lambda seed: (evolve(seed[0], type="turn/end"),),
    lambda seed: (evolve(seed[0], data=ev.turn.Start(turn=True)),),
    lambda seed: (evolve(seed[0], data=ev.turn.Start(turn=2**60)),),
    lambda seed: (evolve(seed[0], time=-1),),
    lambda seed: (evolve(seed[0], time=True),),
    lambda seed: (evolve(seed[0], v=0),),
    lambda seed: (evolve(seed[0], owner=""), evolve(seed[0], seq=7)),
    lambda seed: (evolve(seed[0], seq=False),),
]


class TestSeeds:
    def seed(self) -> tuple[StoredEvent, ...]:
        log = LogWriting()
        log.whole_turn("hi", "a", "b", calls=("c1",))
        return tuple(log.session.events)

    @pytest.mark.holds("SS07", "SS23", "I7")
    async def test_a_seed_is_taken_as_it_is_and_marked(self) -> None:
        async with world() as w:
            seed = self.seed()
            session = w.sessions.prepare(header("t"), seed=seed)
            assert tuple(session.events)[:-1] == seed
            assert session.events[-1].data == ev.session.EndSeed()
            assert session.first_live_seq == len(seed)
            assert session.writer.pending == len(seed) + 1
            again = w.sessions.prepare(header("u"), seed=session.events, stored=session.next_seq)
            assert again.next_seq == session.next_seq, "the mark is not repeated"
            assert again.writer.pending == 0

    @pytest.mark.holds("SS08", "I7")
    async def test_an_empty_seed_is_marked_and_none_is_not(self) -> None:
        async with world() as w:
            assert w.sessions.prepare(header(), seed=()).next_seq == 1
            assert w.sessions.prepare(header()).next_seq == 0

    async def test_the_mark_says_that_a_parent_was_there(self) -> None:
        async with world() as w:
            child = evolve(header("child"), parent_session="s", seed_length=7)
            session = w.sessions.prepare(child, seed=self.seed())
            assert session.events[-1].data == ev.session.EndSeed(inherited=True)

    @pytest.mark.holds("A19", "SS20", "SS21", "SS22", "SS26", "SS27", "SS46", "SF08")
    @pytest.mark.parametrize("spoil", SPOILS)
    async def test_a_bad_seed_publishes_nothing(self, spoil: Callable[[Seed], Seed]) -> None:
        async with world() as w:
            with pytest.raises(InvalidAppend):
                w.sessions.prepare(header(), seed=spoil(self.seed()))
            assert w.sessions.live() == ()

    async def test_a_seed_that_needs_an_unknown_event_is_refused(self) -> None:
        async with world() as w:
            unknown = StoredEvent("acme.x/y", 0, 1, UnknownEvent(b"{}", "unknown type"))
            with pytest.raises(SessionUnreadable, match=r"acme\.x/y"):
                w.sessions.prepare(header(), seed=[unknown])
            ignored = evolve(unknown, ignorable=True)
            assert w.sessions.prepare(header(), seed=[ignored]).events[0] is ignored

    @pytest.mark.holds("A19", "SS43", "SS55", "SS56", "SS57", "SS59", "SS58", "SS60")
    async def test_headers_are_checked(self) -> None:
        async with world() as w:
            good = evolve(header(), parent_session="p", origin="subagent", delegation_depth=1)
            assert w.sessions.prepare(good).header is good
            for bad in (
                evolve(good, cwd="work"),
                evolve(good, version=2),
                evolve(good, id=""),
                evolve(good, created_at=-1),
                evolve(good, delegation_depth=-1),
                evolve(good, seed_length=-1),
                evolve(good, cwd="/\ud800"),
            ):
                with pytest.raises(InvalidAppend, match="header"):
                    w.sessions.prepare(bad)


async def test_a_plugins_projection_follows_every_session_and_goes_with_it() -> None:
    unit = Projection[int](
        key="turns", init=lambda: 0, apply=lambda n, _event: n + 1, events=(ev.turn.START,)
    )
    async with world() as w:
        handle = w.sessions.project(w.ctx, unit)
        session = w.enter()
        LogWriting(session).turn_start()
        assert session.projection(unit) == 1
        await handle.aclose()
        with pytest.raises(Exception, match="not registered"):
            session.projection(unit)
