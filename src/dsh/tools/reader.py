"""JSON values as typed Python values: strict, nothing coerced, every fault with its path.

What comes in: a type that a tool's author wrote, and a value. What goes out: the typed value, or
all faults at once. `"5"` is no number, `1` is no boolean, text is no list. Nothing here makes a
schema; both sides of the contract share the tables of kinds and bounds.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Final, Literal, TypeAlias, Union, cast, get_args, get_origin

import attrs
from cattrs import (
    ClassValidationError,
    Converter,
    ForbiddenExtraKeysError,
)
from cattrs.gen import make_dict_structure_fn

__all__ = [
    "BOUNDS",
    "CONVERTER",
    "KINDS",
    "Misfit",
    "MisplacedError",
    "Reader",
    "is_enum",
    "is_literal",
    "is_mapping",
    "is_optional",
    "is_sequence",
    "problems_of",
]

PAIR: Final = 2

Reader: TypeAlias = Callable[[object, object], object]

#: Metadata of a field, and its word in a schema.
BOUNDS: Final = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}
KINDS: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


class Misfit(ValueError):
    """One fault at the place where it was found; the path comes from what is around it."""


class MisplacedError(ValueError):
    """Faults of parts, each with its place below this value: `.name`, `[1]`, `['key']`."""

    def __init__(self, faults: list[tuple[str, Exception]]) -> None:
        super().__init__("parts do not fit")
        self.faults = faults


def _said(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean {str(value).lower()}"
        case int() | float():
            return f"number {value!r}"[:60]
        case str():
            return f"text {value[:40]!r}"
        case Mapping():
            return "an object"
        case _:
            return "a list"


def _scalar_reader(kind: type) -> Reader:
    def read(value: object, _: object) -> object:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)  # JSON has one kind of number
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise Misfit(f"expected {KINDS[kind]}, got {_said(value)}")
        return value

    return read


def _choice_reader(choices: Sequence[object], results: Sequence[object]) -> Reader:
    def read(value: object, _: object) -> object:
        for choice, result in zip(choices, results, strict=True):
            if type(choice) is type(value) and choice == value:
                return result
        listed = ", ".join(repr(choice) for choice in choices)
        raise Misfit(f"expected one of {listed}, got {_said(value)}")

    return read


def _items(pairs: Sequence[tuple[str | int, object]], kind: object, item: Reader) -> list[object]:
    found: list[object] = []
    faults: list[tuple[str, Exception]] = []
    for index, value in pairs:
        try:
            found.append(item(value, kind))
        except Exception as error:  # noqa: BLE001 - every fault of the list is told at once
            faults.append((f"[{index!r}]", error))
    if faults:
        raise MisplacedError(faults)
    return found


def _sequence_reader(annotation: type, converter: Converter) -> Reader:
    kind: object = get_args(annotation)[0]
    item = cast("Reader", converter.get_structure_hook(kind))
    is_tuple = get_origin(annotation) is tuple

    def read(value: object, _: object) -> object:
        if not isinstance(value, list | tuple):
            raise Misfit(f"expected a list, got {_said(value)}")
        pairs = list(enumerate(cast("Sequence[object]", value)))
        found = _items(pairs, kind, item)
        return tuple(found) if is_tuple else found

    return read


def _mapping_reader(annotation: type, converter: Converter) -> Reader:
    kind: object = get_args(annotation)[1]
    item = cast("Reader", converter.get_structure_hook(kind))

    def read(value: object, _: object) -> object:
        if not isinstance(value, Mapping):
            raise Misfit(f"expected an object, got {_said(value)}")
        pairs = list(cast("Mapping[str, object]", value).items())
        keys = [key for key, _ in pairs]
        return dict(zip(keys, _items(pairs, kind, item), strict=True))

    return read


def _check_bounds(found: object, metadata: Mapping[str, object]) -> None:
    if isinstance(found, int | float):
        if isinstance(low := metadata.get("ge"), int | float) and found < low:
            raise Misfit(f"must be at least {low}, got {found}")
        if isinstance(high := metadata.get("le"), int | float) and found > high:
            raise Misfit(f"must be at most {high}, got {found}")
    if isinstance(found, str | list | tuple):
        size = len(cast("Sequence[object]", found))
        if isinstance(low := metadata.get("min_length"), int) and size < low:
            raise Misfit(f"must have a length of at least {low}, got {size}")
        if isinstance(high := metadata.get("max_length"), int) and size > high:
            raise Misfit(f"must have a length of at most {high}, got {size}")
    pattern = metadata.get("pattern")
    if isinstance(found, str) and isinstance(pattern, str) and not re.search(pattern, found):
        raise Misfit(f"must match {pattern!r}, got {_said(found)}")


def _class_reader(cls: type, converter: Converter) -> Reader:
    bounded = [field for field in attrs.fields(cls) if set(BOUNDS) & set(field.metadata)]
    build = cast(
        "Reader",
        make_dict_structure_fn(
            cls, converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True
        ),
    )

    def read(value: object, kind: object) -> object:
        if not isinstance(value, Mapping):
            raise Misfit(f"expected an object, got {_said(value)}")
        made = build(cast("Mapping[str, object]", value), kind)
        faults: list[tuple[str, Exception]] = []
        for field in bounded:
            try:
                _check_bounds(getattr(made, field.name), field.metadata)
            except Misfit as error:
                faults.append((f".{field.name}", error))
        if faults:
            raise MisplacedError(faults)
        return made

    return read


def _enum_reader(cls: type[Enum], _: Converter) -> Reader:
    return _choice_reader([member.value for member in cls], list(cls))


def _literal_reader(annotation: type, _: Converter) -> Reader:
    return _choice_reader(get_args(annotation), get_args(annotation))


def is_optional(annotation: object) -> bool:
    """`X | None`."""
    args = get_args(annotation)
    kinds: tuple[object, ...] = (Union, types.UnionType)
    return get_origin(annotation) in kinds and len(args) == PAIR and type(None) in args


def is_sequence(annotation: object) -> bool:
    """`list[X]`, `Sequence[X]` or `tuple[X, ...]`."""
    origin = get_origin(annotation)
    if origin is tuple:
        return get_args(annotation)[1:] == (Ellipsis,)
    return origin in (list, Sequence)


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind in KINDS:
        converter.register_structure_hook(kind, _scalar_reader(kind))
    converter.register_structure_hook_factory(attrs.has, _class_reader)
    converter.register_structure_hook_factory(is_enum, _enum_reader)
    converter.register_structure_hook_factory(is_literal, _literal_reader)
    converter.register_structure_hook_factory(is_sequence, _sequence_reader)
    converter.register_structure_hook_factory(is_mapping, _mapping_reader)
    return converter


def is_literal(annotation: object) -> bool:
    """`Literal[…]`."""
    return get_origin(annotation) is Literal


def is_mapping(annotation: object) -> bool:
    """`dict[K, X]` or `Mapping[K, X]`."""
    origin: object = get_origin(annotation)
    return origin is dict or origin is Mapping


def is_enum(annotation: object) -> bool:
    """A subclass of Enum."""
    return isinstance(annotation, type) and issubclass(annotation, Enum)


CONVERTER: Final = _converter()


def problems_of(error: Exception, path: str, fields: Sequence[str]) -> list[str]:
    """Every fault with its path, in the order in which they were found."""
    match error:
        case ClassValidationError():
            inner, bare = error.group_exceptions()
            names = [field.name for field in attrs.fields(error.cl)] if attrs.has(error.cl) else []
            found = [
                line
                for fault, note in inner
                for line in problems_of(fault, f"{path}.{note.name}", names)
            ]
            return found + [line for fault in bare for line in problems_of(fault, path, names)]
        case MisplacedError():
            return [
                line
                for place, fault in error.faults
                for line in problems_of(fault, f"{path}{place}", ())
            ]
        case ForbiddenExtraKeysError():
            return [_unknown_key(key, path, fields) for key in sorted(error.extra_fields)]
        case KeyError():
            return [f"{path}: required, but missing"]
        case _:
            return [f"{path}: {error}"]


def _unknown_key(key: str, path: str, fields: Sequence[str]) -> str:
    near = get_close_matches(key, fields, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields) or 'none'}"
    return f"{path}: unknown key {key[:80]!r}; {hint}"
