"""Compares fields and types of two locks.

What comes in: two sets of fields, or two texts of a type, and the types of both locks. What goes
out: which rule of evolution each difference falls under. Types that stand in both locks under one
name are compared once, where they are declared, and count as the same here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

from .expressions import TypeFaultError, parse_type
from .model import (
    EnumType,
    IdType,
    ListType,
    LiveType,
    MapType,
    RefType,
    Scalar,
    UnionType,
)

if TYPE_CHECKING:
    from .lock import FieldEntry, Fields, TypeEntry
    from .model import Type

__all__ = ["Say", "Types", "compare_fields", "compare_types", "parsed", "symbols"]

#: Takes a rule, the name of a field or "", and what changed.
Say: TypeAlias = Callable[[str, str, str], None]
TEXT: Final = Scalar("string")
ABSENT: Final = object()


def parsed(text: str, known: Mapping[str, Type]) -> tuple[Type, bool]:
    """A type and whether it takes null; what cannot be read stands for itself."""
    try:
        return parse_type(text, known)
    except TypeFaultError:
        return RefType(text, "?"), False


def symbols(types: Mapping[str, TypeEntry]) -> dict[str, Type]:
    """The names of a lock's types, as the reader of types wants them."""
    known: dict[str, Type] = {}
    for name, entry in types.items():
        if "id" in entry:
            known[name] = IdType(name, "")
        elif "enum" in entry:
            known[name] = EnumType(name, tuple(entry["enum"]))
        else:
            known[name] = RefType(name, "", is_union="union" in entry)
    return known


@frozen
class Types:
    """The types of the old and the new lock."""

    old: Mapping[str, TypeEntry]
    new: Mapping[str, TypeEntry]
    old_names: Mapping[str, Type]
    new_names: Mapping[str, Type]

    def parsed(self, text: str, *, new: bool) -> tuple[Type, bool]:
        """A type and whether it takes null; what cannot be read stands for itself."""
        return parsed(text, self.new_names if new else self.old_names)

    def alike(self, old: str, new: str) -> bool:
        """Whether two names stand for the same shape."""
        return bool(old in self.old and new in self.new) and self.old[old] == self.new[new]


def _named(old: Type, new: Type, types: Types) -> str:
    """Compares records and unions of different names."""
    if not isinstance(old, RefType) or not isinstance(new, RefType):
        return "FIELD_TYPE_CHANGED"
    if old.name == new.name and old.module == new.module:
        return ""
    if types.alike(old.name, new.name):
        return "FIELD_TYPE_RENAMED"
    # A variant writes its tag, so it reads as the union it stands in.
    if old.name in types.new.get(new.name, {}).get("union", {}).values():
        return "FIELD_TYPE_WIDENED"
    if new.name in types.old.get(old.name, {}).get("union", {}).values():
        return "FIELD_TYPE_NARROWED"
    return "FIELD_TYPE_CHANGED"


def _enums(old: EnumType, new: EnumType) -> str:
    """Compares two enums: by name where they have one, else by value."""
    if old.name and old.name == new.name:
        return ""
    before, after = set(old.values), set(new.values)
    if before == after:
        return "" if not (old.name and new.name) else "FIELD_TYPE_RENAMED"
    if before < after:
        return "ENUM_VALUE_ADDED"
    return "ENUM_VALUE_NO_DELETE" if after < before else "FIELD_TYPE_CHANGED"


def _texts(old: Type, new: Type) -> bool:
    """Whether both are text under other names."""
    return (old == TEXT or isinstance(old, IdType)) and (new == TEXT or isinstance(new, IdType))


def _wider(old: Type, new: Type) -> bool:
    """Whether every value of `old` is one of `new`, and not the other way."""
    if new == Scalar("json"):
        return old != new and not isinstance(old, LiveType | UnionType)
    if old == Scalar("int"):
        return new == Scalar("number")
    if isinstance(old, EnumType):
        return new == TEXT
    if old == Scalar("flag"):
        return new == Scalar("bool")
    if isinstance(new, UnionType):
        return old in new.members or (
            isinstance(old, UnionType) and set(old.members) < set(new.members)
        )
    return False


def compare_types(old: Type, new: Type, types: Types) -> str:
    """The rule that the difference of two types falls under; "" for none."""
    if old == new or _texts(old, new):
        return ""
    match old, new:
        case (ListType(item=one), ListType(item=two)) | (MapType(item=one), MapType(item=two)):
            return compare_types(one, two, types)
        case (EnumType(), EnumType()):
            return _enums(old, new)
        case _:
            pass
    if _wider(old, new):
        return "FIELD_TYPE_WIDENED"
    if _wider(new, old):
        return "FIELD_TYPE_NARROWED"
    return _named(old, new, types)


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _default(entry: FieldEntry) -> object:
    """The value an absent field has; ABSENT when it may not be absent."""
    if "default" in entry:
        return entry["default"]
    if entry["type"] == "flag":
        return False
    return None if "optional" in entry else ABSENT


def _presence(old: FieldEntry, new: FieldEntry, name: str, say: Say) -> None:
    """Compares whether a field may be absent, and what that means."""
    before, after = _default(old), _default(new)
    if before is ABSENT and after is ABSENT:
        return
    if before is ABSENT:
        if "optional" in new:
            say("FIELD_TYPE_WIDENED", name, "may now be absent")
        else:
            say("FIELD_DEFAULT_ADDED", name, f"default {_shown(after)}")
    elif after is ABSENT:
        rule = "FIELD_TYPE_NARROWED" if "optional" in old else "FIELD_DEFAULT_REMOVED"
        say(rule, name, "may no longer be absent")
    elif before != after or type(before) is not type(after):
        say("FIELD_DEFAULT_CHANGED", name, f"default {_shown(before)} is now {_shown(after)}")
        if "optional" in new:
            say("FIELD_TYPE_WIDENED", name, "may now be absent")


def _bounds(old: FieldEntry, new: FieldEntry, name: str, say: Say) -> None:
    """Compares bounds: each is a lower or an upper one, and absent means none."""
    lower, upper = float("-inf"), float("inf")
    pairs: tuple[tuple[str, float, float, int], ...] = (
        ("min", old.get("min", lower), new.get("min", lower), 1),
        ("above", old.get("above", lower), new.get("above", lower), 1),
        ("max", old.get("max", upper), new.get("max", upper), -1),
        ("nonempty", float("nonempty" in old), float("nonempty" in new), 1),
    )
    for word, before, after, sign in pairs:
        if before == after:
            continue
        rule = "FIELD_BOUNDS_TIGHTENED" if (after - before) * sign > 0 else "FIELD_BOUNDS_LOOSENED"
        told = [f"{value:g}" if abs(value) != upper else "none" for value in (before, after)]
        say(rule, name, f"{word} {told[0]} is now {told[1]}")


def _field(old: FieldEntry, new: FieldEntry, name: str, types: Types, say: Say) -> None:
    """Compares one field that stands in both."""
    before, null_before = types.parsed(old["type"], new=False)
    after, null_after = types.parsed(new["type"], new=True)
    rule = compare_types(before, after, types)
    if rule:
        say(rule, name, f"{old['type']} is now {new['type']}")
    elif null_before != null_after:
        rule = "FIELD_TYPE_WIDENED" if null_after else "FIELD_TYPE_NARROWED"
        say(rule, name, f"{old['type']} is now {new['type']}")
    _presence(old, new, name, say)
    if old.get("unit") != new.get("unit"):
        told = [f"[{entry.get('unit', 'no unit')}]" for entry in (old, new)]
        say("FIELD_UNIT_CHANGED", name, f"{told[0]} is now {told[1]}")
    _bounds(old, new, name, say)
    if ("live" in old) != ("live" in new):
        added = "live" in new
        say(
            "FIELD_LIVE_ADDED" if added else "FIELD_LIVE_REMOVED",
            name,
            "an edit now takes effect at once" if added else "an edit now needs a restart",
        )
    if ("limit" in old) != ("limit" in new):
        added = "limit" in new
        say(
            "FIELD_LIMIT_ADDED" if added else "FIELD_LIMIT_REMOVED",
            name,
            f"a found project file may {'now' if added else 'no longer'} lower it",
        )


def compare_fields(old: Fields, new: Fields, types: Types, say: Say) -> None:
    """Tell `say` of every difference between two classes of fields."""
    for name in old:
        if name not in new:
            say("FIELD_NO_DELETE", name, f"{old[name]['type']} is gone")
    for name, entry in new.items():
        if name in old:
            _field(old[name], entry, name, types, say)
        elif _default(entry) is ABSENT:
            say("FIELD_ADDED_REQUIRED", name, entry["type"])
        else:
            say("FIELD_ADDED_OPTIONAL", name, entry["type"])
