"""What an append checks, in which order it acts, and that a refusal changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError

from dsh import catalog as ev
from dsh.catalog import records
from dsh.errors import InvalidAppend, InvariantError, PluginError, SessionClosed
from dsh.session import Projection, ProjectionSet, Session
from dsh.testing import LogWriting
from dsh.testing.logs import said

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh.wire import StoredEvent

APPEND = records.Append()


def opened() -> LogWriting:
    """A log inside its first step, with one prompt: seqs 0, 1, 2."""
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.user()
    return log


def untouched(log: LogWriting, count: int) -> None:
    """A refused append left the log, the surface and the writer as they were."""
    session = log.session
    assert session.next_seq == len(session.events) == count
    assert session.writer.pending == count
    assert all(seq < count for seq in session.surface.nodes)


@pytest.mark.holds("SP02")
def test_seqs_count_from_zero_and_the_envelope_is_filled() -> None:
    log = LogWriting()
    log.whole_turn("hi", "a", "b", calls=("c1",))
    assert [event.seq for event in log.session.events] == list(range(log.session.next_seq))
    first = log.session.events[0]
    assert (first.v, first.owner, first.ignorable, first.time) == (1, None, False, 1001)


def test_append_returns_the_event_with_its_session() -> None:
    log = LogWriting()
    payload = ev.turn.Start(turn=1)
    logged = log.session.append(payload)
    assert logged.data is payload
    assert (logged.seq, logged.time, logged.session) == (0, 1001, log.session)


@pytest.mark.holds("SS18", "SU17", "SU40")
def test_a_surface_event_needs_an_operation() -> None:
    log = opened()
    message = records.SystemMessage(id="p", content=(), source=records.SystemPromptSource())
    payload = ev.system.Message(turn=1, step=1, message=message)
    with pytest.raises(InvalidAppend, match="say `surface=Append"):
        log.session.append(payload)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    untouched(log, 3)


@pytest.mark.holds("SU31", "SU39", "SS38")
@pytest.mark.parametrize("op", ["append", {"op": "append"}, records.Append, 1])
def test_an_operation_is_one_of_the_two(op: records.Append) -> None:
    log = opened()
    message = said("x", message_id="m")
    with pytest.raises(InvalidAppend, match="not Append"):
        log.session.append(ev.user.Message(message=message), surface=op)
    untouched(log, 3)


@pytest.mark.parametrize("payload", [{"turn": 1}, None, ev.turn.Start, ev.tools.Change()])
def test_only_durable_payloads_are_appended(payload: ev.turn.Start) -> None:
    log = opened()
    with pytest.raises(InvalidAppend, match="durable payload"):
        log.session.append(payload)
    untouched(log, 3)


@pytest.mark.holds("SS39", "SU02", "SU18", "SU38")
def test_a_log_only_event_takes_none() -> None:
    log = opened()
    step = ev.step.End(turn=1, step=1)
    with pytest.raises(InvalidAppend, match="log-only"):
        log.session.append(step, surface=APPEND)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(InvalidAppend, match="log-only"):
        log.session.append(step, sources=[0])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    untouched(log, 3)
    log.step_end()
    assert log.session.events[-1].surface_op is None


@pytest.mark.holds("SU01", "SU03", "SU36", "SU29")
def test_sources_may_be_absent_given_or_for_a_reply_empty() -> None:
    log = opened()
    seqs = list(log.chunks("a", "b"))
    assert log.session.events[2].source_event_seqs is None
    log.reply(sources=seqs)
    seqs.append(99)
    assert log.session.events[5].source_event_seqs == (3, 4)
    log.reply(sources=[])
    assert log.session.events[6].source_event_seqs == ()


@pytest.mark.holds("SS35", "SS36", "SS38", "SU04")
@pytest.mark.parametrize(
    "sources", [[2, 2], [5], [99], [-1], [True], [1.0], ["1"], [None], [0, 1, 0]]
)
def test_bad_sources_are_refused(sources: Sequence[int]) -> None:
    log = opened()
    with pytest.raises(InvalidAppend, match="cites"):
        log.reply(sources=sources)
    untouched(log, 3)


def test_an_empty_list_of_sources_is_for_replies_alone() -> None:
    log = opened()
    with pytest.raises(InvalidAppend, match="empty list"):
        log.result("c1", sources=[])
    untouched(log, 3)


def test_sources_are_kept_ascending() -> None:
    log = opened()
    log.reply(sources=(2, 0, 1))
    assert log.session.events[3].source_event_seqs == (0, 1, 2)


CHANGES: list[Callable[[ev.tool.Result], ev.tool.Result]] = [
    lambda old: evolve(old, turn=2),
    lambda old: evolve(old, step=2),
    lambda old: evolve(old, error=records.ToolErrorInfo(name="x", code="y")),
    lambda old: evolve(old, meta=[1]),
    lambda old: evolve(old, message=evolve(old.message, id="other")),
    lambda old: evolve(old, message=evolve(old.message, tool_call_id="c2")),
    lambda old: evolve(old, message=evolve(old.message, is_error=True)),
    lambda old: evolve(old, message=evolve(old.message, source=records.ToolSource(call_id="c2"))),
]


class TestReplacements:
    def log(self) -> LogWriting:
        log = opened()
        log.reply(calls=("c1", "c2"))
        log.result("c1", "long output")
        log.result("c2", "other")
        return log  # nodes 2 user, 3 reply, 4 result, 5 result

    def summary(self, log: LogWriting, start: int, end: int, sources: Sequence[int] | None) -> int:
        message = records.UserMessage(
            id="sum",
            content=(records.TextBlock(text="summary"),),
            source=records.PluginSource(plugin="compaction"),
        )
        return log.session.append(
            ev.user.Message(message=message),
            surface=records.Replace(start_seq=start, end_seq=end),
            sources=sources,
        ).seq

    @pytest.mark.holds("SU23", "SU24", "SU30")
    def test_a_range_is_replaced_by_one_node(self) -> None:
        log = self.log()
        seq = self.summary(log, 3, 4, [3, 4])
        assert list(log.session.surface.nodes) == [2, seq, 5]
        assert log.session.surface.generation == 1

    @pytest.mark.holds("SU25")
    def test_a_single_node_too(self) -> None:
        log = self.log()
        seq = self.summary(log, 3, 3, [3])
        assert list(log.session.surface.nodes) == [2, seq, 4, 5]

    @pytest.mark.holds("SU26", "SU27", "SU28", "SU12")
    @pytest.mark.parametrize(
        ("start", "end"), [(0, 4), (2, 1), (99, 5), (2, 99), (5, 2), (-1, 2), (2.0, 2), (2, True)]
    )
    def test_ends_that_are_no_nodes_or_reversed_are_refused(self, start: int, end: int) -> None:
        log = self.log()
        with pytest.raises(InvalidAppend, match=r"not a node|stands after|endSeq|startSeq"):
            self.summary(log, start, end, [2, 3, 4, 5])
        untouched(log, 6)
        assert log.session.surface.generation == 0

    def test_a_later_node_may_stand_first(self) -> None:
        log = self.log()
        first = self.summary(log, 2, 3, [2, 3])
        assert list(log.session.surface.nodes) == [first, 4, 5]
        second = self.summary(log, first, 4, [first, 4])
        assert first > 4
        assert list(log.session.surface.nodes) == [second, 5]

    def test_every_hidden_node_is_cited(self) -> None:
        log = self.log()
        for sources in (None, [3], [4]):
            with pytest.raises(InvalidAppend, match=r"cite"):
                self.summary(log, 3, 4, sources)
        untouched(log, 6)
        self.summary(log, 3, 4, [0, 3, 4])

    def rewrite(self, log: LogWriting, payload: ev.tool.Result, start: int, end: int) -> int:
        return log.session.append(
            payload,
            surface=records.Replace(start_seq=start, end_seq=end),
            sources=range(start, end + 1),
        ).seq

    def old(self, log: LogWriting) -> ev.tool.Result:
        payload = log.session.events[4].data
        assert isinstance(payload, ev.tool.Result)
        return payload

    def test_a_result_may_be_rewritten_in_its_content(self) -> None:
        log = self.log()
        old = self.old(log)
        short = evolve(old.message, content=(records.TextBlock(text="short"),))
        seq = self.rewrite(log, evolve(old, message=short), 4, 4)
        assert list(log.session.surface.nodes) == [2, 3, seq, 5]
        assert log.session.derive_messages()[2] is short

    @pytest.mark.holds("SU07", "SU08", "SU09")
    @pytest.mark.parametrize("change", CHANGES)
    def test_nothing_else_of_it_may_change(
        self, change: Callable[[ev.tool.Result], ev.tool.Result]
    ) -> None:
        log = self.log()
        with pytest.raises(InvalidAppend, match="changes more than its content"):
            self.rewrite(log, change(self.old(log)), 4, 4)
        untouched(log, 6)

    @pytest.mark.holds("SU09")
    def test_metadata_is_compared_as_json(self) -> None:
        log = opened()
        log.reply(calls=("c1",))
        message = records.ToolResultMessage(
            id="r",
            content=(records.TextBlock(text="x"),),
            source=records.ToolSource(call_id="c1"),
            tool_call_id="c1",
        )
        first = ev.tool.Result(turn=1, step=1, message=message, meta={"n": 1, "l": [1, 2]})
        seq = log.session.append(first, surface=APPEND).seq
        again = evolve(first, meta={"l": [1, 2], "n": 1})
        seq = self.rewrite(log, again, seq, seq)
        with pytest.raises(InvalidAppend, match="changes more"):
            self.rewrite(log, evolve(first, meta={"n": True, "l": [1, 2]}), seq, seq)

    @pytest.mark.holds("SU05", "SU06")
    def test_a_result_replaces_exactly_one_result(self) -> None:
        log = self.log()
        for start, end in ((4, 5), (3, 3)):
            with pytest.raises(InvalidAppend, match="may replace one tool/result"):
                self.rewrite(log, self.old(log), start, end)
        untouched(log, 6)


@pytest.mark.holds("SS40", "SH12")
def test_what_was_logged_cannot_be_changed() -> None:
    log = opened()
    event = log.session.events[2]
    with pytest.raises(FrozenInstanceError):
        event.seq = 7  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        event.data.message = None  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.holds("SS42", "SS01")
def test_a_snapshot_of_the_events_never_grows() -> None:
    log = opened()
    before = log.session.events
    log.reply()
    assert len(before) == 3
    assert len(log.session.events) == 4
    assert [event.seq for event in before] == [0, 1, 2]
    assert before[-1] is before[2]
    assert before[1:] == tuple(before)[1:]
    assert before[::-1] == tuple(before)[::-1]
    for index in (3, -4):
        with pytest.raises(IndexError, match="log of 3"):
            before[index]


def test_a_closed_write_path_refuses_and_names_the_last_place() -> None:
    log = opened()
    log.session.retire()
    assert log.session.closed
    with pytest.raises(SessionClosed, match="resume it"):
        log.step_end()


async def test_after_the_writer_closed_an_append_names_on_drain() -> None:
    log = opened()
    await log.session.writer.aclose()
    assert log.session.closed
    with pytest.raises(SessionClosed, match="on_drain"):
        log.step_end()


class TestProjections:
    """A fold sees each event before it is committed; a failing one keeps it from being."""

    def counting(self, key: str = "n") -> Projection[int]:
        return Projection(
            key=key,
            init=lambda: 0,
            apply=lambda state, _event: state + 1,
            events=(ev.turn.START, ev.turn.END),
        )

    def test_the_state_is_current_when_append_returns(self) -> None:
        units, unit = ProjectionSet(), self.counting()
        units.add(unit)
        log = LogWriting(units=units)
        for turns in (1, 2):
            log.whole_turn()
            assert log.session.projection(unit) == 2 * turns

    def test_a_late_unit_is_folded_over_what_is_there(self) -> None:
        units, unit = ProjectionSet(), self.counting()
        log = LogWriting(units=units)
        log.whole_turn()
        units.add(unit)
        log.whole_turn()
        assert log.session.projection(unit) == 4

    def test_a_unit_that_came_back_is_folded_anew(self) -> None:
        units, unit = ProjectionSet(), self.counting()
        log = LogWriting(units=units)
        take_out = units.add(unit)
        log.whole_turn()
        assert log.session.projection(unit) == 2
        take_out()
        log.whole_turn()
        with pytest.raises(PluginError, match="not registered"):
            log.session.projection(unit)
        units.add(unit)
        assert log.session.projection(unit) == 4

    def test_the_same_unit_is_counted_and_another_refused(self) -> None:
        units, unit = ProjectionSet(), self.counting()
        first, second = units.add(unit), units.add(unit)
        with pytest.raises(PluginError, match="another definition"):
            units.add(self.counting())
        log = LogWriting(units=units)
        first()
        log.whole_turn()
        assert log.session.projection(unit) == 2
        second()
        units.add(self.counting())

    @pytest.mark.holds("SS65")
    def test_a_raising_fold_keeps_the_event_out(self) -> None:
        def refuse(state: int, event: StoredEvent) -> int:
            if event.type == ev.user.MESSAGE.name:
                raise RuntimeError("no users")
            return state + 1

        units = ProjectionSet()
        count = self.counting("all")
        unit = Projection[int](key="veto", init=lambda: 0, apply=refuse)
        units.add(count)
        units.add(unit)
        log = LogWriting(units=units)
        log.turn_start()
        with pytest.raises(InvariantError, match=r"'veto' failed on user/message .*no users"):
            log.user()
        untouched(log, 1)
        assert log.session.derive_messages() == ()
        assert log.session.projection(unit) == 1
        log.turn_end()
        assert log.session.projection(unit) == 2
        assert log.session.projection(count) == 2


def test_the_clock_may_step_back() -> None:
    times = iter((2000, 500, 1000))
    log = LogWriting(now_ms=lambda: next(times))
    log.turn_start()
    log.step_start()
    log.step_end()
    assert [event.time for event in log.session.events] == [2000, 500, 1000]
    assert isinstance(log.session, Session)
