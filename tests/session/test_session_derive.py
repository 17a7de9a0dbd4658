"""Surface, messages and headers: incremental, and equal to a fold from scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.catalog import records
from dsh.catalog.registry import DURABLES
from dsh.errors import InvalidAppend
from dsh.session import (
    ProjectionSet,
    Session,
    Surface,
    SurfaceFault,
    canonical_header,
    derive,
    message_of,
    same_header,
)
from dsh.session.seeds import seeded
from dsh.testing import LogWriting
from dsh.testing.effort import bytes_of, calls_of
from dsh.testing.logs import said
from dsh.wire import RowReader, StoredEvent, encode_rows

if TYPE_CHECKING:
    from collections.abc import Iterable


def folded(events: Iterable[StoredEvent]) -> list[int]:
    surface = Surface()
    for event in events:
        if event.surface_op is not None:
            surface.apply(event.seq, event.surface_op)
    return list(surface.nodes)


@st.composite
def operations(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(("user", "reply", "empty", "system", "chunk", "replace", "read")),
                st.integers(0, 40),
                st.integers(0, 40),
            ),
            max_size=40,
        )
    )


def act(log: LogWriting, what: str, first: int, last: int) -> None:
    nodes = log.session.surface.nodes
    match what:
        case "user":
            log.user(f"u{first}")
        case "reply":
            log.reply(f"r{first}")
        case "empty":
            log.reply("")
        case "system":
            log.system("" if first % 2 else f"p{first}")
        case "chunk":
            log.chunks("x")
        case "replace" if nodes:
            start, end = first % len(nodes), last % len(nodes)
            hidden = list(nodes[start : end + 1])
            op = records.Replace(start_seq=nodes[start], end_seq=nodes[end])
            message = records.UserMessage(
                id=f"s{log.session.next_seq}", content=(), source=records.UserSource()
            )
            if start > end:
                with pytest.raises(InvalidAppend):
                    log.session.append(
                        ev.user.Message(message=message), surface=op, sources=[*nodes]
                    )
            else:
                log.session.append(ev.user.Message(message=message), surface=op, sources=hidden)
        case _:
            log.session.derive_messages()


@pytest.mark.holds("SD01", "SD04", "SP01", "SP03", "SU13", "SU14", "SU15", "SU21", "SU22", "J5")
@given(operations())
@settings(max_examples=150, deadline=None)
def test_any_history_is_the_same_incrementally_and_from_scratch(
    steps: list[tuple[str, int, int]],
) -> None:
    log = LogWriting()
    for what, first, last in steps:
        act(log, what, first, last)
        assert list(log.session.surface.nodes) == folded(log.session.events)
    expected = derive(log.session.events)
    assert log.session.derive_messages() == expected
    assert log.session.derive_messages() is log.session.derive_messages()
    reader = RowReader()
    rows = encode_rows(list(log.session.events)).split(b"\n")[:-1]
    seed = [event for row in rows for event in reader.read(row)]
    again = seeded(log.session.header, seed=seed, stored=0, now_ms=lambda: 1, units=ProjectionSet())
    assert again.derive_messages() == expected
    assert list(again.surface.nodes) == list(log.session.surface.nodes)


@pytest.mark.holds("SU19", "SU20", "SU35")
def test_appends_are_nodes_in_order() -> None:
    log = LogWriting()
    assert list(log.session.surface.nodes) == []
    log.whole_turn("hi", "a", calls=("c1",))
    assert [log.session.events[seq].type for seq in log.session.surface.nodes] == [
        "user/message",
        "assistant/message",
        "tool/result",
    ]


def test_a_surface_refuses_without_changing() -> None:
    surface = Surface()
    surface.apply(4, records.Append())
    with pytest.raises(SurfaceFault, match="endSeq 5 is not a node"):
        surface.apply(6, records.Replace(start_seq=4, end_seq=5))
    assert list(surface.nodes) == [4]
    assert (surface.generation, len(surface), 4 in surface, 6 in surface) == (0, 1, True, False)


@pytest.mark.holds("SD05", "SP06", "D12", "SS02", "SS05")
def test_derived_messages_are_the_logged_objects() -> None:
    log = LogWriting()
    log.whole_turn("hi", calls=("c1",))
    messages = log.session.derive_messages()
    assert [type(message) for message in messages] == [
        records.UserMessage,
        records.AssistantMessage,
        records.ToolResultMessage,
    ]
    logged = [message_of(log.session.events[seq]) for seq in log.session.surface.nodes]
    assert all(one is other for one, other in zip(messages, logged, strict=True))
    log.whole_turn("more")
    assert log.session.derive_messages()[:3] == messages
    assert all(
        one is other for one, other in zip(messages, log.session.derive_messages(), strict=False)
    )


@pytest.mark.holds("SD03", "D15")
def test_a_held_derivation_does_not_grow() -> None:
    log = LogWriting()
    log.whole_turn()
    held = log.session.derive_messages()
    log.whole_turn()
    assert len(held) == 2
    assert len(log.session.derive_messages()) == 4
    assert log.session.derive_messages().line is held.line


@pytest.mark.holds("D15")
def test_a_replacement_begins_a_history_of_its_own() -> None:
    log = LogWriting()
    log.whole_turn("hi", "yes")
    held = log.session.derive_messages()
    [first, _] = log.session.surface.nodes
    log.turn_start()
    log.session.append(
        ev.user.Message(message=said("shorter", message_id="new")),
        surface=records.Replace(start_seq=first, end_seq=first),
        sources=(first,),
    )
    now = log.session.derive_messages()
    assert [message.id for message in now] == ["new", held[1].id]
    assert now.line is not held.line
    assert now[1] is held[1]
    assert held[0].id != "new"


@pytest.mark.holds("SD06", "SU33", "SU37", "SP05", "D15")
def test_only_nodes_with_content_are_messages() -> None:
    log = LogWriting()
    log.turn_start()
    log.step_start()
    log.system("")
    log.user()
    log.chunks("a", "b")
    log.reply("")
    assert [message.id for message in log.session.derive_messages()] == ["u3"]
    log.system("be brief")
    assert [message.id for message in log.session.derive_messages()] == ["u3", "p7"]
    assert len(log.session.surface.nodes) == 4


@pytest.mark.holds("SU32", "SU41", "SU42", "SU43", "SU44", "SU45", "SU46")
def test_the_operation_of_an_event_says_whether_and_how_it_is_on_the_surface() -> None:
    """Four events can be messages; nothing but their operation makes a node of them."""
    eligible = {name for name, token in DURABLES.items() if token.surface}
    assert eligible == {
        token.name
        for token in (ev.system.MESSAGE, ev.user.MESSAGE, ev.assistant.MESSAGE, ev.tool.RESULT)
    }
    log = LogWriting()
    log.whole_turn("hi", "yes", calls=("c",))
    log.turn_start()
    [first, *_] = log.session.surface.nodes
    log.session.append(
        ev.user.Message(message=said("shorter", message_id="new")),
        surface=records.Replace(start_seq=first, end_seq=first),
        sources=(first,),
    )
    events = log.session.events
    assert {event.type for event in events if event.surface_op is not None} <= eligible
    assert all((event.surface_op is not None) == (event.type in eligible) for event in events)
    appended = [e.seq for e in events if isinstance(e.surface_op, records.Append)]
    replaced = [e.seq for e in events if isinstance(e.surface_op, records.Replace)]
    assert (first, replaced) == (appended[0], [events[-1].seq])
    assert list(log.session.surface.nodes) == [*replaced, *appended[1:]]
    assert log.session.derive_messages()[0].id == "new"


@pytest.mark.holds("D15")
def test_a_derivation_costs_what_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWriting()
    log.whole_turn()
    projected: list[int] = []

    def counting(event: StoredEvent) -> records.Message | None:
        projected.append(event.seq)
        return message_of(event)

    monkeypatch.setattr("dsh.session.messages.message_of", counting)
    log.session.derive_messages()
    assert len(projected) == 2
    log.whole_turn()
    log.session.derive_messages()
    log.session.derive_messages()
    assert len(projected) == 4


@pytest.mark.holds("D15")
def test_a_derivation_costs_the_same_whatever_came_before() -> None:
    def costs(turns: int) -> tuple[int, int]:
        log = LogWriting()
        for _ in range(turns):
            log.whole_turn()
        log.session.derive_messages()
        # A list that grows is moved now and then; most derivations meet none of that.
        held: list[int] = []
        for _ in range(4):
            log.whole_turn()
            held.append(bytes_of(log.session.derive_messages))
        log.whole_turn()
        return calls_of(log.session.derive_messages), min(held)

    few, many = costs(20), costs(2_000)
    assert few[0] == many[0]
    assert many[1] < 500


CONFIG = records.LlmCallConfig(provider="p", model="m", max_tokens=10)
TOOLS = tuple(
    records.ToolSchema(name=name, description="", parameters={"type": "object"}) for name in "ab"
)

BASE = records.EpochHeader(config=CONFIG, tools=TOOLS)


def header(session: Session, given: records.EpochHeader) -> None:
    session.append(ev.request.Header(header=given, reason="initial"))


class TestHeaders:
    @pytest.mark.holds("SH01", "SH03")
    def test_what_marks_nothing_is_absent(self) -> None:
        bare = records.EpochHeader(config=CONFIG)
        marked = records.EpochHeader(
            config=CONFIG, adapter_defaults=records.LlmCallConfigAdapterDefaults(), tools=()
        )
        assert canonical_header(marked) == bare
        assert canonical_header(bare) is bare
        assert same_header(marked, bare)

    @pytest.mark.holds("SH02")
    @pytest.mark.parametrize(
        "other",
        [
            evolve(BASE, config=evolve(CONFIG, model="n")),
            evolve(BASE, config=evolve(CONFIG, max_tokens=11)),
            evolve(BASE, config=evolve(CONFIG, stop=("x",))),
            evolve(BASE, config=evolve(CONFIG, temperature=1.0)),
            evolve(BASE, config=evolve(CONFIG, reasoning_effort="high")),
            evolve(BASE, adapter_defaults=records.LlmCallConfigAdapterDefaults(max_tokens=True)),
            evolve(BASE, tools=TOOLS[::-1]),
            evolve(BASE, tools=TOOLS[:1]),
            evolve(
                BASE,
                tools=(evolve(TOOLS[0], parameters={"type": "object", "x": True}), TOOLS[1]),
            ),
        ],
    )
    def test_every_difference_counts(self, other: records.EpochHeader) -> None:
        assert same_header(BASE, evolve(BASE))
        assert not same_header(BASE, other)

    def test_one_and_true_differ(self) -> None:
        def with_x(value: int) -> records.EpochHeader:
            tool = evolve(TOOLS[0], parameters={"x": value})
            return records.EpochHeader(config=CONFIG, tools=(tool,))

        assert not same_header(with_x(1), with_x(True))

    @pytest.mark.holds("SH04", "SH05", "SH08", "SH09", "SH10", "SH11")
    def test_the_newest_wins_live_and_seeded(self) -> None:
        log = LogWriting()
        session = log.session
        assert session.request_header() is None
        assert session.request_context() is None
        log.turn_start()
        log.step_start()
        second = records.EpochHeader(config=evolve(CONFIG, model="n"))
        header(session, records.EpochHeader(config=CONFIG))
        session.append(ev.request.RouteContext(provider="p", model="m", context_window=9))
        header(session, second)
        assert session.request_header() is second
        session.append(ev.request.RouteContext(provider="p", model="n"))
        context = session.request_context()
        assert context == ev.request.RouteContext(provider="p", model="n")
        again = seeded(
            session.header,
            seed=session.events,
            stored=0,
            now_ms=lambda: 1,
            units=ProjectionSet(),
        )
        assert again.request_header() is second
        assert again.request_context() == context

    @pytest.mark.holds("SH07", "SS14", "SS15", "SS09")
    def test_a_header_of_a_wrong_shape_is_refused(self) -> None:
        log = LogWriting()
        given = records.EpochHeader(config=CONFIG)
        bad = [
            ev.request.Header(header=given, reason="compaction"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            ev.request.Header(header=evolve(given, config=None), reason="initial"),  # type: ignore[arg-type]
            ev.request.Header(
                header=evolve(given, config=evolve(CONFIG, reasoning_effort=1)),  # type: ignore[arg-type]
                reason="initial",
            ),
        ]
        for payload in bad:
            with pytest.raises(InvalidAppend, match="request/header"):
                log.session.append(payload)
        assert log.session.next_seq == 0
