"""Forks: which boundaries are closed, what a child takes over, and how it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve

from dsh import catalog as ev
from dsh.agent import CreateAgent, user_message
from dsh.catalog import records
from dsh.errors import SessionError, SessionExists, SessionNotFound, SessionUnreadable
from dsh.kernel import open_kernel
from dsh.session import SESSIONS, closed_boundary, fork_log, forked, sessions_plugin, verify
from dsh.testing import OPTIONS, LogWriting, MemoryStore, open_test_house, says
from dsh.testing.logs import header, said
from dsh.wire import StoredEvent, StoredLog, UnknownEvent, encode_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh.session import Session, Sessions


def lines(events: Sequence[StoredEvent]) -> list[bytes]:
    return [encode_line(event) for event in events]


def child_of(
    log: LogWriting, boundary: int | None = None, events: Sequence[StoredEvent] | None = None
) -> StoredLog:
    """The child's log at its birth."""
    fork = forked(
        log.session.header,
        log.session.events if events is None else events,
        child_id="child",
        created_at=9,
        boundary=boundary,
    )
    return StoredLog(header=fork.header, events=fork.events(9))


def refusal(log: LogWriting, boundary: int | None) -> str:
    with pytest.raises(SessionError) as refused:
        child_of(log, boundary)
    return refused.value.code


def entered(sessions: Sessions, session_id: str = "s") -> Session:
    session = sessions.prepare(header(session_id))
    sessions.enter(session, None)
    return session


@pytest.mark.holds("I8", "SF01", "SF02", "SF10", "SF13", "SF09")
async def test_live_sessions_are_forked_by_object_or_id() -> None:
    async with open_kernel() as kernel:
        await kernel.mount(sessions_plugin).ready()
        sessions = kernel.root.require(SESSIONS)
        parent = entered(sessions)
        empty = sessions.fork("s", child_id="empty")
        assert empty.header.parent_session == "s"
        assert (empty.header.seed_length, empty.header.cwd) == (0, "/work")
        assert [event.data for event in empty.events] == [ev.session.EndSeed(inherited=True)]
        log = LogWriting(parent)
        log.whole_turn("hi", "a", calls=("c1",))
        child = sessions.fork(parent)
        assert child.id.startswith("session-")
        log.whole_turn("later")
        assert lines(child.events[:-1]) == lines(parent.events)[: len(child.events) - 1]
        assert child.derive_messages() == parent.derive_messages()[:3]
        assert not child.live
        with pytest.raises(SessionExists, match="'s' is live"):
            sessions.fork("nowhere", child_id="s")
        with pytest.raises(SessionNotFound, match="'nowhere' is live; live are: s"):
            sessions.fork("nowhere", child_id="new")
        sessions.detach_all()
        with pytest.raises(SessionError) as refused:
            sessions.fork(parent, child_id="new")
        assert refused.value.code == "SESSION_NOT_LIVE"
        with pytest.raises(SessionError):
            sessions.fork(child, child_id="new")


@pytest.mark.holds("SF02", "SF03")
def test_the_newest_closed_boundary_is_the_default() -> None:
    log = LogWriting()
    assert closed_boundary(log.session.events) == -1
    log.whole_turn("one")
    log.session.append(ev.session.EndSeed())
    stable = log.session.next_seq - 1
    assert closed_boundary(log.session.events) == stable
    log.turn_start()
    log.step_start()
    log.user("two")
    assert closed_boundary(log.session.events) == stable
    child = child_of(log)
    assert lines(child.events)[:-1] == lines(log.session.events)[: stable + 1]
    assert child.events[-1].data == ev.session.EndSeed(inherited=True)
    assert child.header.seed_length == stable + 1
    assert verify(child) == ()


REASONS: tuple[records.TurnEndReason, ...] = (
    records.CompletedTurnEnd(),
    records.AbortedTurnEnd(reason=records.UserCause()),
    records.BlockedTurnEnd(reason="no"),
    records.ErrorTurnEnd(error=records.LlmFailure(message="m", code="C")),
    records.MaxTokensTurnEnd(),
    records.InterruptedTurnEnd(),
)


@pytest.mark.holds("SF05")
@pytest.mark.parametrize("reason", REASONS)
def test_every_end_of_a_turn_is_a_boundary(reason: records.TurnEndReason) -> None:
    log = LogWriting()
    log.turn_start()
    end = log.turn_end(reason)
    assert child_of(log, end).header.seed_length == end + 1


@pytest.mark.holds("I8", "SF07", "SF12")
def test_every_other_place_is_refused() -> None:
    log = LogWriting()
    log.whole_turn("one", "a", calls=("c1",))
    log.whole_turn("two")
    ends = {event.seq for event in log.session.events if isinstance(event.data, ev.turn.End)}
    for seq in range(log.session.next_seq):
        if seq in ends:
            assert verify(child_of(log, seq)) == ()
        else:
            assert refusal(log, seq) == "OPEN_TURN"
    for bad in (-1, log.session.next_seq, 10**30, True, 1.0, "1"):
        assert refusal(log, bad) == "INVALID_BOUNDARY"  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert refusal(LogWriting(), 0) == "INVALID_BOUNDARY"


@pytest.mark.holds("I8")
def test_the_end_of_a_step_will_do_when_that_is_asked_for() -> None:
    log = LogWriting()
    log.whole_turn("one")
    log.turn_start()
    ends: list[int] = []
    for prompt in ("two", "three"):
        log.step_start()
        log.user(prompt)
        log.reply(calls=("c1",))
        log.result("c1", sources=(log.call("c1"),))
        ends.append(log.step_end())
    log.turn_end()
    events, header_of = log.session.events, log.session.header
    fork = forked(header_of, events, child_id="child", created_at=9, boundary=ends[0], inside=True)
    child = StoredLog(header=fork.header, events=fork.events(9))
    assert verify(child) == ()
    assert fork.header.seed_length == ends[0] + 1
    assert lines(child.events)[: ends[0] + 1] == lines(events)[: ends[0] + 1]
    stopped = records.AbortedTurnEnd(reason=records.UserCause())
    assert [one.data for one in child.events[ends[0] + 1 :]] == [
        ev.session.EndSeed(inherited=True),
        ev.turn.End(turn=2, reason=stopped),
    ]
    assert {one.time for one in child.events[ends[0] :]} == {events[ends[0]].time}
    assert closed_boundary(child.events) == len(child.events) - 1
    inside = [one.seq for one in events if isinstance(one.data, ev.assistant.Message)]
    with pytest.raises(SessionError, match="a turn is open there"):
        forked(header_of, events, child_id="c", created_at=9, boundary=inside[-1], inside=True)
    end = next(one.seq for one in events if isinstance(one.data, ev.turn.End))
    whole = forked(header_of, events, child_id="c", created_at=9, boundary=end, inside=True)
    assert (whole.cut, len(whole.events(9))) == (None, end + 2)


@pytest.mark.holds("SF08")
def test_a_source_that_does_not_hold_together_is_refused() -> None:
    log = LogWriting()
    log.whole_turn("one")
    events = list(log.session.events)
    swapped = [events[1], events[0], *events[2:]]
    lost = evolve(events[2], surface_op=records.Replace(start_seq=0, end_seq=0))
    for broken in (swapped, [*events[:2], lost, *events[3:]], [*events[:3], *events[4:]]):
        with pytest.raises(SessionError) as refused:
            child_of(log, events=broken)
        assert refused.value.code == "SOURCE_DAMAGED"
    unknown = UnknownEvent(b'{"type":"acme.x/y"}', "unknown type")
    foreign = StoredEvent("acme.x/y", len(events), 1, unknown, owner="acme@1")
    with pytest.raises(SessionUnreadable, match="acme@1"):
        child_of(log, events=[*events, foreign])
    kept = child_of(log, events=[*events, evolve(foreign, ignorable=True)])
    assert encode_line(kept.events[-2]) == unknown.raw


@pytest.mark.holds("I8", "I9", "SF06")
async def test_an_agent_goes_on_from_a_fork_and_inherits_no_inbox() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("one"), says("two"), says("three")], store=store) as h:
        parent = await h.agent("parent")
        await parent.agent.ask(user_message("first"))
        parent.agent.inject(said("for later", message_id="pending"))
        with trio.fail_after(5):
            await parent.agent.when_idle()
        fork = forked(
            h.session(parent).header, h.session(parent).events, child_id="child", created_at=1
        )
        child = await h.agents.make(
            CreateAgent(
                session_id="child",
                options=OPTIONS,
                cwd="/work",
                seed=fork.seed,
                parent_session="parent",
            )
        )
        assert h.session(child).header == evolve(
            fork.header, created_at=h.session(child).header.created_at
        )
        await child.agent.ask(user_message("second"))
        texts = [
            block.text
            for message in h.session(child).derive_messages()
            for block in message.content
            if isinstance(block, records.TextBlock)
        ]
        assert [text for text in texts if text in ("first", "one", "second", "two")] == [
            "first", "one", "second", "two",
        ]  # fmt: skip
        assert "for later" not in texts
        await child.aclose()
        await parent.aclose()
    async with open_test_house(replies=[says("four")], store=store) as h:
        # The parent was resumed once: its own mark does not make the child inherit its inbox.
        again = await h.agents.resume("parent", options=OPTIONS)
        await again.aclose()
        log = await store.read("parent")
        assert log.events[-1].type == ev.session.END_SEED.name
        await fork_log(store, log, child_id="third", now_ms=1)
        third = await h.agents.resume("third", options=OPTIONS)
        await third.agent.ask(user_message("fifth"))
        shown = repr(h.session(third).derive_messages())
        assert "fifth" in shown
        assert "for later" not in shown
        assert verify(await store.read("third")) == ()
        await third.aclose()
