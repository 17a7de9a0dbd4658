"""Python types as JSON Schema, and JSON values as those types: strict, with the path of a fault.

What comes in: an attrs class (or a plain type) that a tool's author wrote. What goes out: one
`Shape` with the schema for the model and the reader for its answers, so that the two cannot
disagree. Nothing is coerced: `"5"` is no number, `1` is no boolean, text is no list.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast, get_args, get_origin

import attrs
from cattrs import BaseValidationError

from dsh.errors import PluginError
from dsh.hooks import InvalidJson, JsonObject, JsonValue, frozen_json, frozen_object
from dsh.tools.reader import (
    BOUNDS,
    CONVERTER,
    KINDS,
    Reader,
    is_literal,
    is_mapping,
    is_optional,
    is_sequence,
    problems_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Shape", "ShapeError", "param", "shape_of"]

T = TypeVar("T")

PROBLEMS_MAX: Final = 20


class ShapeError(ValueError):
    """A JSON value that does not fit. `problems` names each fault with its path, `$.a[1]`."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def param(
    doc: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    pattern: str | None = None,
) -> dict[str, object]:
    """Metadata of one argument: `path: str = field(metadata=param("file to read"))`.

    `doc` is what the model reads. `ge` and `le` bound numbers (inclusive); the lengths bound text
    (characters) and lists (items); `pattern` must be found somewhere in the text.
    """
    given = {
        "ge": ge,
        "le": le,
        "min_length": min_length,
        "max_length": max_length,
        "pattern": pattern,
    }
    return {"doc": doc, **{key: value for key, value in given.items() if value is not None}}


def _describe(annotation: object, path: str, seen: tuple[type, ...]) -> dict[str, object]:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _describe_type(annotation, path, seen)
    args: tuple[object, ...] = get_args(annotation)
    if is_literal(annotation):
        return _choices(args)
    if is_sequence(annotation):
        return {"type": "array", "items": _describe(args[0], f"{path}[]", seen)}
    if is_mapping(annotation) and args[0] is str:
        return {"type": "object", "additionalProperties": _describe(args[1], f"{path}.*", seen)}
    if is_optional(annotation):
        one = next(arg for arg in args if arg is not type(None))
        return {"anyOf": [_describe(one, path, seen), {"type": "null"}]}
    raise _unspeakable(repr(annotation), path)


def _describe_type(cls: type, path: str, seen: tuple[type, ...]) -> dict[str, object]:
    if cls in KINDS:
        return {"type": KINDS[cls]}
    if attrs.has(cls):
        return _describe_class(cls, path, seen)
    if issubclass(cls, Enum):
        return _choices([member.value for member in cls])
    raise _unspeakable(f"<class {cls.__qualname__!r}>", path)


def _unspeakable(annotation: str, path: str) -> PluginError:
    return PluginError(
        f"{path}: the type {annotation} has no JSON Schema here; use str, int, float, bool, "
        "Literal, an enum, X | None, list[X], tuple[X, ...], dict[str, X] or an attrs class",
        code="BAD_TOOL",
    )


def _choices(values: Sequence[object]) -> dict[str, object]:
    kinds = {KINDS[type(value)] for value in values if type(value) in KINDS}
    return (
        {"type": kinds.pop(), "enum": list(values)} if len(kinds) == 1 else {"enum": list(values)}
    )


def _describe_class(cls: type, path: str, seen: tuple[type, ...]) -> dict[str, object]:
    if cls in seen:
        raise PluginError(
            f"{path}: {cls.__qualname__} contains itself; flatten the arguments", code="BAD_TOOL"
        )
    properties: dict[str, object] = {}
    required: list[str] = []
    for attribute in attrs.fields(cls):
        where = f"{path}.{attribute.name}"
        spec = _describe(attribute.type, where, (*seen, cls))
        default: object = attribute.default
        if default is attrs.NOTHING:
            required.append(attribute.name)
        elif default is None:
            # Absent says the same as null, and fewer models stumble over a plain type.
            options = spec.get("anyOf")
            if isinstance(options, list):
                spec = dict(cast("list[dict[str, object]]", options)[0])
        elif isinstance(default, bool | int | float | str):
            spec["default"] = default.value if isinstance(default, Enum) else default
        _annotate(spec, attribute.metadata)
        properties[attribute.name] = spec
    described: dict[str, object] = {"type": "object", "properties": properties}
    if required:
        described["required"] = required
    described["additionalProperties"] = False
    return described


def _annotate(spec: dict[str, object], metadata: Mapping[str, object]) -> None:
    doc = metadata.get("doc")
    if isinstance(doc, str):
        spec["description"] = doc
    is_list = spec.get("type") == "array"
    for key, word in BOUNDS.items():
        if key in metadata:
            spec[word.replace("Length", "Items") if is_list else word] = metadata[key]


class Shape(Generic[T]):
    """A type with its JSON Schema. Made once per tool, by `shape_of`."""

    __slots__ = ("_read", "cls", "schema")

    def __init__(self, cls: type[T], schema: JsonObject, read: Reader) -> None:
        self.cls = cls
        self.schema = schema
        self._read = read

    def structure(self, value: JsonValue) -> T:
        """The typed value of a JSON value. Raises ShapeError with every fault and its path."""
        try:
            return cast("T", self._read(value, self.cls))
        except BaseValidationError as error:
            problems = problems_of(error, "$", ())
        except (ValueError, TypeError) as error:
            problems = problems_of(error, "$", ())
        rest = len(problems) - PROBLEMS_MAX
        more = [f"and {rest} more"] if rest > 0 else []
        raise ShapeError((*problems[:PROBLEMS_MAX], *more))

    def unstructure(self, value: object) -> JsonValue:
        """The frozen JSON value of a typed one. Raises ShapeError if JSON cannot carry it."""
        try:
            return frozen_json(CONVERTER.unstructure(value))
        except InvalidJson as error:
            raise ShapeError((str(error),)) from None
        except RecursionError:
            raise ShapeError(("$: nested too deeply, or cyclic; flatten it",)) from None


@cache
def _shape(cls: type) -> Shape[object]:
    if attrs.has(cls):
        _resolve(cls, ())
    schema = frozen_object(_describe(cls, "$", ()))
    return Shape(cls, schema, cast("Reader", CONVERTER.get_structure_hook(cls)))


def _resolve(cls: type, seen: tuple[type, ...]) -> None:
    try:
        attrs.resolve_types(cls)
    except NameError as error:
        raise PluginError(
            f"{cls.__module__}.{cls.__qualname__}: {error}; a tool's types must be importable at "
            "run time: move the import out of `if TYPE_CHECKING`",
            code="BAD_TOOL",
        ) from None
    for attribute in attrs.fields(cls):
        for inner in (attribute.type, *get_args(attribute.type)):
            if isinstance(inner, type) and attrs.has(inner) and inner not in (*seen, cls):
                _resolve(inner, (*seen, cls))


def shape_of(cls: type[T]) -> Shape[T]:
    """The shape of a type. Raises PluginError (BAD_TOOL) naming what JSON Schema cannot say."""
    made: Callable[[type], object] = _shape  # keyed by the class itself
    return cast("Shape[T]", made(cls))
