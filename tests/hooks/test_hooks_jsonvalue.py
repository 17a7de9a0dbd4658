"""Refusals of JSON values name the first fault by its path from the top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from typing_extensions import override

from dsh.hooks import FrozenDict, InvalidJson, frozen_json


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$"),
        ({"a": [1, {"b": 2**70}]}, "$.a[1].b"),
        ([[], [0, "\ud800"]], "$[1][1]"),
        ({"a": {"b": {3: 4}}}, "$.a.b"),
        ({"a": (1, 2, {5})}, "$.a[2]"),
        ({"ok": 1, "\ud800": 2}, "$"),
    ],
)
def test_the_path_is_that_of_the_first_fault(value: object, path: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        frozen_json(value)
    assert caught.value.path == path
    assert str(caught.value) == f"{path}: {caught.value.problem}"


def test_the_path_of_a_cycle_is_shown_in_part() -> None:
    value: list[object] = [0]
    value.append(value)
    with pytest.raises(InvalidJson, match="nested deeper than 200, or cyclic") as caught:
        frozen_json({"a": value})
    assert caught.value.path == ("$.a" + "[1]" * 40)[:80]


def test_what_is_frozen_is_exactly_json() -> None:
    class Text(str):
        __slots__ = ()

    class Count(int):
        pass

    frozen = frozen_json({Text("a"): [Text("é"), Count(3), True, None, 1.5], "b": {}})
    assert frozen == {"a": ("é", 3, True, None, 1.5), "b": {}}
    assert isinstance(frozen, FrozenDict)
    assert [type(each) for each in frozen] == [str, str]
    inner = frozen["a"]
    assert isinstance(inner, tuple)
    assert [type(each) for each in inner] == [str, int, bool, type(None), float]
    assert frozen_json(frozen) is frozen


@pytest.mark.holds("CAT20")
def test_the_bound_of_nesting_counts_what_was_frozen_before() -> None:
    whole: dict[str, object] = {}
    piece = frozen_json({})
    for _ in range(200):
        whole = {"a": whole}
        piece = frozen_json({"a": piece})
    assert frozen_json(whole) == piece
    with pytest.raises(InvalidJson, match="nested deeper than 200"):
        frozen_json({"a": whole})
    for wrapped in ({"a": piece}, [piece], {"b": 1, "c": [0, piece]}, ({"d": (piece,)},)):
        with pytest.raises(InvalidJson, match="nested deeper than 200"):
            frozen_json(wrapped)
    inner = piece
    for _ in range(3):
        assert isinstance(inner, Mapping)
        inner = inner["a"]
    assert frozen_json({"c": [0, inner]}) == {"c": (0, inner)}


class Fickle(Mapping[str, object]):
    """A mapping that answers something else each time, and counts; `broken`: it raises."""

    def __init__(self, *, broken: bool = False) -> None:
        self.reads = 0
        self._broken = broken

    @override
    def __getitem__(self, key: str) -> object:
        self.reads += 1
        if self._broken:
            raise LookupError(f"{key} is out")
        return self.reads

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(("a",))

    @override
    def __len__(self) -> int:
        return 1


@pytest.mark.holds("SJ04")
def test_what_a_mapping_answers_is_read_once() -> None:
    given = Fickle()
    assert frozen_json({"x": [given]}) == {"x": ({"a": 1},)}
    assert given.reads == 1


@pytest.mark.holds("SJ08")
def test_what_a_mapping_raises_comes_through_after_one_read() -> None:
    given = Fickle(broken=True)
    with pytest.raises(LookupError, match="a is out"):
        frozen_json({"x": [given]})
    assert given.reads == 1
