"""`frozen`: what `attrs.frozen` makes, its methods written when one of them is first asked for.

What comes in: a class body with annotated fields, and the options of `attrs.frozen`. What goes out:
the same class to every reader: slots, `attrs.fields`, `evolve`, matching, pickling, messages. attrs
writes and compiles the methods of a class while its module is imported: half a millisecond a class,
some three hundred classes, a third of the time until the first request; and most of them are
never made in a run. So the class gets its slots at once, and everything else from attrs, which
stays the only author of it, at the first use. Type checkers see `attrs.frozen` itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypedDict, Unpack, cast

import attrs

__all__ = ["frozen"]

#: What attrs may add to a class, beside slots.
_ALWAYS: Final = (
    "__attrs_attrs__",
    "__attrs_props__",
    "__match_args__",
    "__init__",
    "__setattr__",
    "__delattr__",
    "__replace__",
    "__getstate__",
    "__setstate__",
)
_COMPARED: Final = ("__eq__", "__ne__", "__hash__")
#: More than half of the work, and seldom asked for: comparing and showing.
_RARE: Final = frozenset({"__attrs_props__", "__repr__", *_COMPARED})


class _Options(TypedDict, total=False):
    """The options that change nothing but what is written later. With others, attrs is called."""

    kw_only: bool
    slots: bool
    eq: bool
    repr: bool


class _Later:
    """Stands where attrs will put something; whoever looks at it gets that instead."""

    __slots__ = ("_body", "_cls", "_name", "_options")

    def __init__(self, body: type, options: _Options) -> None:
        self._body = body
        self._options = options

    def __set_name__(self, cls: type, name: str) -> None:
        self._cls = cls
        self._name = name

    def __get__(self, instance: object, owner: type) -> object:
        rare = self._name in _RARE
        _complete(self._cls, self._body, self._options, rare=rare)
        return cast("object", getattr(owner if instance is None else instance, self._name))


def _complete(cls: type, body: type, options: _Options, *, rare: bool) -> None:
    """Put what attrs writes for `body` into `cls`: the rare methods only when one was asked for.

    Doing it twice (two threads) is harmless.
    """
    asked: _Options = options if rare else {**options, "eq": False, "repr": False}
    written = vars(attrs.frozen(**asked)(body))
    for name, value in list(vars(cls).items()):
        if isinstance(value, _Later) and (rare or name not in _RARE):
            if name in written:
                setattr(cls, name, written[name])
            else:
                with suppress(AttributeError):  # another thread was first
                    delattr(cls, name)


def _closes(member: object) -> bool:
    """Whether a method holds its class (`super()`): attrs would hand it the wrong one later."""
    inner: object = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
    return getattr(inner, "__closure__", None) is not None


def _inherited(body: type) -> tuple[dict[str, object], bool]:
    """The slots that the bases have, and whether one of them can be referred to weakly."""
    found: dict[str, object] = {}
    weakly = False
    for base in body.__mro__[1:-1]:
        members = vars(base)
        weakly = weakly or members.get("__weakref__") is not None
        for name in cast("tuple[str, ...]", members.get("__slots__", ())):
            found.setdefault(name, members.get(name))
    return found, weakly


def _with_slots(body: type, options: _Options) -> type:
    """The class of a body: its slots, its own members, and what is written later."""
    own: dict[str, object] = dict(vars(body))
    kinds = cast("dict[str, object]", own.get("__annotations__", {}))
    fields = [name for name, kind in kinds.items() if not str(kind).startswith("ClassVar")]
    taken, weakly = _inherited(body)
    for name in (*fields, "__dict__", "__weakref__"):
        own.pop(name, None)
    own |= {name: taken[name] for name in fields if name in taken}
    slots = tuple(name for name in fields if name not in taken)
    own["__slots__"] = slots if weakly else (*slots, "__weakref__")
    shown = ("__repr__",) if options.get("repr", True) else ()
    compared = _COMPARED if options.get("eq", True) else ()
    for name in (*_ALWAYS, *shown, *compared):
        if name not in own:
            own[name] = _Later(body, options)
    return type(body)(body.__name__, body.__bases__, own)


if TYPE_CHECKING:
    from attrs import frozen
else:

    def frozen(body: type | None = None, **options: Unpack[_Options]) -> object:
        """As `attrs.frozen`: a decorator, with options or without."""
        if body is None:
            return lambda body: frozen(body, **options)
        plain = options.get("slots", True) and options.keys() <= _Options.__annotations__.keys()
        if not plain or any(_closes(member) for member in vars(body).values()):
            return attrs.frozen(**options)(body)
        return _with_slots(body, options)
