"""Writes parts of codecs: how items of a union are told apart, how objects are made.

What comes in: a class and its fields. What goes out: lines of Python. A record is made without its
`__init__`, which would check and freeze again and take as long as all the rest: its slots are
filled directly. Payloads of events live in modules that are imported when needed: what fills their
slots is looked up by their class.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .spelling import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Field

__all__ = ["differs", "encoders", "filled", "found", "looked_up", "slots", "snake"]


def snake(name: str) -> str:
    """`TextDeltaChunk` → `text_delta_chunk`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def slots(name: str, class_name: str, fields: Sequence[Field]) -> list[str]:
    """The constants that store each field, or nothing for a class without any."""
    if not fields:
        return []
    constants = [setter(name, field) for field in fields]
    left = ", ".join(constants) + ("," if len(constants) == 1 else "")
    words = ", ".join(f'"{field.name}"' for field in fields)
    return [f"{left} = setters({class_name}, {words})"]


def setter(name: str, field: Field) -> str:
    """The constant that stores a field."""
    return f"SET_{name.upper()}_{field.name.upper()}"


def filled(name: str, class_name: str, fields: Sequence[Field]) -> list[str]:
    """Lines that make a record by filling its slots."""
    if not fields:
        return called(class_name, fields)
    return [
        f"made = NEW({class_name})",
        *(f"{setter(name, field)}(made, v_{field.name})" for field in fields),
        "return made",
    ]


def called(class_name: str, fields: Sequence[Field]) -> list[str]:
    """The line that calls the class."""
    arguments = ", ".join(f"{field.name}=v_{field.name}" for field in fields)
    return [f"return {class_name}({arguments})"]


def looked_up(class_name: str, fields: Sequence[Field]) -> list[str]:
    """Lines that make a payload by filling its slots, which are looked up by its class."""
    if not fields:
        return called(class_name, fields)
    left = ", ".join(f"set_{field.name}" for field in fields) + ("," if len(fields) == 1 else "")
    return [
        f"cls = {class_name}",
        f"{left} = SLOTS[cls]",
        "made = NEW(cls)",
        *(f"set_{field.name}(made, v_{field.name})" for field in fields),
        "return made",
    ]


def encoders(union: str) -> str:
    """The table of a union's encoders."""
    return f"ENCODE_{snake(union).upper()}"


def found(union: str, local: str, key: str) -> list[str]:
    """Lines that find the encoder of a variant, as the union's does, without a call of it."""
    table = encoders(union)
    return [
        "try:",
        f"    encoder = {table}[{local}.__class__]",
        "except KeyError:",
        f"    raise bad_class({key}, {local}, {quoted(union)}, {table}) from None",
    ]


def differs(field: Field, local: str) -> str:
    """The test that a value is not its default, by class too: True is not 1."""
    value = literal(field.default)
    if isinstance(field.default, bool):
        return f"if {local} is not {value}:"
    kind = type(field.default).__name__ if not isinstance(field.default, list) else "tuple"
    return f"if {local}.__class__ is not {kind} or {local} != {value}:"
