"""Configuration: located nodes to the plugins' generated config classes, strictly.

What comes in: a config class (attrs, fields with their wire spelling in `metadata`) and the node
that a composition gives it. What goes out: an instance, or every mismatch at once, each with its
place. Nothing is coerced: `5` is not `"5"`, `true` is not `1`; only a whole number may stand for a
number with a fraction. Which plugin the class belongs to is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Final, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

import attrs
from cattrs import Converter
from cattrs.cols import (
    homogenous_tuple_structure_factory,
    mapping_structure_factory,  # pyright: ignore[reportUnknownVariableType]
)
from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ForbiddenExtraKeysError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, override

from dsh.boot.declared import alternatives, in_words, may_be_null, tag_of, wire_fields
from dsh.boot.nearest import did_you_mean
from dsh.boot.nodes import Issue, Node, is_mapping, plain

__all__ = ["structured"]

C = TypeVar("C")


class MismatchError(Exception):
    """A value of another type than declared. `declared` is the annotation."""

    def __init__(self, declared: object) -> None:
        super().__init__(in_words(declared))
        parts = alternatives(declared)
        self.expected: Final = in_words(declared)
        self.wants_text: Final = str in parts
        self.wants_number: Final = int in parts or float in parts


def structured(cls: type[C], node: Node, prefix: str, issues: list[Issue]) -> C | None:
    """An instance of the config class. None: what is wrong with `node` was added to `issues`.

    `prefix` names the row in messages.
    """
    try:
        return _converter().structure(plain(node), cls)
    except (BaseValidationError, MismatchError, ForbiddenExtraKeysError) as error:
        for path, found in _leaves(error, ()):
            issues.extend(_issues(found, path, node, cls, prefix))
        return None


def _leaves(
    error: BaseException, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], BaseException]]:
    """Every single fault of a cattrs error, with its path in wire spelling."""
    if not isinstance(error, BaseValidationError):
        yield path, error
        return
    for inner in error.exceptions:
        step = path
        for note in getattr(inner, "__notes__", ()):
            if isinstance(note, AttributeValidationNote):
                step = (*path, _wire(error.cl, note.name))
            elif isinstance(note, IterableValidationNote):
                step = (*path, note.index)
        yield from _leaves(inner, step)


def _wire(cls: type, name: str) -> str:
    return next(wire for wire, field in wire_fields(cls).items() if field.name == name)


def _issues(
    error: BaseException, path: tuple[str | int, ...], root: Node, cls: type, prefix: str
) -> Iterator[Issue]:
    node = root.at(path)
    where = _spelled(prefix, path)
    if isinstance(error, ForbiddenExtraKeysError):
        fields = wire_fields(error.cl)
        takes = f"It takes: {', '.join(fields)}" if fields else "It takes no configuration"
        for key in sorted(error.extra_fields):
            offender = node.entries().get(key, node)
            yield Issue(
                offender.key or offender.place,
                f"{where}: unknown key {key!r}{did_you_mean(key, fields)} {takes}",
            )
    elif isinstance(error, KeyError):
        yield Issue(node.place, f"{where}: missing; it has no default, give a value")
    elif isinstance(error, MismatchError):
        yield Issue(node.place, f"{where}: expected {error.expected}, got {_got(node, error)}")
    else:
        yield Issue(node.place, f"{where}: {error}")


def _spelled(prefix: str, path: tuple[str | int, ...]) -> str:
    text = prefix
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text


def _got(node: Node, error: MismatchError) -> str:
    value = node.value
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, str):
        unquoted = "; write it without quotes" if error.wants_number and _is_number(value) else ""
        return f"text {value!r}{unquoted}"
    shown = node.raw if node.raw is not None else str(value)
    kind = "" if isinstance(value, bool) else "number "
    quoted = f'; write it in quotes: "{shown}"' if error.wants_text else ""
    return f"{kind}{shown}{quoted}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


Hook: TypeAlias = Callable[[object, object], object]


@cache
def _converter() -> Converter:
    converter = Converter(detailed_validation=True, forbid_extra_keys=True)
    for scalar in (str, int, bool):
        converter.register_structure_hook(scalar, _exactly(scalar))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(_is_json, _as_it_is)
    converter.register_structure_hook_func(_is_literal, _literal)
    # The first of these that says yes is used; the last one registered is asked first.
    for fits, make in (
        (_is_list, _list_hook),
        (_is_map, _map_hook),
        (attrs.has, _class_hook),
        (_is_union, _union_hook),
    ):
        converter.register_structure_hook_factory(fits, partial(make, converter))
    return converter


def _exactly(scalar: type) -> Callable[[object, object], object]:
    def hook(value: object, _declared: object) -> object:
        if type(value) is not scalar:
            raise MismatchError(scalar)
        return value

    return hook


def _number(value: object, _declared: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MismatchError(float)
    return float(value)


def _as_it_is(value: object, _declared: object) -> object:
    return value


def _literal(value: object, declared: object) -> object:
    for allowed in get_args(declared):
        # `1 == True`: the type has to agree too.
        if type(value) is type(allowed) and value == allowed:
            return value
    raise MismatchError(declared)


def _is_json(declared: object) -> bool:
    return declared is object


def _is_literal(declared: object) -> bool:
    return get_origin(declared) is Literal


def _is_list(declared: object) -> bool:
    return get_origin(declared) is tuple


def _is_map(declared: object) -> bool:
    origin = get_origin(declared)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_union(declared: object) -> bool:
    return alternatives(declared) != (declared,)


def _list_hook(converter: Converter, declared: type) -> Hook:
    inner: object = homogenous_tuple_structure_factory(declared, converter)
    return _guarded(cast("Hook", inner), list, declared)


def _map_hook(converter: Converter, declared: type) -> Hook:
    inner = cast("Hook", mapping_structure_factory(declared, converter))
    return _guarded(inner, dict, declared)


def _class_hook(converter: Converter, cls: type) -> Hook:
    overrides = {
        field.name: override(rename=wire, struct_hook=_checked(converter, field))
        for wire, field in wire_fields(cls).items()
    }
    # Detailed and strict as the converter is: the keyword options are taken from there.
    inner: object = make_dict_structure_fn(cls, converter, **overrides)  # type: ignore[arg-type]
    tag = tag_of(cls)

    def hook(value: object, declared: object) -> object:
        # The tag of a union's member is no field of the class; it has done its work.
        if tag is not None and is_mapping(value):
            rest = {key: item for key, item in value.items() if key != tag[0]}
            return guarded(rest, declared)
        return guarded(value, declared)

    guarded = _guarded(cast("Hook", inner), dict, cls)
    return hook


def _guarded(inner: Hook, accepted: type, declared: object) -> Hook:
    def hook(value: object, _declared: object) -> object:
        if not isinstance(value, accepted):
            raise MismatchError(declared)
        return inner(value, declared)

    return hook


def _checked(converter: Converter, field: attrs.Attribute[object]) -> Hook:
    """Structure one field, then run its own validator: so all fields report, not the first."""
    inner = converter.get_structure_hook(field.type)

    def hook(value: object, declared: object) -> object:
        made = inner(value, declared)
        if field.validator is not None:
            field.validator(None, field, made)
        return made

    return hook


def _as(converter: Converter, value: object, declared: object) -> object:
    return converter.structure(value, cast("type[object]", declared))


def _union_hook(converter: Converter, declared: object) -> Hook:
    members = alternatives(declared)
    nullable = may_be_null(declared)
    tagged = {tag: member for member in members if (tag := tag_of(member)) is not None}

    def hook(value: object, _declared: object) -> object:
        if value is None and nullable:
            return None
        if len(members) == 1:
            return _as(converter, value, members[0])
        if is_mapping(value):
            for (key, word), member in tagged.items():
                if value.get(key) == word:
                    return _as(converter, value, member)
        else:
            for member in members:
                with suppress(MismatchError):
                    return _as(converter, value, member)
        raise MismatchError(declared)

    return hook
