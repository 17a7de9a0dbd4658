"""The inbox by itself: coordinates, identities, and the fold that brings it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh import catalog as ev
from dsh.agent import INBOX, Inbox, InboxNotices, user_message
from dsh.errors import InboxConflict, InvalidAppend
from dsh.session import ProjectionSet, Session
from dsh.testing import LogWriting

if TYPE_CHECKING:
    from dsh.catalog import records


class Told:
    """Collects notices."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def notices(self) -> InboxNotices:
        return InboxNotices(
            inserted=lambda message: self.log.append(f"+{message.id}"),
            discarded=lambda message: self.log.append(f"-{message.id}"),
            claimed=lambda message, turn: self.log.append(f"{turn}:{message.id}"),
        )


def made() -> tuple[Inbox, Session, Told]:
    units = ProjectionSet()
    units.add(INBOX)
    session = LogWriting(units=units).session
    told = Told()
    return Inbox(session, told.notices()), session, told


def message(name: str) -> records.UserMessage:
    return user_message(name, id=name)


def ids(inbox: Inbox, target: records.InboxTarget) -> list[str]:
    return [each.id for each in inbox.lists.of(target)]


@pytest.mark.holds("B2", "GR03")
@pytest.mark.parametrize(
    ("start", "remove", "left"),
    [
        (0, 1, ["b", "c"]),
        (-1, 1, ["a", "b"]),
        (-9, 1, ["b", "c"]),
        (1, 99, ["a"]),
        (9, 1, ["a", "b", "c"]),
        (1, -3, ["a", "b", "c"]),
    ],
)
def test_odd_coordinates_are_normalised(start: int, remove: int, left: list[str]) -> None:
    inbox, session, _ = made()
    for name in "abc":
        inbox.append("next-turn", message(name))
    inbox.splice("next-turn", start, remove)
    assert ids(inbox, "next-turn") == left
    last = session.events[-1].data
    assert isinstance(last, ev.agent.InboxSpliced)
    assert 0 <= last.start <= 3


@pytest.mark.holds("B2")
def test_what_changes_nothing_appends_nothing() -> None:
    inbox, session, told = made()
    inbox.splice("next-step", 0, 5)
    inbox.clear()
    assert inbox.claim(prompt=True, turn=1) == ()
    assert inbox.remove("nobody") is False
    assert inbox.replace("nobody", message("x")) is False
    assert len(session.events) == 0
    assert told.log == []


@pytest.mark.holds("B3", "GR03")
def test_an_id_is_pending_once_over_both_lists() -> None:
    inbox, session, _ = made()
    inbox.append("next-turn", message("a"))
    for target in ("next-turn", "next-step"):
        with pytest.raises(InboxConflict, match="'a' is already pending"):
            inbox.append(target, message("a"))
    with pytest.raises(InboxConflict):
        inbox.splice("next-step", 0, 0, (message("b"), message("b")))
    assert len(session.events) == 1
    # Its own place it may take again.
    assert inbox.replace("a", message("a"))


@pytest.mark.holds("B3")
def test_replaying_an_invalid_splice_names_its_seq() -> None:
    units = ProjectionSet()
    units.add(INBOX)
    session = LogWriting(units=units).session
    splice = ev.agent.InboxSpliced
    session.append(splice(target="next-turn", start=0, inserted=(message("a"),)))
    with pytest.raises(InvalidAppend, match="event 1 removes"):
        session.append(splice(target="next-turn", start=0, removed_count=2, inserted=()))
    with pytest.raises(InvalidAppend, match="event 1 makes two"):
        session.append(splice(target="next-step", start=0, inserted=(message("a"),)))
    assert len(session.events) == 1


@pytest.mark.holds("B4", "B5", "GR02")
def test_replacing_finds_the_message_in_either_list_and_tells_both_changes() -> None:
    inbox, session, told = made()
    inbox.append("next-step", message("s"))
    inbox.append("next-turn", message("t"))
    inbox.prepend("next-turn", message("first"))
    told.log.clear()
    assert inbox.replace("t", message("u"))
    assert inbox.replace("s", message("r"))
    assert ids(inbox, "next-turn") == ["first", "u"]
    assert ids(inbox, "next-step") == ["r"]
    assert told.log == ["-t", "+u", "-s", "+r"]
    last = session.events[-1].data
    assert isinstance(last, ev.agent.InboxSpliced)
    assert last.outcome == "canceled"


@pytest.mark.holds("B7", "B4")
def test_a_claim_is_a_deletion_without_an_outcome() -> None:
    inbox, session, told = made()
    for name in "ab":
        inbox.append("next-turn", message(name))
    inbox.append("next-step", message("s"))
    told.log.clear()
    assert [each.id for each in inbox.claim(prompt=True, turn=3)] == ["s", "a"]
    assert told.log == ["3:s", "3:a"]
    assert [each.id for each in inbox.claim(prompt=False, turn=3)] == []
    assert ids(inbox, "next-turn") == ["b"]
    outcomes = [e.data.outcome for e in session.events if isinstance(e.data, ev.agent.InboxSpliced)]
    assert outcomes == [None] * 5


@pytest.mark.holds("B3")
def test_a_fork_begins_with_an_empty_inbox_and_a_resumed_log_with_its_own() -> None:
    inbox, session, _ = made()
    inbox.append("next-turn", message("parents"))
    session.append(ev.session.EndSeed(inherited=False))
    assert ids(inbox, "next-turn") == ["parents"]
    session.append(ev.session.EndSeed(inherited=True))
    assert inbox.empty
    inbox.append("next-turn", message("own"))
    session.append(ev.session.EndSeed(inherited=False))
    assert ids(inbox, "next-turn") == ["own"]


Op = tuple[str, str, int, int]


@pytest.mark.holds("B2", "A23")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "prepend", "splice", "claim", "clear", "remove"]),
            st.sampled_from(["next-turn", "next-step"]),
            st.integers(-4, 6),
            st.integers(-1, 4),
        ),
        max_size=20,
    )
)
def test_a_replayed_log_gives_the_same_lists(ops: list[Op]) -> None:
    inbox, session, told = made()
    for number, (kind, target, start, count) in enumerate(ops):
        assert target in {"next-turn", "next-step"}
        place: records.InboxTarget = "next-turn" if target == "next-turn" else "next-step"
        match kind:
            case "append":
                inbox.append(place, message(f"m{number}"))
            case "prepend":
                inbox.prepend(place, message(f"m{number}"))
            case "splice":
                inbox.splice(place, start, count, (message(f"m{number}"),))
            case "claim":
                inbox.claim(prompt=bool(start % 2), turn=1)
            case "clear":
                inbox.clear()
            case _:
                inbox.remove(f"m{start}")
    units = ProjectionSet()
    units.add(INBOX)
    replayed = LogWriting(units=units).session
    for event in session.events:
        replayed.adopt(event, stored=True)
    assert replayed.projection(INBOX) == inbox.lists
    came = sum(entry.startswith("+") for entry in told.log)
    went = len(told.log) - came
    assert came - went == len(inbox.lists.ids())
