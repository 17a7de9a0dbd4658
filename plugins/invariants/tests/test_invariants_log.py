"""The laws of the log: every breach is refused before it is logged, and nothing lawful is."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.agent import user_message
from dsh.catalog import records
from dsh.errors import InvalidAppend, InvariantError
from dsh.kernel import mount
from dsh.session import Projection, ProjectionSet, Session, interrupted_closers, verify
from dsh.testing import LogWriting, MemoryStore, open_test_house, says
from dsh.testing.house import OPTIONS
from dsh.testing.logs import header, result_message
from dsh.wire import StoredLog
from dsh_plugins.invariants import INVARIANTS, LawBroken, invariants
from dsh_plugins.invariants.laws import CONCERNED, Trace, Unlawful, judged

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh.agent import AgentHandle
    from dsh.hooks import Logged, live
    from dsh.kernel import Context
    from dsh.testing import TestHouse


def lawful_session() -> LogWriting:
    """A private session under the laws; a breach is `Unlawful` as InvariantError's cause."""
    units = ProjectionSet()
    units.add(Projection(key="laws", init=Trace, apply=judged, events=CONCERNED))
    return LogWriting(units=units)


def stands_in_a_step(log: LogWriting) -> Session:
    log.turn_start()
    log.step_start()
    return log.session


BREACHES: dict[str, Callable[[LogWriting], object]] = {
    "a turn inside a turn": lambda log: log.turn_start(),
    "a step inside a step": lambda log: log.step_start(),
    "the turn ends inside its step": lambda log: log.turn_end(),
    "a chunk of another step": lambda log: log.session.append(
        ev.assistant.Chunk(turn=1, step=2, chunk=records.TextDeltaChunk(index=0, text="x"))
    ),
    "a step of another turn ends": lambda log: log.session.append(ev.step.End(turn=2, step=1)),
    "a call nobody asked for": lambda log: log.call("c"),
    "a result nobody asked for": lambda log: log.result("c"),
    "a call asked for twice": lambda log: log.reply(calls=["c", "c"]),
}


@pytest.mark.holds("J2", "SV06", "SV07", "SV08", "SV09")
@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_refused_and_nothing_changes(name: str) -> None:
    log = lawful_session()
    session = stands_in_a_step(log)
    log.user("hi")
    before = tuple(session.events), tuple(session.surface.nodes), session.derive_messages()
    with pytest.raises(Exception, match=r"where|nobody|not asked|twice|step") as refused:
        BREACHES[name](log)
    assert isinstance(refused.value.__cause__, Unlawful)
    after = tuple(session.events), tuple(session.surface.nodes), session.derive_messages()
    assert after == before
    session.append(ev.step.End(turn=1, step=1))
    session.append(ev.turn.End(turn=1, reason=records.CompletedTurnEnd()))


@pytest.mark.holds("J2", "SV06")
@pytest.mark.parametrize(
    "payload",
    [
        ev.turn.Start(turn=2),
        ev.turn.End(turn=1, reason=records.CompletedTurnEnd()),
        ev.step.Start(turn=1, step=1),
        ev.request.Header(
            header=records.EpochHeader(
                config=records.LlmCallConfig(provider="p", model="m"), tools=()
            ),
            reason="initial",
        ),
        ev.request.RouteContext(provider="p", model="m"),
    ],
    ids=lambda payload: payload.TOKEN.name,
)
def test_outside_a_turn_only_the_next_turn_may_start(
    payload: ev.turn.Start | ev.turn.End | ev.step.Start | ev.request.Header,
) -> None:
    log = lawful_session()
    with pytest.raises(Exception, match="no turn is open"):
        log.session.append(payload)
    log.turn_start()


@pytest.mark.holds("J2", "SV12", "SV13")
def test_a_result_needs_its_call_in_the_same_step_unless_it_was_not_started() -> None:
    log = lawful_session()
    session = stands_in_a_step(log)
    log.reply(calls=["a", "b"])
    with pytest.raises(Exception, match="a result for a, which is asked"):
        log.result("a")
    log.call("a")
    log.result("a")
    with pytest.raises(Exception, match="a result for a, which is answered"):
        log.result("a")
    with pytest.raises(Exception, match="ends with calls unanswered: b"):
        log.step_end()
    for closer in interrupted_closers(tuple(session.events))[:1]:
        assert isinstance(closer.data, ev.tool.Result)
        session.append(closer.data, surface=records.Append(), sources=closer.source_event_seqs)
    log.step_end()
    log.step_start()
    with pytest.raises(Exception, match="a result for a, which is not asked for in this step"):
        log.result("a")


@pytest.mark.holds("SV10")
def test_a_rewritten_result_is_no_second_result() -> None:
    log = lawful_session()
    session = stands_in_a_step(log)
    log.reply(calls=["a"])
    log.call("a")
    seq = log.result("a", "long")
    session.append(
        ev.tool.Result(turn=1, step=1, message=result_message("a", "short")),
        surface=records.Replace(start_seq=seq, end_seq=seq),
        sources=(seq,),
    )
    log.step_end()
    log.turn_end()


@pytest.mark.holds("SV12")
def test_every_crash_point_of_a_turn_can_be_closed_lawfully() -> None:
    whole = LogWriting()
    whole.whole_turn("hi", "so ", "then", calls=["a", "b"])
    events = tuple(whole.session.events)
    for length in range(len(events)):
        trace = Trace()
        for event in (*events[:length], *interrupted_closers(events[:length])):
            trace = judged(trace, event)
        assert not trace.in_turn


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_what_the_laws_accept_the_proof_of_a_log_accepts_too(data: st.DataObject) -> None:
    log = lawful_session()
    log.turn, log.step = 1, 1
    session = log.session
    calls = st.sampled_from(["a", "b"])
    acts: list[Callable[[], object]] = [
        lambda: session.append(ev.turn.Start(turn=data.draw(st.integers(1, 2)))),
        lambda: session.append(
            ev.turn.End(turn=data.draw(st.integers(1, 2)), reason=records.CompletedTurnEnd())
        ),
        lambda: session.append(ev.step.Start(turn=1, step=data.draw(st.integers(1, 3)))),
        lambda: session.append(ev.step.End(turn=1, step=data.draw(st.integers(1, 3)))),
        log.user,
        lambda: log.chunks("x"),
        lambda: log.reply(calls=data.draw(st.lists(calls, max_size=2))),
        lambda: log.call(data.draw(calls)),
        lambda: log.result(data.draw(calls)),
    ]
    for act in data.draw(st.lists(st.sampled_from(acts), min_size=5, max_size=30)):
        with suppress(InvariantError):
            act()
    assert verify(StoredLog(header=session.header, events=tuple(session.events))) == ()


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c"]), unique=True), max_size=4))
def test_whatever_the_loop_would_write_is_lawful(turns: list[list[str]]) -> None:
    log = lawful_session()
    for calls in turns:
        log.whole_turn("hi", "x", calls=calls)
    assert len([e for e in log.session.events if isinstance(e.data, ev.turn.End)]) == len(turns)


# -- in a house --------------------------------------------------------------------------------


def of(house: TestHouse) -> list[tuple[str, str, int | None]]:
    book = house.ctx.require(INVARIANTS)
    return [(each.law, each.event, each.seq) for each in book.breaches]


async def idle(house: TestHouse) -> AgentHandle:
    handle = await house.agent()
    await handle.agent.ask(user_message("one"))
    return handle


@pytest.mark.holds("J2", "SV02", "IV01")
async def test_a_breach_names_law_event_and_seq_and_a_lawful_run_has_none() -> None:
    async with open_test_house(replies=[says("a")], plugins=[invariants], watched=False) as house:
        handle = await idle(house)
        assert of(house) == []
        session = house.session(handle)
        seq = session.next_seq
        told = rf"the law 'log' is broken at step/start \(seq {seq}\)"
        with pytest.raises(LawBroken, match=told):
            session.append(ev.step.Start(turn=1, step=2))
        assert session.next_seq == seq
        assert of(house) == [("log", ev.step.START.name, seq)]


@pytest.mark.holds("SV04")
async def test_a_raising_observer_does_not_keep_the_laws_from_following() -> None:
    async with open_test_house(replies=[says("a"), says("b")]) as house:
        handle = await house.agent()

        def raises(event: Logged[ev.step.Start]) -> None:
            raise ValueError("observer")

        house.ctx.on(ev.step.START)(raises)
        await handle.agent.ask(user_message("one"))
        assert (await handle.agent.ask(user_message("two"))).text == "b"


@pytest.mark.holds("J4", "SV15", "SV17", "GV01")
async def test_unloaded_it_checks_nothing_and_loaded_again_it_knows_where_logs_stand() -> None:
    async with open_test_house(replies=[says("a"), says("b"), says("c")], watched=False) as house:
        handle = await idle(house)
        session = house.session(handle)
        fiber = house.kernel.mount(invariants)
        await fiber.ready()
        with pytest.raises(LawBroken):
            session.append(ev.turn.Start(turn=1))
        assert (await handle.agent.ask(user_message("two"))).text == "b"
        assert [law for law, _, _ in of(house)] == ["log"]
        await fiber.dispose()
        session.append(ev.turn.Start(turn=7))
        session.append(ev.turn.End(turn=7, reason=records.CompletedTurnEnd()))
        again = house.kernel.mount(invariants)
        await again.ready()
        with pytest.raises(LawBroken, match=r"turn 7 starts where no turn is open \(the last was"):
            session.append(ev.turn.Start(turn=8))


@pytest.mark.holds("SV01")
async def test_mounted_for_one_agent_it_still_judges_every_log() -> None:
    async with open_test_house(replies=[says("a")], watched=False) as house:
        other = await house.agent("other")

        async def setup(ctx: Context, agent: live.Agent) -> None:
            await mount(ctx, invariants, slot=0).ready()

        await house.agent("s", setup=setup)
        with pytest.raises(LawBroken):
            house.session(other).append(ev.step.Start(turn=1, step=1))


@pytest.mark.holds("SV14")
async def test_seeded_and_resumed_sessions_are_judged_from_their_first_event() -> None:
    store = MemoryStore()
    async with open_test_house(replies=[says("a")], store=store) as house:
        await (await idle(house)).aclose()
    async with open_test_house(
        replies=[says("b")], store=store, plugins=[invariants], watched=False
    ) as house:
        one = await house.agents.resume("s", options=OPTIONS)
        two = await house.agent("t")
        assert (await one.agent.ask(user_message("two"))).turn == 2
        with pytest.raises(LawBroken, match="turn 2 starts where"):
            house.session(two).append(ev.turn.Start(turn=2))
        with pytest.raises(LawBroken, match="turn 1 starts where"):
            house.session(one).append(ev.turn.Start(turn=1))


@pytest.mark.holds("SV05")
def test_a_seq_that_does_not_grow_is_refused() -> None:
    log = LogWriting()
    log.turn_start()
    [event] = log.session.events
    trace = judged(Trace(), event)
    with pytest.raises(Unlawful, match="not greater than 0"):
        judged(trace, event)


# -- retries -----------------------------------------------------------------------------------


def retry(number: int = 1, identity: str = "r", provider: str = "p", turn: int = 1) -> ev.llm.Retry:
    return ev.llm.Retry(
        retry_id=identity,
        turn=turn,
        step=1,
        provider=provider,
        mode="normal",
        policy_key="k",
        retry=number,
        max_retries=2,
        delay_ms=1,
        failure=records.LlmFailure(message="busy", code="SERVER"),
    )


def started(number: int = 1, identity: str = "r") -> ev.llm.RetryStarted:
    return ev.llm.RetryStarted(retry_id=identity, turn=1, step=1, retry=number)


Appended = ev.llm.Retry | ev.llm.RetryStarted


@pytest.mark.holds("J3", "YI05", "YI11", "YI04")
@pytest.mark.parametrize(
    ("before", "breach", "told"),
    [
        ((), retry(2), "retry 2 of p where 1 is due"),
        ((retry(),), retry(), "retry 1 of p where 2 is due"),
        ((retry(), retry(2)), retry(3), "whose policy allows 2"),
        ((retry(),), retry(2, "other"), "retry 2 is other, its chain is r"),
        ((), retry(provider="q"), "q is to be tried again; p was asked"),
        ((), started(), "no retry of this step has that identity"),
        ((retry(), retry(2)), started(1), "retry 1 starts, 2 was announced"),
        ((retry(), started()), started(), "starts for the second time"),
        ((), retry(turn=2), "it names step 1 of turn 2"),
    ],
)
def test_retries_count_in_chains_of_one_step(
    before: tuple[Appended, ...], breach: Appended, told: str
) -> None:
    log = lawful_session()
    session = stands_in_a_step(log)
    session.append(ev.request.RouteContext(provider="p", model="m"))
    for each in before:
        session.append(each)
    with pytest.raises(Exception, match=told):
        session.append(breach)


@pytest.mark.holds("YI11", "YI01")
def test_before_any_route_any_provider_may_be_tried_again_in_a_chain_of_its_own() -> None:
    log = lawful_session()
    session = stands_in_a_step(log)
    session.append(retry())
    session.append(retry(identity="other", provider="o"))
    with pytest.raises(Exception, match="another provider's or policy's chain"):
        session.append(retry(provider="q"))


@pytest.mark.holds("YI05")
def test_a_retry_stands_in_an_open_step() -> None:
    log = lawful_session()
    with pytest.raises(Exception, match="where no turn is open"):
        log.session.append(retry())
    log.turn_start()
    with pytest.raises(Exception, match="turn 1 is open, and no step"):
        log.session.append(retry())


@pytest.mark.holds("YI03", "YI04")
@pytest.mark.parametrize(
    "failure",
    [{"message": "busy"}, records.LlmFailure(message="busy", code=5)],  # type: ignore[arg-type]
    ids=["no record", "a number as code"],
)
def test_a_retry_whose_failure_is_no_failure_cannot_be_written(failure: object) -> None:
    log = lawful_session()
    session = stands_in_a_step(log)
    with pytest.raises(InvalidAppend):
        session.append(
            ev.llm.Retry(
                retry_id="r",
                turn=1,
                step=1,
                provider="p",
                mode="normal",
                policy_key="k",
                retry=1,
                delay_ms=1,
                failure=failure,  # type: ignore[arg-type]
            )
        )


@pytest.mark.holds("YI13")
def test_loaded_during_a_wait_it_accepts_the_start_of_what_was_announced() -> None:
    log = LogWriting(session=Session(header(), now_ms=lambda: 1))
    session = stands_in_a_step(log)
    session.append(retry())
    trace = Trace()
    for event in session.events:
        trace = judged(trace, event)
    session.append(started())
    trace = judged(trace, tuple(session.events)[-1])
    [chain] = trace.retries.chains.values()
    assert (chain.scheduled, chain.started) == (1, 1)
