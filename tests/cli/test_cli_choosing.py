"""Which session a person means, and which place in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh import catalog as ev
from dsh.cli.sessions.choosing import chosen
from dsh.cli.sessions.positions import end_of
from dsh.cli.sessions.summaries import told_of
from dsh.errors import UsageError
from dsh.testing import LogWriting, MemoryStore
from dsh.wire import StoredLog

HERE = Path("/work")


async def stored(store: MemoryStore, session_id: str, prompt: str, title: str = "") -> None:
    log = LogWriting(session_id=session_id)
    log.whole_turn(prompt)
    if title:
        log.session.append(ev.session.Title(title=title))
    handle = await store.create(log.session.header)
    await handle.append(log.session.events)
    await handle.aclose()


@pytest.fixture
async def store() -> MemoryStore:
    made = MemoryStore()
    await stored(made, "s1", "Fix the rounding test")
    await stored(made, "s2", "hello", "The garden book")
    await stored(made, "s3", "Fix the invoice")
    await stored(made, "s4", "fix")
    return made


@pytest.mark.holds("CL29")
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("s2", "s2"),
        ("garden", "s2"),
        ("GARDEN BOOK", "s2"),
        ("rounding", "s1"),
        ("fix", "s4"),  # the whole title before parts of others
    ],
)
async def test_an_id_or_words_of_a_title_that_no_other_has(
    store: MemoryStore, typed: str, found: str
) -> None:
    assert (await chosen(store, typed, HERE)).id == found


@pytest.mark.holds("CL29")
@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("fix the", r"2 sessions are titled with 'fix the'; type an id: s\d \(Fix the"),
        ("hello", "no session 'hello' is stored"),  # it has another name now
        ("s", "4 sessions begin with 's'"),
        ("", "no session '' is stored"),
    ],
)
async def test_what_means_none_or_several_is_refused(
    store: MemoryStore, typed: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        await chosen(store, typed, HERE)


@pytest.mark.holds("CL29")
async def test_what_cannot_be_undone_is_not_chosen_by_a_title(store: MemoryStore) -> None:
    with pytest.raises(UsageError, match="no session 'garden' is stored"):
        await chosen(store, "garden", HERE, by_title=False)


def test_what_is_told_of_a_log() -> None:
    log = LogWriting()
    log.whole_turn("Fix  the\ntest")
    told = told_of(StoredLog(header=log.session.header, events=tuple(log.session.events)))
    assert (told.title, told.count, told.state) == ("Fix the test", "1 turn", "done")
    log.turn_start()
    told = told_of(StoredLog(header=log.session.header, events=tuple(log.session.events)))
    assert (told.count, told.state) == ("2 turns", "interrupted in turn 2")


@pytest.mark.holds("CL51")
def test_a_place_is_a_turn_or_a_step_and_the_last_step_ends_with_its_turn() -> None:
    log = LogWriting()
    log.turn_start()
    ends: list[int] = []
    for prompt in ("one", "two"):
        log.step_start()
        log.user(prompt)
        log.reply()
        ends.append(log.step_end())
    assert end_of(log.session.events, "1.2") == ends[1]  # while the turn is open
    turn = log.turn_end()
    assert end_of(log.session.events, "1.1") == ends[0]
    assert end_of(log.session.events, "1.2") == end_of(log.session.events, "1") == turn


@pytest.mark.holds("CL51")
@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("7", "turn 7 has not ended here: its last ended turn is 1"),
        ("1.9", r"step 1.9 has not ended here: its last ended step is 1\.\d"),
        ("x", "'x' is no turn; write its number"),
        ("1.x", "'1.x' is no step: write TURN.STEP, as in 1.2"),
    ],
)
def test_a_place_that_is_none_names_the_last_one(typed: str, message: str) -> None:
    log = LogWriting()
    log.whole_turn("one", "a", calls=("c1",))
    with pytest.raises(UsageError, match=message):
        end_of(log.session.events, typed)
