"""`dsh.hooks.frozen` makes what `attrs.frozen` makes, and asks attrs only when it must."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import threading
import weakref
from abc import ABC, abstractmethod
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Generic, TypedDict, TypeVar, Unpack, cast

import attrs
import pytest
from attrs import converters, field, validators
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from dsh.hooks import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


class Marker:
    """A base as the generated payloads have one."""

    __slots__ = ()
    TOKEN: ClassVar[str] = "demo/marker"


@attrs.frozen
class Above:
    """A base that attrs made."""

    first: int
    second: str = "two"


class Plain(Marker):
    """Fields with and without defaults."""

    tag: ClassVar[str] = "plain"
    turn: int
    text: str = "x"
    usage: int | None = None

    @property
    def double(self) -> int:
        """Twice the turn."""
        return 2 * self.turn


def _kept(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


class Checked:
    """Everything that `field` may ask for."""

    kept: tuple[str, ...] = field(converter=_kept, factory=tuple, metadata={"wire": "kept"})
    low: int = field(default=1, validator=validators.ge(1))
    maybe: str | None = field(default=None, converter=converters.optional(str))
    hidden: str = field(default="secret", repr=False, eq=False)
    made: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "made", f"{self.low}!")


class Below(Above):
    """A class below another, which replaces one of its fields."""

    second: str = "deux"
    third: int = 3


class Own:  # noqa: PLW1641 - what follows from that is compared
    """Its own idea of comparing and showing."""

    name: str = "n"

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    @override
    def __repr__(self) -> str:
        return "<own>"


class Boxed(Generic[T]):
    """A generic one."""

    value: T


class Abstract(ABC):
    """An abstract base."""

    @abstractmethod
    def told(self) -> str: ...

    def kind(self) -> str:
        """What it is."""
        return "abstract"


class Concrete(Abstract):
    """With `super()` in a method: attrs is asked at once."""

    name: str = "n"

    @override
    def told(self) -> str:
        return f"{super().kind()} {self.name}"


class Bare:
    """No field at all."""


class Private:
    """A field whose argument has another name."""

    _hidden: int
    shown: str = "s"


class Unordered:
    """A default before a field without one: only by name."""

    first: int = 1
    second: int


BODIES: dict[str, tuple[type, dict[str, object]]] = {
    "plain": (Plain, {"turn": 3}),
    "checked": (Checked, {"kept": ["a"], "low": 2}),
    "below": (Below, {"first": 1}),
    "own": (Own, {}),
    "boxed": (Boxed, {"value": (1,)}),
    "concrete": (Concrete, {}),
    "bare": (Bare, {}),
    "private": (Private, {"hidden": 1}),
    "unordered": (Unordered, {"second": 2}),
}


class Options(TypedDict, total=False):
    """What the classes of dsh are made with, and some that they are not."""

    kw_only: bool
    slots: bool
    eq: bool
    repr: bool
    order: bool


OPTIONS: dict[str, Options] = {
    "words": {"kw_only": True, "slots": True},
    "no options": {},
    "identity": {"eq": False},
    "quiet": {"repr": False},
    "dictionary": {"slots": False},
    "ordered": {"order": True},
}


def both(body: type, options: Options) -> tuple[type, type]:
    """A body made a class by dsh, and by attrs."""
    return frozen(**options)(_copied(body)), attrs.frozen(**options)(_copied(body))


def raised(work: Callable[[], object]) -> str:
    """The class and the text of what a call raises."""
    try:
        work()
    except (TypeError, AttributeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def told(cls: type, arguments: dict[str, object], way: str) -> object:
    """One property of a class, as a value that can be compared between two makings of it."""
    make = cast("Callable[..., attrs.AttrsInstance]", cls)  # type: ignore[explicit-any]
    instance = make(**arguments)
    fields = attrs.fields(cls)
    match way:
        case "fields":
            return [
                (a.name, a.default, a.type, a.kw_only, a.eq, a.repr, dict(a.metadata), a.inherited)
                for a in fields
            ]
        case "layout":
            return cls.__dict__.get("__slots__"), cls.__dict__.get("__match_args__")
        case "signature":
            return str(inspect.signature(cls)), cls.__doc__, cls.__qualname__, cls.__bases__
        case "evolve":
            evolved = attrs.evolve(instance)  # type: ignore[misc]
            return attrs.asdict(evolved), attrs.asdict(copy.deepcopy(instance))
        case "frozen":
            return (
                raised(lambda: setattr(instance, "other", 1)),
                raised(lambda: delattr(instance, "other")),
                [raised(partial(setattr, instance, a.name, 1)) for a in fields],
            )
        case "mistakes":
            return raised(lambda: make(zzz=1)), raised(lambda: make(*range(9)))
        case "equal":
            twin = make(**arguments)
            hashed = raised(lambda: hash(instance))
            alike = hashed == "nothing" and hash(instance) == hash(twin)
            return instance == twin, instance != twin, instance == object(), hashed, alike
        case _:
            shown = repr(instance)
            return shown if " at 0x" not in shown else "by identity"


#: attrs itself cannot make a class without slots that replaces a field of a class with slots.
MADE = [
    (body, options)
    for body in BODIES
    for options in OPTIONS
    if (body, options) != ("below", "dictionary") and (body != "unordered" or options == "words")
]
WAYS = ("fields", "layout", "signature", "evolve", "frozen", "mistakes", "equal", "shown")


@pytest.mark.holds("CAT19")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("body", "options"), MADE)
def test_it_is_what_attrs_makes(body: str, options: str, way: str) -> None:
    """Each property is looked at first on a fresh class: every door must open the class."""
    base, arguments = BODIES[body]
    ours, theirs = both(base, OPTIONS[options])
    assert told(ours, arguments, way) == told(theirs, arguments, way)


def _copied(body: type) -> type:
    """The class body once more: attrs leaves a mark on it."""
    if body is Concrete:  # holds itself by `super()`: made anew by its own statement

        class Again(Abstract):
            name: str = "n"

            @override
            def told(self) -> str:
                return f"{super().kind()} {self.name}"

        Again.__qualname__ = Again.__name__ = "Concrete"
        return Again
    members = {k: v for k, v in vars(body).items() if k not in {"__dict__", "__weakref__"}}
    return type(body)(body.__name__, body.__bases__, members)


@pytest.mark.holds("CAT19")
@given(st.lists(st.sampled_from(WAYS), min_size=2, max_size=5))
def test_the_order_of_looking_does_not_matter(ways: list[str]) -> None:
    for base, arguments in BODIES.values():
        ours, theirs = both(base, {"kw_only": True, "slots": True})
        for way in ways:
            assert told(ours, arguments, way) == told(theirs, arguments, way)


@pytest.mark.holds("CAT19")
def test_attrs_is_asked_at_the_first_use_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []

    def counted(**options: Unpack[Options]) -> Callable[[type], type]:
        asked.append(options)
        return attrs.define(frozen=True, **options)

    monkeypatch.setattr(attrs, "frozen", counted)

    @frozen(kw_only=True, slots=True)
    class Late(Marker):
        turn: int

    late = Late(turn=1)
    assert asked == []
    assert attrs.fields(Late).turn.name == "turn"
    assert [options.get("repr") for options in asked] == [False]
    assert repr(late).endswith("Late(turn=1)")
    assert {late, Late(turn=1)} == {late}
    assert len(asked) == 2
    assert "repr" not in asked[1]
    assert late.turn == 1


@frozen(kw_only=True, slots=True)
class Stored:
    """A class that pickle can find."""

    turn: int
    text: str = "x"


def test_it_is_pickled_matched_and_referred_to_weakly() -> None:
    assert pickle.loads(pickle.dumps(Stored(turn=1))) == Stored(turn=1)
    match Stored(turn=2):
        case Stored(turn=turn):
            assert turn == 2
    stored = Stored(turn=3)
    reference = weakref.ref(stored)
    assert reference() is stored
    del stored
    gc.collect()
    assert reference() is None


def test_a_cached_property_is_kept() -> None:
    @frozen(kw_only=True)
    class Cached:
        number: int

        @cached_property
        def twice(self) -> list[int]:
            return [self.number, self.number]

    cached = Cached(number=2)
    assert cached.twice is cached.twice
    assert cached.twice == [2, 2]


def test_what_attrs_refuses_is_refused_at_the_first_use() -> None:
    made = frozen(_copied(Unordered))
    with pytest.raises(ValueError, match="No mandatory attributes allowed after an attribute with"):
        made()


def test_many_threads_may_use_it_first() -> None:
    seen: list[str] = []
    for _ in range(20):

        @frozen(kw_only=True)
        class Shared:
            number: int

        start = threading.Barrier(6)

        def use(number: int, cls: type[Shared] = Shared, start: threading.Barrier = start) -> None:
            start.wait()
            made = cls(number=number)
            seen.append(f"{made.number}{made == cls(number=number)}{repr(made)[-2:]}")

        threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == [f"{number}True{number})" for number in range(6)]
        seen.clear()
