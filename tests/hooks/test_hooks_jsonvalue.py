"""Refusals of JSON values name the first fault by its path from the top."""

from __future__ import annotations

import pytest

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
