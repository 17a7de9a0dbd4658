"""Classes that `frozen` made as bases of others, below others, and within others."""

from __future__ import annotations

import pickle

import attrs
import pytest
from typing_extensions import override

from dsh.hooks import frozen


class Outer:
    """A class around another one."""

    @frozen
    class Inner:
        """What pickle must find."""

        turn: int


def test_a_class_below_one_that_was_never_used() -> None:
    @frozen(kw_only=True)
    class Upper:
        first: int

    @frozen(kw_only=True)
    class Lower(Upper):
        second: int = 2

    class Unadorned(Upper):
        __slots__ = ()

    assert repr(Unadorned(first=1)).endswith("Unadorned(first=1)")
    assert attrs.asdict(Lower(first=1)) == {"first": 1, "second": 2}
    assert isinstance(Lower(first=1), Upper)
    assert Lower(first=1) != Upper(first=1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Lower(first=1).first = 5  # type: ignore[misc]


def test_a_class_below_may_ask_by_way_of_super_first() -> None:
    @frozen
    class Upper:
        first: int

    class Lower(Upper):
        @override
        def __init__(self) -> None:
            super().__init__(1)

    assert Lower().first == 1

    @frozen
    class Shown:
        first: int

    class Framed(Shown):
        @override
        def __repr__(self) -> str:
            return f"<{super().__repr__()}>"

    assert (repr(Framed(1)).count("<"), repr(Framed(1)).count(">")) == (1, 1)


def test_a_class_in_a_class_is_called_by_its_whole_name() -> None:
    assert Outer.Inner.__qualname__ == "Outer.Inner"
    assert pickle.loads(pickle.dumps(Outer.Inner(turn=1))) == Outer.Inner(turn=1)


def test_a_field_may_stand_in_a_slot_of_a_base() -> None:
    class Base:
        __slots__ = ("first",)
        first: int

    @frozen
    class Lower(Base):
        first: int
        second: int = 2

    assert (Lower(1).first, Lower(1).second) == (1, 2)
