"""Histories: immutable, shared, and as convenient as tuples."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.hooks import History, Line
from dsh.hooks.live import LlmRequest
from dsh.testing.effort import bytes_of, calls_of
from dsh.testing.model_seam import user

if TYPE_CHECKING:
    from dsh.catalog.records import Message


def history(*items: int) -> History[int]:
    return Line(items).so_far()


@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(0, 9), max_size=4), st.data())
def test_it_is_what_a_tuple_of_then_was(
    first: list[int], later: list[int], data: st.DataObject
) -> None:
    line = Line(first)
    then = line.so_far()
    for item in later:
        line.add(item)
    same = tuple(first)
    assert (len(then), tuple(then), tuple(reversed(then))) == (len(same), same, same[::-1])
    assert then == same
    assert same == then
    assert then == history(*first)
    assert line.so_far() == (*first, *later)
    assert (then == line.so_far()) == (not later)
    cut = data.draw(st.slices(len(same) + 2))
    assert then[cut] == same[cut]
    for place in range(-len(same), len(same)):
        assert then[place] == same[place]
    for item in (*same, 99):
        assert (item in then) == (item in same)
        assert then.count(item) == same.count(item)


def test_what_is_not_there_is_said() -> None:
    line = Line([1])
    then = line.so_far()
    line.add(2)
    for place in (1, -2):
        with pytest.raises(IndexError, match=f"no item {place} in a history of 1"):
            then[place]
    assert repr(then) == "History((1,))"


def test_it_equals_no_list_and_has_no_hash() -> None:
    assert history(1) != [1]
    assert history(1) != (2,)
    assert history(1) != history(1, 2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(history(1))


def test_a_copy_is_not_bound_to_what_it_was_made_of() -> None:
    given = [1]
    line = Line(given)
    given.append(2)
    assert line.so_far() == (1,)


def test_a_line_goes_with_the_last_who_adds_or_looks() -> None:
    line = Line([1])
    alive, then = weakref.ref(line), line.so_far()
    del line
    gc.collect()
    assert alive() is then.line
    del then
    assert alive() is None


def test_a_history_of_any_length_costs_the_same() -> None:
    short, long = Line(range(10)), Line(range(100_000))
    assert calls_of(short.so_far) == calls_of(long.so_far)
    assert bytes_of(long.so_far) < 200
    held = long.so_far()
    assert bytes_of(lambda: held[99_990:]) < 500


def test_a_request_takes_any_messages_and_can_be_changed_by_nobody() -> None:
    given: list[Message] = [user("a", "1")]
    request = LlmRequest(provider="p", model="m", messages=given)
    given.append(user("b", "2"))
    assert [message.id for message in request.messages] == ["1"]
    mine: History[Message] = Line(given).so_far()
    assert LlmRequest(provider="p", model="m", messages=mine).messages is mine
    one_by_one = LlmRequest(provider="p", model="m", messages=(message for message in given))
    assert one_by_one.messages == mine
    assert not hasattr(cast("object", mine), "append")
