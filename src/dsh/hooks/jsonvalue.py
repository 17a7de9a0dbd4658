"""JSON values as dsh keeps them: read once, checked, and frozen for ever.

What comes in: plain Python values. What goes out: the same value built of `FrozenDict`, tuples and
scalars, or `InvalidJson` naming the path of the first part that JSON cannot carry without loss.
Nothing here knows of files, events or encodings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import copysign, isfinite
from typing import Final, NoReturn, TypeAlias, cast

from typing_extensions import override

__all__ = [
    "EMPTY_OBJECT",
    "FrozenDict",
    "InvalidJson",
    "JsonObject",
    "JsonValue",
    "frozen_array",
    "frozen_json",
    "frozen_object",
]

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
)
JsonObject: TypeAlias = Mapping[str, JsonValue]

INT_MAX: Final = 2**53 - 1
DEPTH_MAX: Final = 200
SHOWN_MAX: Final = 80
TOO_DEEP: Final = f"nested deeper than {DEPTH_MAX}, or cyclic; flatten it"


class InvalidJson(ValueError):
    """A value that JSON cannot carry without loss. `path` names the part, as in `$.a[1]`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class FrozenDict(dict[str, JsonValue]):
    """A dict whose changing methods raise; a subclass of dict, so encoders take it as it is."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("this value is frozen: it is (or will be) logged; build a new dict instead")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = _refuse
    # mypy takes it for the overloads of dict; pyright does not.
    setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]

    @override
    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, JsonValue]]]:
        return FrozenDict, (dict(self),)


EMPTY_OBJECT: Final[JsonObject] = FrozenDict()


def _frozen_scalar(value: object) -> JsonValue:
    match value:
        case str():
            return _frozen_text(value)
        case None | bool():
            return value
        case int():
            if not -INT_MAX <= value <= INT_MAX:
                raise InvalidJson("", f"integer {value} is beyond ±(2**53 - 1); use a string")
            return int(value)
        case float():
            if not isfinite(value):
                raise InvalidJson("", f"{value!r} is not a JSON number; use null or a string")
            if value == 0.0 and copysign(1, value) < 0:
                raise InvalidJson("", "-0.0 loses its sign in JSON; use 0.0")
            return float(value)
        case _:
            raise InvalidJson("", f"{type(value).__name__} is not a JSON value; convert it first")


def _frozen_text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidJson(
                "", f"lone surrogate at index {error.start}; decode with errors='replace' first"
            ) from None
    return str(value)


def _frozen(value: object, depth: int) -> JsonValue:
    """The frozen value. The path of a fault grows while it passes outwards, never beforehand."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is FrozenDict:
        _measure(value.values(), depth)
        return value
    if isinstance(value, str | int):  # before asking an abstract class, which takes long
        return _frozen_scalar(value)
    if depth > DEPTH_MAX:
        raise InvalidJson("", TOO_DEEP)
    if isinstance(value, Mapping):
        fields: dict[str, JsonValue] = {}
        for key, item in cast("Mapping[object, object]", value).items():
            if not isinstance(key, str):
                raise InvalidJson("", f"key {key!r} is not a string; use str({key!r})")
            name = _frozen_text(key)
            try:
                fields[name] = _frozen(item, depth + 1)
            except InvalidJson as error:
                raise InvalidJson(f".{key}{error.path}", error.problem) from None
        return FrozenDict(fields)
    if isinstance(value, list | tuple):
        items: list[JsonValue] = []
        try:
            for item in cast("Sequence[object]", value):
                items.append(_frozen(item, depth + 1))  # noqa: PERF401 - its length names the fault
        except InvalidJson as error:
            raise InvalidJson(f"[{len(items)}]{error.path}", error.problem) from None
        return tuple(items)
    return _frozen_scalar(value)


def _measure(items: Iterable[object], depth: int) -> None:
    """Raise InvalidJson if what was frozen before is too deep for where it stands now."""
    if depth > DEPTH_MAX:
        raise InvalidJson("", TOO_DEEP)
    for item in items:
        if isinstance(item, dict):
            _measure(cast("dict[str, object]", item).values(), depth + 1)
        elif isinstance(item, tuple):
            _measure(cast("tuple[object, ...]", item), depth + 1)


def frozen_json(value: object) -> JsonValue:
    """Check and freeze `value`, in one pass. Raises InvalidJson with the path of the first fault.

    Refused: NaN and infinities, -0.0, integers beyond ±(2**53 - 1), lone surrogates, keys that are
    not str, sets, bytes, cycles and nesting deeper than 200. Tuples become (stay) tuples.
    """
    if type(value) is FrozenDict:
        return value
    try:
        return _frozen(value, 0)
    except InvalidJson as error:
        path = f"${error.path}"
        raise InvalidJson(
            path[:SHOWN_MAX] if error.problem is TOO_DEEP else path, error.problem
        ) from None


def frozen_object(value: object) -> JsonObject:
    """`frozen_json` for a value that must be an object at its top."""
    frozen = frozen_json(value)
    if not isinstance(frozen, Mapping):
        raise InvalidJson("$", f"{type(value).__name__} where an object is due")
    return frozen


def frozen_array(value: object) -> tuple[JsonValue, ...]:
    """`frozen_json` for a value that must be a list at its top."""
    frozen = frozen_json(value)
    if not isinstance(frozen, tuple):
        raise InvalidJson("$", f"{type(value).__name__} where a list is due")
    return frozen
